//! find: opens a cursor on a collection and returns its first batch.

mod asked;

pub(super) use asked::{Asked, flag, hint, stage_of};

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use protocol::{ErrorCode, Namespace, RawDoc, Release, Timestamp};
use query::{
    QueryError,
    collation::Collator,
    exec::{Project, Reveal},
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
    projection::Projection,
    sort::SortPattern,
    source::{Direction, IndexInfo, WholeKeys},
    text::TextSpec,
    value::{OwnedValue, Value, compare_values},
};
use storage::{Collection, View};

use super::{Auth, Command, OpClass, Run, Waiting, aggregate};
use crate::{
    auth::requirement,
    context::{Call, Node, Outcome},
    error::Failure,
    read::{
        blocking, collation,
        first_batch::{first_batch, while_running},
        moment::{self, ReadTime},
        natural_cursor::{NaturalOptions, NaturalReading},
        opened::{Named, Opened},
        surroundings::Surroundings,
        target::Target,
    },
};

pub(super) const COMMAND: Command = Command {
    name: "find",
    help: "Returns documents of a collection.",
    auth: Auth::Body("`find` on the collection", requirement::find),
    class: Some(OpClass::Query),
    run: Run::Waiting(run),
    ..Command::READ
};

fn run(call: Call) -> Waiting {
    Box::pin(async move {
        let asked = Asked::parse(&call)?;
        let target = Target::parse(&call)?;
        let store = call.node().store()?;
        let time = moment::resolve(&call, store).await?;
        moment::decided(&call, store, time, |view, until| is_held(&asked, &target, view, until))
            .await?;
        if asked.is_point_read() {
            return open(&call, &asked, &target, time);
        }
        blocking::run_short(call, move |call| open(call, &asked, &target, time)).await
    })
}

/// True if a transaction prepared up to `until` has written a document that may be found.
fn is_held(asked: &Asked, target: &Target, view: &View, until: Timestamp) -> Result<bool, Failure> {
    if asked.is_point_read()
        && let Some(collection) = target.collection(view)?.filter(|coll| coll.collator().is_none())
        && let Ok(Some(id)) = asked.filter.get("_id")
    {
        let holder = view.prepared_conflict(&collection, id)?;
        return Ok(holder.is_some_and(|(_, since)| since <= until));
    }
    target.is_held(view, until)
}

/// Opens the cursor and fills its first batch.
fn open(call: &Call, asked: &Asked, target: &Target, time: ReadTime) -> Outcome {
    let opened = match Opened::target(call, time, target, Some(&asked.filter))? {
        Named::Here(opened) => opened,
        Named::View(view) => {
            // mongod parses it as a find before it converts it to a pipeline.
            let parsing = ParseContext::default();
            let filter = Matcher::parse_scoped(&asked.filter, &parsing, &asked.variables.scope)?;
            asked.check_natural()?;
            projection(asked, &parsing, &filter)?;
            return aggregate::open(call, view, time, target, asked.aggregation()?);
        }
    };
    let ns = opened.namespace(target)?.clone();
    let mut query = Prepared::new(asked, &ns, &opened)?;
    if (asked.tailable || asked.resume_token) && !opened.is_absent() {
        return in_natural_order(call, asked, query, (ns, time), &opened);
    }
    let surroundings = query.surroundings(asked, call);
    let context = opened.context(call, &surroundings);
    query.hold_to_hint(asked, call.node(), &opened)?;
    let mut planned = opened.plan(query.request, &context)?;
    if asked.is_noted() {
        planned.pipeline.push(Box::new(Reveal {
            projection: query.projection,
            record_id: asked.show_record_id,
            key: asked.return_key.then(|| asked.sort_keys()),
        }));
    } else {
        planned.pipeline.extend(query.projection.map(Project));
    }
    opened.cursor(call, (ns, time), planned, (surroundings, &context), &asked.first())
}

/// A tailable cursor, or one with resume tokens.
fn in_natural_order(
    call: &Call,
    asked: &Asked,
    query: Prepared,
    (ns, time): (Namespace, ReadTime),
    opened: &Opened,
) -> Outcome {
    if asked.tailable && !opened.is_capped() {
        let frame = planner::refused_frame(&query.request, ns.as_str(), None);
        let text = format!("{frame} tailable cursor requested on non capped collection");
        return Err(Failure::said(ErrorCode::BadValue, text));
    }
    let options = NaturalOptions {
        time,
        matcher: query.request.filter,
        direction: query.request.natural.unwrap_or(Direction::Forward),
        skip: asked.skip,
        limit: asked.limit,
        tailable: asked.tailable,
        tokens: asked.resume_token,
        after: asked.resume_after.clone(),
        projection: query.projection,
        record_ids: asked.show_record_id,
    };
    let reading = NaturalReading::open(call, opened, options)
        .map_err(|failure| while_running(failure, call, &ns))?;
    first_batch(call, ns, reading, &asked.first(), |reading, batch, limit| {
        reading.fill_from(call, opened, batch, limit)
    })
}

/// mongod looks up the text index while it parses the filter, so a missing one is reported before errors in later
/// fields.
fn check_text_in_front(filter: &RawDoc, collection: &Collection) -> Result<(), Failure> {
    let Some(Ok((name, search))) = filter.iter().next() else { return Ok(()) };
    if name.as_str() != "$text" {
        return Ok(());
    }
    let mut alone = RawDocumentBuf::new();
    alone.append(name, search);
    let matcher = Matcher::parse(&alone, &ParseContext::default())?;
    let mut specs = collection.indexes().iter().filter(|index| is_text(index.spec())).peekable();
    if specs.peek().is_none() {
        return Err(planner::no_text_index("").into());
    }
    let spec = specs.find_map(|index| TextSpec::of(index.spec()));
    match (matcher.text(), spec) {
        (Some(text), Some(spec)) => Ok(text.check(&spec)?),
        _ => Ok(()),
    }
}

fn is_text(spec: &RawDocument) -> bool {
    let key = spec.get_document("key");
    key.is_ok_and(|key| key.iter().flatten().any(|(_, kind)| kind.as_str() == Some("text")))
}

/// The error for a text search without a collection of the catalog.
pub(super) fn no_text_index(ns: &Namespace, opened: &Opened) -> Failure {
    let why = match opened.is_absent() {
        true => format!(" (no such collection '{ns}')"),
        false => String::new(),
    };
    planner::no_text_index(&why).into()
}

impl Asked {
    /// The parts of the context that all batches of the cursor share.
    pub(super) fn surroundings(&self, call: &Call) -> Surroundings {
        let spills = self.disk_use.unwrap_or(call.profile().disk_use_by_default);
        Surroundings::new(call, self.variables.values.clone(), spills)
    }
}

fn projection(
    asked: &Asked,
    parsing: &ParseContext,
    filter: &Matcher,
) -> Result<Option<Projection>, Failure> {
    let scope = &asked.variables.scope;
    if asked.sort.is_none() && !asked.sort_keys().is_empty() {
        let text = "cannot use sortKey $meta projection without a sort";
        return Err(Failure::said(ErrorCode::BadValue, text));
    }
    let parse = |spec: &RawDoc| Projection::parse_find_scoped(spec, Some(filter), parsing, scope);
    Ok(asked.projection.as_ref().map(parse).transpose()?)
}

/// A find that was parsed.
pub(super) struct Prepared {
    collator: Option<Arc<Collator>>,
    pub(super) request: Request,
    pub(super) projection: Option<Projection>,
}

impl Prepared {
    /// The parts of the context that all batches of the cursor share.
    pub(super) fn surroundings(&self, asked: &Asked, call: &Call) -> Surroundings {
        asked.surroundings(call).with_collator(self.collator.clone())
    }

    pub(super) fn new(asked: &Asked, ns: &Namespace, opened: &Opened) -> Result<Self, Failure> {
        let collection = opened.collection.as_deref();
        let collator = collation::of_collection(asked.collation.as_ref(), collection)?;
        let natural = asked.natural()?;
        // A hint of natural order determines how documents are read, not how they are sorted.
        let natural_sort = asked.natural_sort()?;
        let sort = asked.sort.as_ref().filter(|_| natural_sort.is_none());
        let parsing = ParseContext { collator: collator.clone() };
        if let Some(collection) = collection {
            check_text_in_front(&asked.filter, collection)?;
        }
        let filter = Matcher::parse_scoped(&asked.filter, &parsing, &asked.variables.scope)?;
        asked.check_natural()?;
        let projection = projection(asked, &parsing, &filter)?;
        // Parsed after both, so that of several errors theirs is reported.
        let sort = sort
            .map(|sort| SortPattern::parse_find(sort, collator.clone(), &filter))
            .transpose()?;
        let hinted = asked.hint_value().is_some();
        planner::check_text_request(&filter, natural_sort.is_some(), hinted, asked.tailable)?;
        if filter.text().is_some() && collection.is_none() {
            return Err(no_text_index(ns, opened));
        }
        let (skip, limit) = (asked.skip, asked.limit);
        let needed = projection.as_ref().and_then(Projection::included_paths);
        let (noted, needed) = (asked.is_noted(), needed.filter(|_| !asked.is_noted()));
        let written = (asked.sort.clone(), asked.projection.clone());
        let request =
            Request { sort, natural, skip, limit, needed, noted, written, ..Request::new(filter) };
        Ok(Self { collator, request, projection })
    }

    /// Restricts the request to the hinted index, with `min` and `max` as its bounds.
    pub(super) fn hold_to_hint(
        &mut self,
        asked: &Asked,
        node: &Node,
        opened: &Opened,
    ) -> Result<(), Failure> {
        let request = &mut self.request;
        let (projection, collator) = (asked.projection.as_deref(), self.collator.as_deref());
        if opened.restrict(node, request, projection, collator) {
            request.natural = asked.natural_sort()?;
            return Ok(());
        }
        if opened.is_absent() {
            return Ok(());
        }
        if request.natural.is_some() {
            if asked.min.is_some() || asked.max.is_some() {
                let text = "min and max are incompatible with $natural";
                return Err(opened.refused(291, request, collator, text).into());
            }
            return Ok(());
        }
        opened.hint(request, asked.hint_value(), collator)?;
        if asked.min.is_some() || asked.max.is_some() {
            let source = opened.source();
            let wrong = |code, text: &str| opened.refused(code, request, collator, text);
            let Some(hinted) = request.hint.and_then(|at| source.indexes().get(at)) else {
                let text = "When using min()/max() a hint of which index to use must be provided";
                return Err(wrong(291, text).until(Release::V5_0, 51_173).into());
            };
            let collation = self.collator.as_ref().map(|own| own.spec());
            if hinted.collation.as_ref() != collation {
                return Err(wrong(51174, "The index chosen is not compatible with min/max").into());
            }
            request.ends = Some(ends(asked, hinted, &wrong)?);
        }
        Ok(())
    }
}

fn ends(
    asked: &Asked,
    index: &IndexInfo,
    wrong: &dyn Fn(i32, &str) -> QueryError,
) -> Result<WholeKeys, Failure> {
    let key = index.spec.get_document("key").ok();
    let fits = |end: &RawDocument| {
        let names = |doc: &RawDocument| {
            doc.iter().flatten().map(|(name, _)| name.as_str().to_owned()).collect::<Vec<_>>()
        };
        key.is_some_and(|key| names(key) == names(end))
    };
    let values = |end: &Option<RawDoc>| -> Result<Option<Vec<OwnedValue>>, Failure> {
        let Some(end) = end else { return Ok(None) };
        if !fits(end) {
            return Err(wrong(51174, "The index chosen is not compatible with min/max").into());
        }
        let values = end.iter().flatten().filter_map(|(_, value)| Value::from_raw(value));
        Ok(Some(values.map(OwnedValue::from).collect()))
    };
    let (from, to) = (values(&asked.min)?, values(&asked.max)?);
    if let (Some(from), Some(to)) = (&from, &to) {
        let order = from
            .iter()
            .zip(to)
            .zip(&index.fields)
            .map(|((a, b), field)| {
                let order = compare_values(a.get(), b.get(), None);
                if field.ascending { order } else { order.reverse() }
            })
            .find(|order| order.is_ne());
        if !order.is_some_and(std::cmp::Ordering::is_lt) {
            let text = "The value provided for min() does not come before the value provided for \
                        max() in the hinted index";
            return Err(wrong(51175, text).into());
        }
    }
    Ok(WholeKeys { from, to })
}

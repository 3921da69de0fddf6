//! find: documents of a collection, the first batch of them.

mod asked;

pub(super) use asked::{Asked, flag, hint, stage_of};

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use protocol::{ErrorCode, Namespace, RawDoc, Timestamp};
use query::{
    collation::Collator,
    exec::{Project, Reveal},
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
    projection::Projection,
    sort::SortPattern,
    source::{Direction, IndexInfo, Source, WholeKeys},
    text::TextSpec,
    value::{OwnedValue, Value, compare_values},
};
use storage::{Collection, View};
use uuid::Uuid;

use super::{
    Auth, Command, OpClass, Run, Waiting, aggregate, collation, first_batch::first_batch,
    list_cursor::ListReading, target::Target,
};
use crate::{
    auth::requirement,
    blocking::{self, Surroundings},
    context::{Call, Node, Outcome},
    cursors::Reading,
    error::Failure,
    index_use, local,
    natural_reading::{NaturalOptions, NaturalReading},
    oplog_reading::OplogReading,
    query_reading::QueryReading,
    read_time::{self, ReadTime},
    source::{self, CollectionSource},
    views,
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
        let time = read_time::resolve(&call, store).await?;
        read_time::decided(&call, store, time, |view, until| is_held(&asked, &target, view, until))
            .await?;
        if asked.is_point_read() {
            return open(&call, &asked, &target, time);
        }
        blocking::run_short(call, move |call| open(call, &asked, &target, time)).await
    })
}

/// True if a transaction that was prepared until then holds a document that may be found.
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
    let first = asked.first();
    if target.is_oplog() {
        let matcher = Matcher::parse(&asked.filter, &ParseContext::default())?;
        asked.check_natural()?;
        if matcher.text().is_some() {
            return Err(planner::no_text_index("").into());
        }
        let projection = projection(asked, &ParseContext::default(), &matcher)?;
        let natural = asked.natural()?;
        let mut oplog = OplogReading::open(call, &asked.filter, natural, asked.limit, projection)?;
        oplog.show_record_ids(asked.show_record_id);
        return first_batch(call, Namespace::new("local", local::OPLOG), Box::new(oplog), &first);
    }
    if let Target::Name(ns) = target {
        let view = call.node().store()?.view(time.at)?;
        if view.catalog().collection(ns).is_none() && views::exists(&view, ns)? {
            // mongod understands it as a find before it makes a pipeline of it.
            let parsing = ParseContext::default();
            let filter = Matcher::parse_scoped(&asked.filter, &parsing, &asked.variables.scope)?;
            asked.check_natural()?;
            projection(asked, &parsing, &filter)?;
            let aggregation = asked.aggregation()?;
            return aggregate::open(call, time, target, aggregation);
        }
    }
    let (ns, reading, used) = reading(call, asked, target, time)?;
    let filled = first_batch(call, ns, reading, &first);
    // What is tried again counts once.
    if let Some((collection, names)) = used
        && !call.leash.as_ref().is_some_and(|leash| leash.is_broken())
    {
        call.node().index_use.note(collection, names);
    }
    filled
}

/// What is read, and the collection with the indexes that a plan uses.
type Opened = (Namespace, Box<dyn Reading>, Option<(Uuid, Vec<String>)>);

fn reading(call: &Call, asked: &Asked, target: &Target, time: ReadTime) -> Result<Opened, Failure> {
    let view = call.node().store()?.view(time.at)?;
    let Some(collection) = target.collection(&view)? else {
        return absent(call, asked, target).map(|(ns, reading)| (ns, reading, None));
    };
    let query = Prepared::new(asked, &collection)?;
    if asked.tailable && collection.capped().is_none() {
        let text = format!(
            "error processing query: ns={} tailable cursor requested on non capped collection",
            collection.ns()
        );
        return Err(Failure::said(ErrorCode::BadValue, text));
    }
    let ns = collection.ns().clone();
    let uuid = collection.uuid();
    if asked.tailable || asked.resume_token {
        let options = NaturalOptions {
            uuid,
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
        return Ok((ns, Box::new(NaturalReading::open(call, options)?), None));
    }
    let surroundings = query.surroundings(asked, call);
    let mut context = surroundings.context(call, None);
    source::with_others(&mut context, &view);
    let source = CollectionSource::new(view, collection)?;
    let request = query.with_hint(asked, call.node(), &source)?;
    let (mut pipeline, chosen) = planner::plan(request, &source, &context)?;
    let used = index_use::names(&chosen.access, source.indexes());
    if asked.is_noted() || pipeline.carries_scores() {
        pipeline.push(Box::new(Reveal {
            projection: query.projection,
            record_id: asked.show_record_id,
            key: asked.return_key.then(|| asked.sort_keys()),
        }));
    } else {
        pipeline.extend(query.projection.map(Project));
    }
    let reading = QueryReading::new(Some(uuid), time, pipeline, surroundings);
    Ok((ns, Box::new(reading), Some((uuid, used))))
}

/// A collection that is not there is empty; by UUID it is an error. Node documents are read here too.
fn absent(
    call: &Call,
    asked: &Asked,
    target: &Target,
) -> Result<(Namespace, Box<dyn Reading>), Failure> {
    let ns = target.name()?;
    let parsing = ParseContext::default();
    let matcher = Matcher::parse_scoped(&asked.filter, &parsing, &asked.variables.scope)?;
    asked.check_natural()?;
    if matcher.text().is_some() {
        planner::check_text_request(
            &matcher,
            asked.natural_sort()?.is_some(),
            asked.hint_value().is_some(),
            false,
        )?;
        return Err(no_text_index(ns));
    }
    let docs = match ns.db() {
        "local" => local::documents(call.node().store()?, ns.coll(), call.profile())?,
        _ => Vec::new(),
    };
    let projection = projection(asked, &parsing, &matcher)?;
    let context = asked.surroundings(call).context(call, None);
    let mut shown = Vec::new();
    for doc in docs.into_iter().filter(|doc| matcher.matches(doc)) {
        shown.push(match &projection {
            Some(projection) => projection.apply(&doc, &context)?.into(),
            None => doc,
        });
    }
    Ok((ns.clone(), Box::new(ListReading::new(shown))))
}

/// mongod looks for the index of a search while it reads the filter: what stands behind it is not read then.
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

/// A search of text in a collection that is not there.
pub(super) fn no_text_index(ns: &Namespace) -> Failure {
    planner::no_text_index(&format!(" (no such collection '{ns}')")).into()
}

impl Asked {
    /// What its batches share.
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

/// A find that was understood.
pub(super) struct Prepared {
    collator: Option<Arc<Collator>>,
    pub(super) request: Request,
    pub(super) projection: Option<Projection>,
}

impl Prepared {
    /// What its batches share.
    pub(super) fn surroundings(&self, asked: &Asked, call: &Call) -> Surroundings {
        asked.surroundings(call).with_collator(self.collator.clone())
    }

    pub(super) fn new(asked: &Asked, collection: &Collection) -> Result<Self, Failure> {
        let collator = collation::of_collection(asked.collation.as_ref(), Some(collection))?;
        let natural = asked.natural()?;
        // A hint of natural order says how documents are reached, not how they are sorted.
        let natural_sort = asked.natural_sort()?;
        let sort = asked.sort.as_ref().filter(|_| natural_sort.is_none());
        let parsing = ParseContext { collator: collator.clone() };
        check_text_in_front(&asked.filter, collection)?;
        let filter = Matcher::parse_scoped(&asked.filter, &parsing, &asked.variables.scope)?;
        asked.check_natural()?;
        let projection = projection(asked, &parsing, &filter)?;
        // After both: of several errors theirs is the one that is said.
        let sort = sort
            .map(|sort| SortPattern::parse_find(sort, collator.clone(), &filter))
            .transpose()?;
        let hinted = asked.hint_value().is_some();
        planner::check_text_request(&filter, natural_sort.is_some(), hinted, asked.tailable)?;
        let (skip, limit) = (asked.skip, asked.limit);
        let needed = projection.as_ref().and_then(Projection::included_paths);
        let (noted, needed) = (asked.is_noted(), needed.filter(|_| !asked.is_noted()));
        let written = (asked.sort.clone(), asked.projection.clone());
        let request =
            Request { sort, natural, skip, limit, needed, noted, written, ..Request::new(filter) };
        Ok(Self { collator, request, projection })
    }

    /// The request with the index that the hint names, and with `min` and `max` as its ends.
    pub(super) fn with_hint(
        &self,
        asked: &Asked,
        node: &Node,
        source: &CollectionSource,
    ) -> Result<Request, Failure> {
        let mut request = self.request.clone();
        let (uuid, projection) = (source.collection().uuid(), asked.projection.as_deref());
        let (collator, indexes) = (self.collator.as_deref(), source.indexes());
        if node.index_filters.restrict(uuid, &mut request, projection, collator, indexes) {
            request.natural = asked.natural_sort()?;
            return Ok(request);
        }
        if request.natural.is_some() {
            return Ok(request);
        }
        if let Some(hint) = asked.hint_value().and_then(Value::from_raw) {
            let index = planner::resolve_hint(hint, source.indexes());
            let index = index.ok_or_else(|| planner::hint_not_found(&source.namespace()))?;
            request.hint = Some(index);
        }
        if asked.min.is_some() || asked.max.is_some() {
            let wrong = |code, text: &str| refused(&source.namespace(), code, text);
            let Some(hinted) = request.hint.and_then(|at| source.indexes().get(at)) else {
                let text = "When using min()/max() a hint of which index to use must be provided";
                return Err(wrong(291, text));
            };
            let collation = self.collator.as_ref().map(|own| own.spec());
            if hinted.collation.as_ref() != collation {
                return Err(wrong(51174, "The index chosen is not compatible with min/max"));
            }
            request.ends = Some(ends(asked, hinted, &wrong)?);
        }
        Ok(request)
    }
}

/// mongod's frame around what the planner does not accept.
fn refused(ns: &str, code: i32, text: &str) -> Failure {
    let text =
        format!("error processing query: ns={ns} planner returned error :: caused by :: {text}");
    Failure::said(ErrorCode::from_code(code), text)
}

fn ends(
    asked: &Asked,
    index: &IndexInfo,
    wrong: &dyn Fn(i32, &str) -> Failure,
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
            return Err(wrong(51174, "The index chosen is not compatible with min/max"));
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
            return Err(wrong(51175, text));
        }
    }
    Ok(WholeKeys { from, to })
}

//! count: how many documents match.

use bson::{RawArrayBuf, RawBsonRef, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, RawDoc, Timestamp};
use query::{
    exec::{Input, Pipeline},
    expression::Scope,
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
    source::Source,
};
use storage::View;

use super::{
    Command, Run, aggregate, collation, find, first_batch::while_running, sizes, target::Target,
    view_rows::ViewRows,
};
use crate::{
    blocking,
    context::{Call, Node, Outcome},
    error::Failure,
    index_use, local,
    read_time::ReadTime,
    source::CollectionSource,
    views,
};

pub(super) const COMMAND: Command = Command {
    name: "count",
    help: "Counts documents of a collection.",
    run: Run::Waiting(|call| blocking::reading_documents(call, is_held, run)),
    ..Command::READ
};

const KNOWN: &[&str] = &[
    "count",
    "query",
    "limit",
    "skip",
    "hint",
    "collation",
    "fields",
    "queryOptions",
    "encryptionInformation",
    "includeQueryStatsMetrics",
    "querySettings",
];

/// What is asked for.
pub(super) struct Asked {
    pub(super) query: Option<RawDoc>,
    pub(super) skip: u64,
    /// 0: no limit.
    pub(super) limit: u64,
    pub(super) collation: Option<RawDoc>,
    pub(super) hint: Option<RawDoc>,
}

impl Asked {
    pub(super) fn parse(call: &Call) -> Result<Self, Failure> {
        let fields = Fields::idl("count", &call.body);
        fields.only(KNOWN)?;
        let query = fields.optional("query")?.map(|query| query.document()).transpose()?;
        let collation = fields.optional("collation")?.map(|spec| spec.document()).transpose()?;
        // A negative limit means the same as its amount.
        let limit = match fields.get("limit")? {
            None => 0,
            Some(limit) if !is_number(limit.raw()) => {
                let text = "limit value is not a valid number";
                return Err(Failure::said(ErrorCode::BadValue, text));
            }
            Some(limit) => limit.safe_i64()?,
        };
        if !call.profile().typed_commands
            && fields.get("skip")?.is_some_and(|skip| !is_number(skip.raw()))
        {
            return Err(Failure::said(ErrorCode::BadValue, "skip value is not a valid number"));
        }
        let hint = find::hint(&fields)?;
        if let Some(RawBsonRef::Document(hint)) =
            hint.as_ref().and_then(|hint| hint.get("").ok().flatten())
        {
            planner::natural(hint, "hint")?;
        }
        Ok(Self {
            query: query.filter(|query| !query.is_empty()).map(RawDoc::from),
            skip: fields.optional("skip")?.map_or(Ok(0), |skip| skip.non_negative())?,
            limit: limit.unsigned_abs(),
            collation: collation.filter(|spec| !spec.is_empty()).map(RawDoc::from),
            hint,
        })
    }

    /// The query as the planner takes it.
    pub(super) fn request(
        &self,
        node: &Node,
        source: &CollectionSource,
    ) -> Result<Request, Failure> {
        let collator =
            collation::of_collection(self.collation.as_ref(), Some(source.collection()))?;
        let empty = RawDoc::from(rawdoc! {});
        let query = self.query.as_ref().unwrap_or(&empty);
        let parsing = ParseContext { collator: collator.clone() };
        let scope = Scope::of_release(node.profile().release);
        let filter = Matcher::parse_scoped(query, &parsing, &scope)?;
        planner::check_text_request(&filter, false, self.hint.is_some(), false)?;
        let mut request = Request::new(filter);
        request.counts = true;
        request.limit = (self.limit > 0).then(|| self.limit.saturating_add(self.skip));
        let hint = self.hint.as_ref();
        aggregate::with_hint(node, &mut request, hint, collator.as_deref(), source)?;
        Ok(request)
    }

    fn cut(&self, all: u64) -> u64 {
        let rest = all.saturating_sub(self.skip);
        if self.limit > 0 { rest.min(self.limit) } else { rest }
    }
}

fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_)
    )
}

/// How many there are in all is known without a look at them.
fn is_held(call: &Call, view: &View, until: Timestamp) -> Result<bool, Failure> {
    Ok(Asked::parse(call)?.query.is_some() && Target::parse(call)?.is_held(view, until)?)
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let asked = Asked::parse(call)?;
    let target = Target::parse(call)?;
    let view = call.node().store()?.view(time.at)?;
    let all = match target.collection(&view)? {
        None if views::exists(&view, target.name()?)? => of_view(call, &view, &target, &asked)?,
        None => of_local(call, &target, asked.query.as_ref())?,
        Some(collection) if asked.query.is_none() && asked.hint.is_none() => {
            // No text is compared; but what is no collation is refused all the same.
            collation::of_collection(asked.collation.as_ref(), Some(&collection))?;
            view.count(&collection)?
        }
        Some(collection) => {
            let ns = collection.ns().clone();
            let source = CollectionSource::new(view, collection)?;
            let mut context = blocking::query_context(call, None);
            let own = Some(source.collection());
            context.collator = collation::of_collection(asked.collation.as_ref(), own)?;
            let request = asked.request(call.node(), &source)?;
            let (mut pipeline, chosen) = planner::plan(request, &source, &context)?;
            let uuid = source.collection().uuid();
            call.node().index_use.note(uuid, index_use::names(&chosen.access, source.indexes()));
            count_all(&mut pipeline, &mut Input::new(&source, &context))
                .map_err(|failure| while_running(failure, call, &ns))?
        }
    };
    Ok(rawdoc! { "n": sizes::number(asked.cut(all)) }.into())
}

fn count_all(pipeline: &mut Pipeline, input: &mut Input<'_>) -> Result<u64, Failure> {
    let mut n = 0;
    while pipeline.next(input)?.is_some() {
        n += 1;
    }
    Ok(n)
}

fn of_view(call: &Call, view: &View, target: &Target, asked: &Asked) -> Result<u64, Failure> {
    let mut stages = RawArrayBuf::new();
    if let Some(query) = &asked.query {
        stages.push(find::stage_of(cstr!("$match"), RawBsonRef::Document(query)));
    }
    let mut rows = ViewRows::open(
        call,
        view,
        target,
        (asked.collation.as_ref(), asked.hint.as_ref()),
        stages,
    )?;
    let mut n = 0;
    rows.each(|_| {
        n += 1;
        Ok(())
    })?;
    Ok(n)
}

fn of_local(call: &Call, target: &Target, query: Option<&RawDoc>) -> Result<u64, Failure> {
    let ns = target.name()?;
    let filter = query.map(|query| Matcher::parse(query, &ParseContext::default())).transpose()?;
    if ns.db() != "local" {
        return Ok(0);
    }
    let store = call.node().store()?;
    if target.is_oplog() {
        let Some(filter) = filter else { return Ok(store.oplog().applied_extent()?.1) };
        let mut n = 0;
        for item in store.oplog().scan(std::ops::Bound::Unbounded, storage::Direction::Forward) {
            blocking::check(call, None)?;
            n += u64::from(filter.matches(&item?.1));
        }
        return Ok(n);
    }
    let docs = local::documents(store, ns.coll(), call.profile())?;
    let fits = |doc: &&RawDoc| filter.as_ref().is_none_or(|filter| filter.matches(doc));
    u64::try_from(docs.iter().filter(fits).count())
        .map_err(|_| Failure::said(ErrorCode::Overflow, "too many documents"))
}

//! count: how many documents match.

use bson::rawdoc;
use protocol::{ErrorCode, Fields, RawDoc};
use query::{
    exec::Input,
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
};

use super::{Api, Auth, Command, On, OpClass, Run, Waiting, sizes, target::Target, views};
use crate::{
    auth::action::action,
    blocking,
    context::{Call, Outcome},
    error::Failure,
    local,
    read_time::{self, ReadTime},
    source::CollectionSource,
};

pub(super) const COMMAND: Command = Command {
    name: "count",
    help: "Counts documents of a collection.",
    auth: Auth::Collection(action("find")),
    on: On::Readable,
    api: Api::V1,
    takes_concerns: true,
    class: Some(OpClass::Command),
    run: Run::Waiting(|call| Box::pin(run(call)) as Waiting),
    ..Command::DEFAULT
};

async fn run(call: Call) -> Outcome {
    let time = read_time::resolve(&call, call.node().store()?).await?;
    let inner = call.clone();
    blocking::run(&call, move || count(&inner, time)).await
}

fn count(call: &Call, time: ReadTime) -> Outcome {
    let fields = Fields::idl("count", &call.body);
    let target = Target::parse(call)?;
    let query = fields.optional("query")?.map(|query| query.document()).transpose()?;
    let query = query.filter(|query| !query.is_empty()).map(RawDoc::from);
    let skip = fields.optional("skip")?.map_or(Ok(0), |skip| skip.non_negative())?;
    // A negative limit means the same as its amount.
    let limit = fields.optional("limit")?.map_or(Ok(0), |limit| limit.safe_i64())?.unsigned_abs();
    let view = call.node().store()?.view(time.at)?;
    let all = match (target.collection(&view)?, &query) {
        (None, _) => {
            views::refuse(&view, target.name()?)?;
            count_local(call, &target, query.as_ref())?
        }
        (Some(collection), None) => view.count(&collection)?,
        (Some(collection), Some(query)) => {
            let collator = collection.collator().map(|own| {
                query::collation::Collator::new(own.spec().clone()).map(std::sync::Arc::new)
            });
            let filter = Matcher::parse(query, &ParseContext { collator: collator.transpose()? })?;
            let source = CollectionSource::new(view, collection)?;
            let context = blocking::query_context(call, None);
            let mut request = Request::new(filter);
            request.limit = (limit > 0).then(|| limit.saturating_add(skip));
            let (mut pipeline, _) = planner::plan(request, &source, &context)?;
            let mut input = Input::new(&source, &context);
            let mut n = 0;
            while pipeline.next(&mut input)?.is_some() {
                n += 1;
            }
            n
        }
    };
    let rest = all.saturating_sub(skip);
    let n = if limit > 0 { rest.min(limit) } else { rest };
    Ok(rawdoc! { "n": sizes::number(n) }.into())
}

fn count_local(call: &Call, target: &Target, query: Option<&RawDoc>) -> Result<u64, Failure> {
    let ns = target.name()?;
    if ns.db() != "local" {
        return Ok(0);
    }
    let store = call.node().store()?;
    let filter = query.map(|query| Matcher::parse(query, &ParseContext::default())).transpose()?;
    if target.is_oplog() {
        let Some(filter) = filter else { return Ok(store.oplog().count()) };
        let mut n = 0;
        for item in store.oplog().scan(std::ops::Bound::Unbounded, storage::Direction::Forward) {
            blocking::check(call, None)?;
            n += u64::from(filter.matches(&item?.1));
        }
        return Ok(n);
    }
    let docs = local::documents(store, ns.coll())?;
    let fits = |doc: &&RawDoc| filter.as_ref().is_none_or(|filter| filter.matches(doc));
    u64::try_from(docs.iter().filter(fits).count())
        .map_err(|_| Failure::said(ErrorCode::Overflow, "too many documents"))
}

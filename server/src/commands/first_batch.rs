//! The first batch of a cursor.

use protocol::Namespace;

use crate::{
    auth::pipeline,
    batch::{BatchEnd, BatchWriter},
    context::{Call, Outcome},
    cursors::{Cursor, Filled, Reading},
    error::Failure,
};

/// mongod's size of a first batch that was not asked for.
pub(super) const FIRST_BATCH: usize = 101;

/// How a cursor begins.
#[derive(Debug, Clone, Default)]
pub(super) struct First {
    /// Documents of the first batch.
    pub(super) size: usize,
    /// Documents in all.
    pub(super) limit: Option<u64>,
    /// There is no second batch.
    pub(super) single: bool,
    /// It does not end of itself when it is idle.
    pub(super) no_timeout: bool,
    /// It waits at the end for more.
    pub(super) tailable: bool,
    /// A getMore at the end waits a while.
    pub(super) await_data: bool,
    /// A pipeline runs, whatever the command: a find on a view is one.
    pub(super) aggregates: bool,
}

/// Fills the first batch of a cursor, and keeps it if there is more.
pub(super) fn first_batch(
    call: &Call,
    ns: Namespace,
    mut reading: Box<dyn Reading>,
    first: &First,
) -> Outcome {
    let mut batch = BatchWriter::first(&call.node().reply_buffers);
    let mut filled = match first.size {
        0 => Filled::More,
        size => reading.fill(call, &mut batch, size).map_err(|e| {
            let name = if first.aggregates { "aggregate" } else { &call.name };
            while_running_as(name, e, call, &ns)
        })?,
    };
    let whole = first.limit.is_some_and(|limit| batch.count() as u64 >= limit);
    if whole || first.single || filled == Filled::AtEnd && !first.tailable {
        filled = Filled::Exhausted;
    }
    let remarks = reading.remarks();
    let node = call.node();
    let id = if filled == Filled::Exhausted { 0 } else { node.cursors.new_id() };
    let end = BatchEnd {
        id,
        ns: ns.as_str(),
        resume_token: remarks.resume_token,
        at_cluster_time: remarks.at_cluster_time,
    };
    let returned = batch.count() as u64;
    let body = batch.finish(&end)?;
    if id != 0 {
        let cursor = Cursor {
            id,
            ns,
            session: call.lsid,
            owners: call.who.names(),
            needs: pipeline::of_cursor(call)?.into(),
            no_timeout: first.no_timeout,
            tailable: first.tailable,
            await_data: first.await_data,
            returned,
            reading,
        };
        node.cursors.keep(Box::new(cursor), std::time::Instant::now());
    }
    Ok(body.into())
}

/// mongod says in what an error came up while documents were read.
pub(super) fn while_running(failure: Failure, call: &Call, ns: &Namespace) -> Failure {
    while_running_as(&call.name, failure, call, ns)
}

fn while_running_as(name: &str, failure: Failure, call: &Call, ns: &Namespace) -> Failure {
    match failure {
        Failure::Query(mut error) => {
            error.message = format!("{}{}", during(name, call, ns), error.message);
            Failure::Query(error)
        }
        Failure::OnPrimary { code, message, details } => {
            let message = format!("{}{message}", during(name, call, ns));
            Failure::OnPrimary { code, message, details }
        }
        other => other,
    }
}

fn during(name: &str, call: &Call, ns: &Namespace) -> String {
    let names_collection = call.profile().executor_errors_name_collection;
    let what = match name {
        "aggregate" if names_collection => format!("aggregate command on namespace: {ns}"),
        "aggregate" if !call.profile().aggregate_errors_name_executor => return String::new(),
        "aggregate" => return "PlanExecutor error during aggregation :: caused by :: ".to_owned(),
        "count" | "distinct" if names_collection => format!("{name} command on namespace: {ns}"),
        "count" => return String::new(),
        name if names_collection && name != "getMore" => format!("{name} command: {ns}"),
        "getMore" => "getMore".to_owned(),
        name => format!("{name} command"),
    };
    format!("Executor error during {what} :: caused by :: ")
}

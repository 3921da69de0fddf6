//! The first batch of a cursor.

use protocol::{ErrorCode, Namespace};

use crate::{
    auth::pipeline,
    context::{Call, Outcome},
    error::Failure,
    read::{
        batch::{BatchEnd, BatchWriter},
        cursors::{Cursor, Filled, Reading},
    },
};

/// mongod's default size of a first batch.
pub(crate) const FIRST_BATCH: usize = 101;

/// How a cursor begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct First {
    /// Number of documents in the first batch.
    pub(crate) size: usize,
    /// Maximum number of documents in all.
    pub(crate) limit: Option<u64>,
    /// There is only one batch.
    pub(crate) single: bool,
    /// It has no idle timeout.
    pub(crate) no_timeout: bool,
    /// It stays open at the end and waits for more.
    pub(crate) tailable: bool,
    /// A getMore at the end waits for some time.
    pub(crate) await_data: bool,
    /// The read is a pipeline, whatever the command: a find on a view is one.
    pub(crate) aggregates: bool,
}

/// Fills the first batch of a cursor by `fill`, and stores the cursor if there is more.
pub(crate) fn first_batch<R: Reading + 'static>(
    call: &Call,
    ns: Namespace,
    mut reading: R,
    first: &First,
    fill: impl FnOnce(&mut R, &mut BatchWriter, usize) -> Result<Filled, Failure>,
) -> Outcome {
    let mut batch = BatchWriter::first(&call.node().reply_buffers);
    let mut filled = match first.size {
        0 if !first.tailable => Filled::More,
        size => fill(&mut reading, &mut batch, size).map_err(|e| {
            let name = if first.aggregates { "aggregate" } else { &call.name };
            while_running_as(name, e, call, &ns)
        })?,
    };
    let whole = first.limit.is_some_and(|limit| batch.count() as u64 >= limit);
    if !first.tailable && (whole || first.single || filled == Filled::AtEnd) {
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
            reading: Box::new(reading),
        };
        node.cursors.keep(Box::new(cursor), std::time::Instant::now());
    }
    Ok(body.into())
}

/// Adds mongod's prefix for an error that occurred during execution.
pub(crate) fn while_running(failure: Failure, call: &Call, ns: &Namespace) -> Failure {
    while_running_as(&call.name, failure, call, ns)
}

fn while_running_as(name: &str, failure: Failure, call: &Call, ns: &Namespace) -> Failure {
    match failure {
        // This error is detected before execution continues, so it gets no prefix.
        Failure::Query(error) if error.code == ErrorCode::CappedPositionLost => {
            Failure::Query(error)
        }
        Failure::Query(mut error) => {
            error.message = format!("{}{}", during(name, call, ns.as_str()), error.message);
            Failure::Query(error)
        }
        Failure::OnPrimary { code, message, details } => {
            let message = format!("{}{message}", during(name, call, ns.as_str()));
            Failure::OnPrimary { code, message, details }
        }
        other => other,
    }
}

/// The prefix of the command's execution errors.
pub(crate) fn running_prefix(call: &Call, ns: &str) -> String {
    during(&call.name, call, ns)
}

fn during(name: &str, call: &Call, ns: &str) -> String {
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

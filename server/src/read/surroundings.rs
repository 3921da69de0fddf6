//! The environment of a query: time, variables, spill files, other collections, interruption.

use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use protocol::ErrorCode;
use query::{QueryError, collation::Collator, context::Context, value::OwnedValue};
use storage::View;

use super::{others::Others, spill::DiskSpill};
use crate::{context::Call, shutdown::Phase};

/// What stays the same for all batches of a query.
#[derive(Debug, Clone)]
pub struct Surroundings {
    now: i64,
    cluster_time: Option<protocol::Timestamp>,
    variables: Vec<OwnedValue>,
    spills: bool,
    collator: Option<Arc<Collator>>,
}

impl Surroundings {
    /// From a command, with the values of its `let`.
    pub fn new(call: &Call, variables: Vec<OwnedValue>, spills: bool) -> Self {
        Self {
            now: bson::DateTime::now().timestamp_millis(),
            cluster_time: Some(call.node().cluster_time()).filter(|ts| !ts.is_null()),
            variables,
            spills,
            collator: None,
        }
    }

    /// Adds a collation for expressions.
    #[must_use]
    pub(crate) fn with_collator(mut self, collator: Option<Arc<Collator>>) -> Self {
        self.collator = collator;
        self
    }

    /// The context of one batch; interruption depends on the command that requests the batch.
    pub fn context(&self, call: &Call) -> Context {
        self.make_context(call, None)
    }

    /// Like [`Self::context`], with access to the other collections of a view.
    pub(crate) fn context_over(&self, call: &Call, view: &View) -> Context {
        self.make_context(call, Some(view))
    }

    fn make_context(&self, call: &Call, view: Option<&View>) -> Context {
        let mut context = Context::new(self.now, rand::random());
        context.release = call.profile().release;
        context.cluster_time = self.cluster_time;
        context.variables.clone_from(&self.variables);
        context.collator.clone_from(&self.collator);
        if self.spills
            && let Ok(store) = call.node().store()
        {
            context.spill = Some(Rc::new(DiskSpill::below(store.dbpath())));
        }
        let call = Rc::new(call.clone());
        if let Some(view) = view {
            context.collections = Some(Rc::new(Others::new(&call, view)));
        }
        context.interrupt = Some(Rc::new(move || check(&call)));
        context
    }
}

/// The context of a query without variables that runs at once.
pub(crate) fn query_context(call: &Call) -> Context {
    Surroundings::new(call, Vec::new(), false).context(call)
}

/// Checks whether the command was interrupted.
pub fn check(call: &Call) -> Result<(), QueryError> {
    if call.abandoned.load(Ordering::Relaxed) {
        return Err(QueryError::new(ErrorCode::ClientDisconnect, "operation was interrupted"));
    }
    if call.leash.as_ref().is_some_and(|leash| !leash.holds()) {
        return Err(QueryError::new(ErrorCode::Interrupted, "this takes a thread of its own"));
    }
    if call.operation.is_killed() {
        return Err(QueryError::new(call.operation.killed_by(), "operation was interrupted"));
    }
    if call.max_time.is_some_and(|max| call.started.elapsed() > max) {
        return Err(QueryError::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
    }
    if call.cursor.is_some_and(|id| call.node().cursors.is_killed(id)) {
        return Err(QueryError::new(ErrorCode::CursorKilled, "operation was interrupted"));
    }
    if call.node().shutdown.phase() == Phase::Ending {
        let text = "interrupted at shutdown";
        return Err(QueryError::new(ErrorCode::InterruptedAtShutdown, text));
    }
    Ok(())
}

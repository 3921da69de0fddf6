//! Ends what a rollback invalidates: user operations, cursors, connections and pinned timestamps.
//!
//! K1 Our state is ROLLBACK before this runs. Later operations are refused, and earlier ones are in the list of
//!    operations and are killed here. So nobody reads while documents are restored.
//! K2 Connections whose hello had `hangUpOnStepDown: false` stay open, such as those of other members. Their reads
//!    fail with an error.

use std::sync::{Arc, OnceLock, Weak};

use protocol::{ErrorCode, Timestamp};
use repl::{Interrupted, Outside, Patience, RollbackSettings};

use crate::{
    commands::{self, On},
    context::Node,
    operations::Operation,
    parameters::Parameters,
};

/// The interface from replication to the server.
pub(crate) struct Surroundings {
    parameters: Arc<Parameters>,
    /// Set when the server starts; before that there are no clients.
    node: OnceLock<Weak<Node>>,
}

impl Surroundings {
    pub(crate) fn new(parameters: Arc<Parameters>) -> Self {
        Self { parameters, node: OnceLock::new() }
    }

    /// Called when the server starts.
    pub(crate) fn serve(&self, node: &Arc<Node>) {
        // `set` cannot fail: the start calls this once.
        let _ = self.node.set(Arc::downgrade(node));
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }
}

impl Outside for Surroundings {
    fn patience(&self) -> Patience {
        self.parameters.initial_sync_patience()
    }

    fn rollback_settings(&self) -> RollbackSettings {
        self.parameters.rollback()
    }

    fn rollback_begins(&self) -> Interrupted {
        self.node().map_or_else(Interrupted::default, |node| node.begin_rollback())
    }

    fn past_is_lost(&self, after: Timestamp) {
        if let Some(node) = self.node() {
            node.pins.past_is_lost(after);
        }
    }
}

impl Node {
    fn begin_rollback(&self) -> Interrupted {
        self.pins.rollback_begins();
        self.cursors.end_by_rollback();
        // Before operations are killed, so that a connection that is being closed sends no reply.
        self.hang_ups.send_modify(|times| *times += 1);
        let mut interrupted = Interrupted::default();
        for operation in self.operations.list() {
            if reads(&operation) {
                self.operations.interrupt(operation.id, ErrorCode::InterruptedDueToReplStateChange);
                interrupted.killed += 1;
            } else {
                interrupted.running += 1;
            }
        }
        *self.metrics.rollback.lock() = Some(interrupted);
        interrupted
    }
}

/// True for operations that read documents. Commands of members and operators are answered in every state.
fn reads(operation: &Operation) -> bool {
    let name = operation.body.as_raw().iter().next().and_then(Result::ok);
    let command = name.and_then(|(name, _)| commands::find(name.as_str()));
    command.is_some_and(|(_, command)| matches!(command.on, On::Readable | On::Serving))
}

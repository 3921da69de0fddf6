//! The end of the server, in two steps.
//!
//! A member of a set first *quiesces*: hello answers that the node is going down, so that drivers leave it,
//! while commands already under way finish. Then it *ends*: connections are closed and the process leaves.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not in sight.
    Running,
    /// Until this moment new clients are told to go elsewhere.
    Quiescing {
        /// When it ends.
        until: Instant,
    },
    /// Connections are closed.
    Ending,
}

/// Tells everybody how far the end has come.
#[derive(Debug)]
pub struct Shutdown(watch::Sender<Phase>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Running))
    }
}

impl Shutdown {
    /// How far it is.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Begins the end. A quiesce of zero goes straight to the second step. Later calls change nothing.
    pub fn begin(&self, quiesce: Duration) {
        self.0.send_if_modified(|phase| {
            if *phase != Phase::Running {
                return false;
            }
            *phase = if quiesce.is_zero() {
                Phase::Ending
            } else {
                Phase::Quiescing { until: Instant::now() + quiesce }
            };
            true
        });
    }

    /// The second step.
    pub fn end(&self) {
        self.0.send_replace(Phase::Ending);
    }

    /// Wakes at every step.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }

    /// Returns when connections are to be closed.
    pub async fn ended(&self) {
        let mut phases = self.watch();
        // The sender lives as long as `self`.
        let _ = phases.wait_for(|phase| *phase == Phase::Ending).await;
    }

    /// Returns when the end has begun, with its phase.
    pub async fn begun(&self) -> Phase {
        let mut phases = self.watch();
        phases
            .wait_for(|phase| *phase != Phase::Running)
            .await
            .map_or(Phase::Ending, |phase| *phase)
    }
}

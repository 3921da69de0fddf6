//! The shutdown of the server, in two steps.
//!
//! A member of a set first *quiesces*: hello reports that the node is shutting down, so that drivers leave it, while
//! running commands finish. Then it *ends*: connections are closed and the process exits.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

/// The phase of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not shutting down.
    Running,
    /// Until this time new requests are refused, so that clients switch to another member.
    Quiescing {
        /// When it ends.
        until: Instant,
    },
    /// Connections are closed.
    Ending,
}

/// Publishes the phase.
#[derive(Debug)]
pub struct Shutdown(watch::Sender<Phase>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Running))
    }
}

impl Shutdown {
    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Starts the shutdown. With a quiesce time of zero it goes directly to the second step. Later calls have no
    /// effect.
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

    /// Starts the second step.
    pub fn end(&self) {
        self.0.send_replace(Phase::Ending);
    }

    /// Notified of every phase.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }

    /// Returns when connections are to be closed.
    pub async fn ended(&self) {
        let mut phases = self.watch();
        // The sender lives as long as `self`.
        let _ = phases.wait_for(|phase| *phase == Phase::Ending).await;
    }

    /// Returns the phase when the shutdown has begun.
    pub async fn begun(&self) -> Phase {
        let mut phases = self.watch();
        phases
            .wait_for(|phase| *phase != Phase::Running)
            .await
            .map_or(Phase::Ending, |phase| *phase)
    }
}

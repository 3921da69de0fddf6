//! What of the node outlives the process: config, vote, the version that we show.

use std::fmt;

use protocol::{Profile, RawDoc};

use crate::event::{LastVote, Persist};

/// Keeps the node's documents. `save` returns after the sync that made them durable.
pub trait Durable: Send + Sync + 'static {
    /// What was kept.
    fn load(&self) -> Result<Kept, DurableError>;

    /// Keeps something.
    fn save(&self, what: &Persist) -> Result<(), DurableError>;
}

/// What an earlier process kept.
#[derive(Clone, Default, Debug)]
pub struct Kept {
    /// The config as received.
    pub config: Option<RawDoc>,
    /// The last vote.
    pub last_vote: Option<LastVote>,
    /// The version shown.
    pub profile: Option<&'static Profile>,
    /// Rollback id: 1 in a new store, higher by one after every rollback and every end that was not clean.
    pub rbid: i32,
}

/// Why the node's documents cannot be read or kept. Nothing is tried again after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DurableError(pub String);

impl fmt::Display for DurableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the node's own documents cannot be kept: {}", self.0)
    }
}

impl std::error::Error for DurableError {}

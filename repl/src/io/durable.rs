//! The node's documents that survive the process: config, vote, the release that we show.

use std::fmt;

use protocol::{Profile, RawDoc};

use crate::event::{LastVote, Persist};

/// Stores the node's documents. `save` returns after they were synced.
pub trait Durable: Send + Sync + 'static {
    /// Loads the stored documents.
    fn load(&self) -> Result<Kept, DurableError>;

    /// Stores a document.
    fn save(&self, what: &Persist) -> Result<(), DurableError>;
}

/// What an earlier process stored.
#[derive(Clone, Default, Debug)]
pub struct Kept {
    /// The config as received.
    pub config: Option<RawDoc>,
    /// The last vote.
    pub last_vote: Option<LastVote>,
    /// The release that we show.
    pub profile: Option<&'static Profile>,
    /// Rollback id: 1 in a new store, incremented after every rollback and every unclean shutdown.
    pub rbid: i32,
}

/// Why the node's documents cannot be read or stored. There is no retry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DurableError(pub String);

impl fmt::Display for DurableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the node's own documents cannot be kept: {}", self.0)
    }
}

impl std::error::Error for DurableError {}

//! Follows a replica set.
//!
//! Two halves meet in [`event`]:
//! - the *control plane* decides: who we are in the set, in which state, whom we sync from, what we answer
//!   to peers, what the set may know of our positions. It is [`core`] (pure) and `io::runner` (its loop).
//! - the *data plane* moves documents: initial sync, fetcher, writer, applier.
//!
//! The server holds a [`Repl`]: it asks for the commands that only the node can answer ([`Repl::ask`] with a
//! [`Request`]), and reads [`Snapshot`]s for everything else: `hello`, metadata of replies, member state.
//! ```text
//!   server --Repl::ask(Request)--> runner: Node::on_event --> Answer        (bodies without ok, $replData, $clusterTime)
//!   server <--Repl::snapshot()---- replaced after each event; Repl::watch() wakes awaitable hello
//!   data plane --Repl::tell(DataEvent)--> runner --DataAction channel--> data plane
//! ```

pub mod core;
pub mod event;
pub mod io;
#[cfg(test)]
mod sim;

pub use crate::{
    core::{member_state::MemberState, profile::Profile, snapshot::Snapshot},
    event::{
        Answer, CommandError, DataAction, DataEvent, MemberSettings, Positions, Remedy, Request,
        SyncSource, TaskId,
    },
    io::handle::Repl,
};

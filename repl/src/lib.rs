//! Follows a replica set.
//!
//! Two halves meet in [`event`]:
//! - the *control plane* decides: who we are in the set, in which state, whom we sync from, what we answer
//!   to peers, what the set may know of our positions. It is [`core`] (pure) and [`io::runner`] (its loop).
//! - the *data plane* moves documents: initial sync, fetcher, writer, applier.
//!
//! [`io::runner::start`] gives a [`Repl`], the channel of [`DataAction`]s for the data plane, and how it connects.
//! The server holds the [`Repl`]:
//! ```text
//!   repl.ask(Request::Heartbeat(body)).await -> Answer      every replSet* command has its Request; the body as it came.
//!                                                           Ok: the reply without ok, $replData, $clusterTime; Err: code, errmsg
//!   repl.snapshot().hello(true)                             hello's part from topologyVersion to lastWrite (false: isMaster)
//!   repl.snapshot().repl_data(), .oplog_query_data()        if the request has $replData, $oplogQueryData
//!   repl.snapshot().rbid                                    replSetGetRBID (NotYetInitialized 94 while config is None)
//!   repl.snapshot().process_id                              _isSelf: {id: process_id}
//!   repl.snapshot().{state, positions, committed, stable}   gates, read concerns, operationTime
//!   repl.watch_topology()                                   wakes awaitable hello; repl.watch() wakes on everything
//!   repl.internal_client_said_hello(max)                    hello with internalClient: the set's version is learned from
//!                                                           the first peer. Until there is a config, answer such a hello
//!                                                           with maxWireVersion = the peer's own max.
//! ```
//! `topologyVersion` also belongs into NotWritablePrimary and NotPrimaryOrSecondary errors: `process_id`, `topology_counter`.

pub mod apply;
pub mod core;
pub mod event;
pub mod io;
#[cfg(test)]
mod sim;

pub use crate::{
    core::{
        initial_sync::Patience, member_state::MemberState, rollback::RollbackSettings,
        snapshot::Snapshot,
    },
    event::{
        Answer, CommandError, DataAction, DataEvent, MemberSettings, Positions, Remedy, Request,
        SyncSource, TaskId,
    },
    io::{
        data_plane::{DataPlane, Interrupted, Outside},
        handle::Repl,
        peer::Peer,
    },
};

//! The path from a read request to its first batch, and what is kept for later batches.
//!
//! ```text
//!   arguments (commands/*) --> moment --> Opened: one view, one source --> parse, hint, plan --> first batch
//!                                            ^                                                       |
//!                                            `--- a new view of the same subject <--- getMore <--- cursor
//! ```
//! R1 A command opens the store once. Everything that it parses, plans and reads for its first batch comes from that
//!    view, so a first batch cannot see another timestamp than its plan.
//! R2 Between two batches nothing of the store is kept open: a cursor keeps its [`opened::Subject`] and a position,
//!    and each batch opens the subject again.
//!
//! Other things to read (change streams, the past of a whole cluster) can be added as another [`opened::Subject`].

pub mod batch;
pub mod blocking;
pub(crate) mod collation;
pub mod cursors;
pub(crate) mod first_batch;
pub(crate) mod list_cursor;
pub mod moment;
pub(crate) mod natural_cursor;
pub(crate) mod opened;
mod oplog;
mod others;
pub(crate) mod query_cursor;
pub mod reply_buffers;
pub mod spill;
pub mod surroundings;
pub(crate) mod target;
pub mod views;

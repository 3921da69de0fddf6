//! Versioned tables: every key has one present version and the past versions within the history window.
//!
//! ```text
//!   ts   a      b      c                 current          history (by epoch of the stop time)
//!   40 | .      .      c40               a -> 30 a30      epoch 1: a stop 30 -> 10 a10
//!   30 | a30    x      .                 c -> 40 c40               b stop 30 -> 10 b10
//!   10 | a10    b10    .
//! ```
//! A read at 30 sees only a30: b is deleted, c does not exist yet. A read of the present uses only `current`.
//!
//! M1 The version of a key valid at T is the present one if its start <= T, else the one with the smallest stop > T,
//!    if its start <= T.
//! M2 The validity periods of a key's versions do not overlap. A version lists the starts of the last few versions
//!    before it, each of which ends where its successor starts: going back is a lookup by key, not a search.
//! M3 A batch writes at timestamps after everything applied before it, except commits of prepared transactions; no
//!    other write can have changed their keys since the prepare.
//! M4 An epoch always starts at a time later than every stop already stored.
//! M5 Versions that ended before `oldest` are never read; they may be removed at any time.

use std::ops::Bound;

pub(crate) use query::source::Direction;

use crate::engine::{Iter, Keyspace, Snapshot};

pub(crate) mod history;
pub(crate) mod low;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod version;
pub(crate) mod write;

pub(crate) use history::History;
pub(crate) use low::LowKeys;
pub(crate) use read::Reader;
pub(crate) use version::Version;
pub(crate) use write::Changes;

/// The rows of a keyspace between two bounds, in either direction.
pub(crate) fn walk(
    direction: Direction,
    snapshot: &dyn Snapshot,
    ks: Keyspace,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
) -> Iter {
    match direction {
        Direction::Forward => snapshot.range(ks, from, to),
        Direction::Backward => snapshot.range_back(ks, from, to),
    }
}

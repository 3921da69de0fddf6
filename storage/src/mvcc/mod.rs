//! Versioned tables: every key has one present version and the past ones that the window still holds.
//!
//! ```text
//!   ts   a      b      c                 current          history (by epoch of the stop time)
//!   40 | .      .      c40               a -> 30 a30      epoch 1: a stop 30 -> 10 a10
//!   30 | a30    x      .                 c -> 40 c40               b stop 30 -> 10 b10
//!   10 | a10    b10    .
//! ```
//! A read at 30 sees a30 only: b is deleted, c is not there yet. A read of the present touches `current` alone.
//!
//! M1 The version of a key that lives at T is the present one if its start <= T, else the one with the smallest
//!    stop > T, if its start <= T.
//! M2 The lives of a key's versions do not overlap. A version names the starts of the last few before it, each of
//!    which ends where the one after it starts: going back is one plain get, not a search.
//! M3 A batch writes at timestamps after everything applied before it, but for the commits of prepared
//!    transactions, whose keys nobody else can have touched since they were prepared.
//! M4 An epoch is only ever begun at a time later than every stop already stored.
//! M5 What lies below `oldest` is never read; it may vanish at any time.

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

/// The keys of a keyspace between two bounds, ascending or descending.
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

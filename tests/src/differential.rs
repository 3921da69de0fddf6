//! Sends the same random commands to a real primary and to our node, and compares the answers.
//!
//! ```text
//!   seed ── data        collections of every type, under indexes of every kind
//!     └─── case n ──── random ── filters, expressions, pipelines, commands
//!                         │
//!                       judge   documents byte for byte, errors by code and text; unspecified orders as sets
//!                         │
//!                      accepted  differences with a reason; each has an example that shows it still exists
//! ```
//! A case depends only on the seed and its number: `SEED=7 CASE=1234` runs and prints one case.

pub mod accepted;
pub mod commands;
pub mod data;
pub mod dates;
pub mod expressions;
pub mod filters;
pub mod joins;
pub mod judge;
pub mod operators;
pub mod pipelines;
pub mod places;
pub mod random;
pub mod series;
pub mod text;
pub mod windows;
pub mod wrong;

use bson::Document;

/// A command, and how its answers are compared.
#[derive(Clone, Debug)]
pub struct Case {
    /// The command to send.
    pub command: Document,
    /// How much of the answer's order is specified.
    pub order: Order,
}

/// How much of an answer's order is specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order is fully specified.
    Exact,
    /// Compare as a set: ties, natural order, the order of groups.
    Set,
    /// Compare only the number of results: a limit cuts an unspecified order.
    Count,
}

impl Order {
    /// The order after a limit or a skip.
    #[must_use]
    pub fn cut(self) -> Self {
        if self == Self::Exact { self } else { Self::Count }
    }

    /// [`Self::cut`] if `cut` is true.
    #[must_use]
    pub fn cut_if(self, cut: bool) -> Self {
        if cut { self.cut() } else { self }
    }
}

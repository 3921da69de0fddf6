//! The same random commands to a real primary and to our node: the same answers.
//!
//! ```text
//!   seed ── data        collections of every type, under indexes of every kind
//!     └─── case n ──── random ── filters, expressions, pipelines, commands
//!                         │
//!                       judge   documents byte for byte, errors by code and text; what mongod leaves open as sets
//!                         │
//!                      accepted  gaps with a reason; each shows by an example that it is still there
//! ```
//! A case depends on the seed and its number alone: `SEED=7 CASE=1234` runs one again and prints it.

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

/// A command, and how its answers compare.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is sent.
    pub command: Document,
    /// How far the order of the answer is determined.
    pub order: Order,
}

/// How far the order of an answer is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Exact,
    /// As a set: ties, natural order, the order of groups.
    Set,
    /// Only how many: a limit cuts an order that is open.
    Count,
}

impl Order {
    /// What a limit or a skip leaves of it.
    #[must_use]
    pub fn cut(self) -> Self {
        if self == Self::Exact { self } else { Self::Count }
    }

    /// The same, if there is one.
    #[must_use]
    pub fn cut_if(self, cut: bool) -> Self {
        if cut { self.cut() } else { self }
    }
}

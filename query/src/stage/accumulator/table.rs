//! The accumulators, one row each. Sorted by name, for binary search.

use super::Kind;
use crate::{Release, stage::window};

/// An accumulator of `$group`: everything that other code needs to know about it.
#[derive(Debug)]
pub(in crate::stage) struct Accumulator {
    pub(in crate::stage) name: &'static str,
    pub(super) kind: Kind,
    pub(super) takes: Takes,
    /// The first release that has it.
    pub(super) since: Release,
    /// Whether mongod's second execution engine (SBE) supports it.
    pub(in crate::stage) pushed: bool,
    /// How it works in a window; `None` if windows do not support it, or have a different function of that name.
    pub(in crate::stage) window: Option<window::Kind>,
}

/// The argument's form. The numbers are error codes if it is not an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// An expression.
    Expression,
    /// `{}`.
    Nothing,
    /// `{input, n}`.
    Several(i32),
    /// `{output, sortBy}`, and `n` for those that return several.
    Sorted(i32),
    /// `{input, p, method}`.
    Percentile(i32),
}

impl Accumulator {
    /// The accumulator with this name, whatever its release.
    pub(in crate::stage) fn named(name: &[u8]) -> Option<&'static Self> {
        let at = ACCUMULATORS.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok()?;
        ACCUMULATORS.get(at)
    }

    pub(in crate::stage) fn is_in(&self, release: Release) -> bool {
        release >= self.since
    }

    const fn since(mut self, release: Release) -> Self {
        self.since = release;
        self
    }

    const fn takes(mut self, takes: Takes) -> Self {
        self.takes = takes;
        self
    }

    const fn not_pushed(mut self) -> Self {
        self.pushed = false;
        self
    }

    const fn window(mut self, window: Option<window::Kind>) -> Self {
        self.window = window;
        self
    }
}

const fn row(name: &'static str, kind: Kind) -> Accumulator {
    let (takes, since, window) = (Takes::Expression, Release::OLDEST, Some(window::Kind::Other));
    Accumulator { name, kind, takes, since, pushed: true, window }
}

const fn top(name: &'static str, bottom: bool, single: bool) -> Accumulator {
    row(name, Kind::TopN { bottom, single }).takes(Takes::Sorted(5_788_001)).since(Release::V6_0)
}

const fn several(name: &'static str, kind: Kind, not_object: i32) -> Accumulator {
    row(name, kind).takes(Takes::Several(not_object)).since(Release::V6_0)
}

const fn percentile(name: &'static str, not_object: i32) -> Accumulator {
    let takes = Takes::Percentile(not_object);
    row(name, Kind::Percentile).takes(takes).since(Release::V7_0).not_pushed()
}

static ACCUMULATORS: &[Accumulator] = &[
    row("$addToSet", Kind::AddToSet).window(Some(window::Kind::Set)),
    row("$avg", Kind::Avg).window(Some(window::Kind::Avg)),
    top("$bottom", true, true),
    top("$bottomN", true, false),
    row("$concatArrays", Kind::ConcatArrays).since(Release::V8_1),
    row("$count", Kind::Sum).takes(Takes::Nothing).since(Release::V5_0),
    row("$first", Kind::First).window(None),
    several("$firstN", Kind::FirstN, 5_787_801),
    row("$last", Kind::Last).window(None),
    several("$lastN", Kind::LastN, 5_787_801),
    row("$max", Kind::Max).window(Some(window::Kind::Max)),
    several("$maxN", Kind::MaxN, 5_787_900),
    percentile("$median", 7_436_100),
    row("$mergeObjects", Kind::MergeObjects).window(None),
    row("$min", Kind::Min).window(Some(window::Kind::Min)),
    several("$minN", Kind::MinN, 5_787_900),
    percentile("$percentile", 7_429_703),
    row("$push", Kind::Push),
    row("$setUnion", Kind::SetUnion).since(Release::V8_1),
    row("$stdDevPop", Kind::StdDevPop).window(Some(window::Kind::StdDev { sample: false })),
    row("$stdDevSamp", Kind::StdDevSamp).window(Some(window::Kind::StdDev { sample: true })),
    row("$sum", Kind::Sum).window(Some(window::Kind::Sum)),
    top("$top", false, true),
    top("$topN", false, false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_name() {
        assert!(ACCUMULATORS.is_sorted_by_key(|row| row.name));
    }
}

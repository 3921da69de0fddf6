//! Which release of MongoDB a query is for: what came later is as unknown as it is there.
//!
//! 4.4, 5.0 and 8.2 are as servers of these releases answer; between them MongoDB's release notes tell when something
//! came.

/// A release by its first two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub i32, pub i32);

impl Release {
    /// The oldest that is known: what it has needs no mention.
    pub const OLDEST: Self = Self(4, 4);
    /// The newest that is known.
    pub const NEWEST: Self = Self(8, 2);

    pub(crate) fn has_stage(self, name: &[u8]) -> bool {
        self.has(STAGES, name)
    }

    pub(crate) fn has_accumulator(self, name: &[u8]) -> bool {
        self.has(ACCUMULATORS, name)
    }

    pub(crate) fn has_window_function(self, name: &[u8]) -> bool {
        self.has(ACCUMULATORS, name) && self.has(WINDOW_FUNCTIONS, name)
    }

    fn has(self, table: &[Since], name: &[u8]) -> bool {
        let at = table.binary_search_by(|(known, _)| known.as_bytes().cmp(name));
        at.ok().and_then(|at| table.get(at)).is_none_or(|(_, since)| self >= *since)
    }
}

impl Default for Release {
    fn default() -> Self {
        Self::NEWEST
    }
}

/// A name, and the release that it came with.
type Since = (&'static str, Release);

/// What is not here was there before 4.4. All tables are sorted by name.
const STAGES: &[Since] = &[
    ("$_internalUnpackBucket", Release(5, 0)),
    ("$_unpackBucket", Release(5, 0)),
    ("$changeStreamSplitLargeEvent", Release(7, 0)),
    ("$densify", Release(5, 1)),
    ("$fill", Release(5, 3)),
    ("$listCatalog", Release(6, 0)),
    ("$listClusterCatalog", Release(8, 1)),
    ("$listSampledQueries", Release(7, 0)),
    ("$listSearchIndexes", Release(7, 0)),
    ("$querySettings", Release(8, 0)),
    ("$queryStats", Release(7, 0)),
    ("$rankFusion", Release(8, 1)),
    ("$score", Release(8, 2)),
    ("$scoreFusion", Release(8, 2)),
    ("$search", Release(7, 0)),
    ("$searchMeta", Release(7, 0)),
    ("$setWindowFields", Release(5, 0)),
    ("$shardedDataDistribution", Release(6, 0)),
    ("$vectorSearch", Release(7, 0)),
];

const ACCUMULATORS: &[Since] = &[
    ("$bottom", Release(5, 2)),
    ("$bottomN", Release(5, 2)),
    ("$concatArrays", Release(8, 1)),
    ("$count", Release(5, 0)),
    ("$firstN", Release(5, 2)),
    ("$lastN", Release(5, 2)),
    ("$maxN", Release(5, 2)),
    ("$median", Release(7, 0)),
    ("$minN", Release(5, 2)),
    ("$percentile", Release(7, 0)),
    ("$setUnion", Release(8, 1)),
    ("$top", Release(5, 2)),
    ("$topN", Release(5, 2)),
];

/// Those that are no accumulators.
const WINDOW_FUNCTIONS: &[Since] =
    &[("$linearFill", Release(5, 3)), ("$locf", Release(5, 2)), ("$minMaxScaler", Release(8, 2))];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_by_name() {
        for table in [STAGES, ACCUMULATORS, WINDOW_FUNCTIONS] {
            assert!(table.is_sorted_by_key(|(name, _)| *name), "{table:?}");
        }
    }

    #[test]
    fn a_release_has_what_came_before_it() {
        assert!(
            Release(4, 4).has_stage(b"$lookup") && !Release(4, 4).has_stage(b"$setWindowFields")
        );
        assert!(Release(5, 0).has_stage(b"$setWindowFields") && !Release(5, 0).has_stage(b"$fill"));
        assert!(Release::NEWEST.has_stage(b"$fill"));
    }
}

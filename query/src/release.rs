//! Which release of MongoDB a query is for: what came later is as unknown as it is there.
//!
//! 4.4, 5.0 and 8.2 are as servers of these releases answer; between them MongoDB's release notes tell when something
//! came.

use protocol::Release;

pub(crate) fn has_stage(release: Release, name: &[u8]) -> bool {
    has(release, STAGES, name)
}

pub(crate) fn has_accumulator(release: Release, name: &[u8]) -> bool {
    has(release, ACCUMULATORS, name)
}

pub(crate) fn has_window_function(release: Release, name: &[u8]) -> bool {
    has(release, ACCUMULATORS, name) && has(release, WINDOW_FUNCTIONS, name)
}

fn has(release: Release, table: &[Since], name: &[u8]) -> bool {
    let at = table.binary_search_by(|(known, _)| known.as_bytes().cmp(name));
    at.ok().and_then(|at| table.get(at)).is_none_or(|(_, since)| release >= *since)
}

/// A name, and the release that it came with.
type Since = (&'static str, Release);

/// What is not here was there before 4.4. All tables are sorted by name.
const STAGES: &[Since] = &[
    ("$_internalUnpackBucket", Release::V5_0),
    ("$_unpackBucket", Release::V5_0),
    ("$changeStreamSplitLargeEvent", Release::V7_0),
    ("$densify", Release::V6_0),
    ("$fill", Release::V6_0),
    ("$listCatalog", Release::V6_0),
    ("$listClusterCatalog", Release::V8_1),
    ("$listSampledQueries", Release::V7_0),
    ("$listSearchIndexes", Release::V7_0),
    ("$querySettings", Release::V8_0),
    ("$queryStats", Release::V7_0),
    ("$rankFusion", Release::V8_1),
    ("$score", Release::V8_2),
    ("$scoreFusion", Release::V8_2),
    ("$search", Release::V7_0),
    ("$searchMeta", Release::V7_0),
    ("$setWindowFields", Release::V5_0),
    ("$shardedDataDistribution", Release::V6_0),
    ("$vectorSearch", Release::V7_0),
];

const ACCUMULATORS: &[Since] = &[
    ("$bottom", Release::V6_0),
    ("$bottomN", Release::V6_0),
    ("$concatArrays", Release::V8_1),
    ("$count", Release::V5_0),
    ("$firstN", Release::V6_0),
    ("$lastN", Release::V6_0),
    ("$maxN", Release::V6_0),
    ("$median", Release::V7_0),
    ("$minN", Release::V6_0),
    ("$percentile", Release::V7_0),
    ("$setUnion", Release::V8_1),
    ("$top", Release::V6_0),
    ("$topN", Release::V6_0),
];

/// Those that are no accumulators.
const WINDOW_FUNCTIONS: &[Since] =
    &[("$linearFill", Release::V6_0), ("$locf", Release::V6_0), ("$minMaxScaler", Release::V8_2)];

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
        assert!(has_stage(Release::V4_4, b"$lookup"));
        assert!(!has_stage(Release::V4_4, b"$setWindowFields"));
        assert!(has_stage(Release::V5_0, b"$setWindowFields"));
        assert!(!has_stage(Release::V5_0, b"$fill"));
        assert!(has_stage(Release::NEWEST, b"$fill"));
    }
}

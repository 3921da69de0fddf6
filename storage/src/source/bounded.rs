//! Scans the keys of an index that lie within bounds on several of its fields.
//!
//! ```text
//!   a in [2, 5], b in [7, 7]:   2,1  ->  seek 2,7   2,7 *   2,9  ->  seek past 2   3,4  ->  seek 3,7  ...
//! ```
//! As in mongod, a key out of bounds determines where the next key within bounds can be, and the scan seeks there.
//! All keys that were examined are counted, including those out of bounds.

use std::ops::Bound;

use query::{
    QueryError,
    planner::Interval,
    source::{BoundedEntry, BoundedWalk, Direction, Edge, IndexEntry},
};

use super::{CollectionSource, query_error};
use crate::{keystring, view::IndexScan};

/// After this many consecutive keys out of bounds, control returns to the caller, who decides whether to continue.
const PASSED_MAX: u64 = 128;

/// One end of an interval, as key bytes in scan order.
#[derive(Debug)]
struct End {
    bytes: Vec<u8>,
    inclusive: bool,
}

/// An interval of one field: where the scan enters it and where it leaves it.
#[derive(Debug)]
struct Stretch {
    start: End,
    end: End,
}

/// A scan within bounds.
pub(super) struct Bounded<'s> {
    source: &'s CollectionSource,
    index: usize,
    direction: Direction,
    /// For each field its intervals in scan order, and whether its bytes are inverted.
    fields: Vec<(Vec<Stretch>, bool)>,
    open: Option<IndexScan>,
    /// The next seek position.
    seek: Option<Seek>,
    /// Keys with this prefix are to be skipped.
    behind: Option<Vec<u8>>,
}

/// Number of keys with that prefix to step over before seeking past them: few keys share most values.
const STEPS_MAX: u32 = 4;

struct Seek {
    bytes: Vec<u8>,
    /// Include keys that begin with these bytes.
    inclusive: bool,
}

/// What to do with a key.
enum Verdict {
    Within,
    Seek(Seek),
    Over,
}

impl<'s> Bounded<'s> {
    pub(super) fn new(
        source: &'s CollectionSource,
        index: usize,
        bounds: &[Vec<Interval>],
        after: Option<&IndexEntry>,
        direction: Direction,
    ) -> Result<Self, QueryError> {
        let infos = source.infos.get(index).map_or(&[][..], |info| &info.fields);
        let mut fields = Vec::with_capacity(bounds.len());
        for (at, intervals) in bounds.iter().enumerate() {
            let descending = infos.get(at).is_some_and(|field| !field.ascending);
            let collator = source.collator_at(index, at);
            let end = |edge: &Edge| -> Result<End, QueryError> {
                let mut bytes = Vec::new();
                keystring::append(&mut bytes, edge.value.get(), descending, collator)
                    .map_err(query_error)?;
                Ok(End { bytes, inclusive: edge.inclusive })
            };
            let forward = descending == (direction == Direction::Backward);
            let mut stretches = Vec::with_capacity(intervals.len());
            for interval in intervals {
                let (low, high) = (end(&interval.low)?, end(&interval.high)?);
                let (start, end) = if forward { (low, high) } else { (high, low) };
                stretches.push(Stretch { start, end });
            }
            stretches.sort_by(|a, b| {
                let order = a.start.bytes.cmp(&b.start.bytes);
                let order = if direction == Direction::Forward { order } else { order.reverse() };
                // An interval that includes its start value comes before one that excludes it.
                order.then(b.start.inclusive.cmp(&a.start.inclusive))
            });
            fields.push((stretches, descending));
        }
        let (open, seek, behind) = (None, None, None);
        let mut walk = Self { source, index, direction, fields, open, seek, behind };
        walk.seek = match after {
            Some(entry) => Some(Seek { bytes: source.row(index, entry), inclusive: false }),
            None => walk.first(Vec::new(), 0),
        };
        Ok(walk)
    }

    /// The first position within the bounds of the fields from `from` on, after the given prefix.
    fn first(&self, mut bytes: Vec<u8>, from: usize) -> Option<Seek> {
        for (stretches, _) in self.fields.iter().skip(from) {
            let start = &stretches.first()?.start;
            bytes.extend_from_slice(&start.bytes);
            if !start.inclusive {
                return Some(Seek { bytes, inclusive: false });
            }
        }
        Some(Seek { bytes, inclusive: true })
    }

    /// True if a position comes before another in scan direction.
    fn before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.direction == Direction::Forward { a < b } else { a > b }
    }

    fn judge(&self, key: &[u8]) -> Verdict {
        let mut at = 0;
        // Length of the key prefix that can stay unchanged while a later key is still within the bounds.
        let mut open = 0;
        for (field, (stretches, descending)) in self.fields.iter().enumerate() {
            let rest = key.get(at..).unwrap_or_default();
            let past = |s: &Stretch| {
                if rest.starts_with(&s.end.bytes) {
                    !s.end.inclusive
                } else {
                    self.before(&s.end.bytes, rest)
                }
            };
            // The intervals are in scan order and do not overlap.
            let next = stretches.partition_point(past);
            let Some(stretch) = stretches.get(next) else {
                // This field has no later value: continue with the next value of the last field before it that has
                // one.
                return match key.get(..open).filter(|prefix| !prefix.is_empty()) {
                    Some(prefix) => {
                        Verdict::Seek(Seek { bytes: prefix.to_vec(), inclusive: false })
                    }
                    None => Verdict::Over,
                };
            };
            let at_start = rest.starts_with(&stretch.start.bytes);
            let reached = match at_start {
                true => stretch.start.inclusive,
                false => self.before(&stretch.start.bytes, rest),
            };
            if !reached {
                let prefix = key.get(..at).unwrap_or_default();
                return self.ahead(prefix, field, stretch);
            }
            let Some(len) = keystring::component_len(rest, *descending) else {
                return Verdict::Within;
            };
            let last = next + 1 == stretches.len() && rest.starts_with(&stretch.end.bytes);
            at += len;
            if !last {
                open = at;
            }
        }
        Verdict::Within
    }

    /// Seeks to the start of an interval of a field, and of the first intervals of the fields after it.
    fn ahead(&self, prefix: &[u8], field: usize, stretch: &Stretch) -> Verdict {
        let bytes = [prefix, &stretch.start.bytes].concat();
        let seek = match stretch.start.inclusive {
            true => self.first(bytes, field + 1),
            false => Some(Seek { bytes, inclusive: false }),
        };
        seek.map_or(Verdict::Over, Verdict::Seek)
    }

    fn go_to(&mut self, seek: &Seek) {
        let bound = match seek.inclusive {
            true => Bound::Included(seek.bytes.as_slice()),
            false => Bound::Excluded(seek.bytes.as_slice()),
        };
        let ends = match self.direction {
            Direction::Forward => (bound, Bound::Unbounded),
            Direction::Backward => (Bound::Unbounded, bound),
        };
        self.open = self.source.entries(self.index, ends, self.direction);
    }

    fn advance(&mut self) -> Result<Option<BoundedEntry>, QueryError> {
        let (mut passed, mut steps) = (0, 0);
        loop {
            if let Some(seek) = self.seek.take() {
                self.go_to(&seek);
            }
            let Some(found) = self.open.as_mut().and_then(Iterator::next) else {
                self.open = None;
                return Ok((passed > 0).then_some(BoundedEntry::last(passed)));
            };
            let entry = found.map_err(query_error)?;
            if let Some(behind) = self.behind.take_if(|behind| entry.key.starts_with(behind)) {
                steps += 1;
                match steps < STEPS_MAX {
                    true => self.behind = Some(behind),
                    false => self.seek = Some(Seek { bytes: behind, inclusive: false }),
                }
                continue;
            }
            self.behind = None;
            match self.judge(&entry.key) {
                Verdict::Within => return Ok(Some(BoundedEntry::found(entry, passed))),
                Verdict::Seek(seek) => self.seek = Some(seek),
                Verdict::Over => {
                    self.open = None;
                    return Ok(Some(BoundedEntry::last(passed + 1)));
                }
            }
            passed += 1;
            if passed == PASSED_MAX {
                return Ok(Some(BoundedEntry::none_yet(passed)));
            }
        }
    }
}

impl Iterator for Bounded<'_> {
    type Item = Result<BoundedEntry, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.open.is_none() && self.seek.is_none() {
            return None;
        }
        self.advance().transpose()
    }
}

impl BoundedWalk for Bounded<'_> {
    fn pass(&mut self, entry: &IndexEntry, fields: usize) {
        // No other entry has the same key in a unique index.
        let info = self.source.infos.get(self.index);
        if info.is_some_and(|info| info.unique && fields >= info.fields.len()) {
            return;
        }
        let mut at = 0;
        for (_, descending) in self.fields.iter().take(fields) {
            let rest = entry.key.get(at..).unwrap_or_default();
            // A component without an end extends to the end of the key.
            at += keystring::component_len(rest, *descending).unwrap_or(rest.len());
        }
        self.behind = Some(entry.key.get(..at).unwrap_or_default().to_vec());
    }
}

/// Bounds that cannot be scanned.
pub(super) struct Refused(pub(super) Option<QueryError>);

impl Iterator for Refused {
    type Item = Result<BoundedEntry, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Err)
    }
}

impl BoundedWalk for Refused {
    fn pass(&mut self, _: &IndexEntry, _: usize) {}
}

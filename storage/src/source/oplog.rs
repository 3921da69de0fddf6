//! Implements the query language's source for our oplog.

use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use protocol::{RawDoc, Timestamp};
use query::{
    QueryError,
    source::{
        AtHand, Direction, IndexEntries, IndexEntry, IndexInfo, KeyRange, Record, RecordKey,
        Records, Source,
    },
    value::{OwnedValue, Value},
};

use super::{query_error, resumed};
use crate::{Oplog, oplog::entry_key};

/// The entries of the oplog within a range of timestamps. An entry's record key is its timestamp.
pub struct OplogSource {
    oplog: Arc<Oplog>,
    low: Bound<Timestamp>,
    high: Bound<Timestamp>,
}

impl OplogSource {
    /// Entries that can match a filter with these bounds on `ts`, none after `last`.
    ///
    /// As in mongod, a forward scan that finds nothing at its lower bound starts at the entry before it, so that a
    /// tailable cursor that waits for later entries has a position.
    pub fn new(
        oplog: &Arc<Oplog>,
        (low, high): (Bound<Timestamp>, Bound<Timestamp>),
        last: Timestamp,
    ) -> Self {
        let high = match high {
            Bound::Included(ts) | Bound::Excluded(ts) if ts <= last => high,
            _ => Bound::Included(last),
        };
        let low = match low {
            Bound::Included(ts) | Bound::Excluded(ts) if ts <= last => Bound::Included(ts),
            Bound::Unbounded => Bound::Unbounded,
            _ => Bound::Included(last),
        };
        Self { oplog: Arc::clone(oplog), low, high }
    }
}

/// The timestamp in a record key.
fn timestamp(record: &RecordKey) -> Option<Timestamp> {
    let bytes = <[u8; 8]>::try_from(record.as_bytes()).ok()?;
    Some(Timestamp::from_u64(u64::from_be_bytes(bytes)))
}

impl Source for OplogSource {
    fn namespace(&self) -> String {
        "local.oplog.rs".to_owned()
    }

    fn indexes(&self) -> &[IndexInfo] {
        &[]
    }

    fn count(&self) -> Result<u64, QueryError> {
        Ok(self.oplog.applied_extent().map_err(query_error)?.1)
    }

    fn scan<'s>(&'s self, after: Option<&RecordKey>, direction: Direction) -> Records<'s> {
        let start = match direction {
            Direction::Forward => self.low,
            Direction::Backward => self.high,
        };
        let from = after.and_then(timestamp).map_or(start, Bound::Excluded);
        let ahead = match direction {
            Direction::Forward => (Bound::Unbounded, self.high),
            Direction::Backward => (self.low, Bound::Unbounded),
        };
        // The scan is opened before the position is checked: entries trimmed in between are then reported as lost
        // instead of being skipped.
        let entries = self.oplog.scan(from, direction);
        let within = move |item: &Result<(Timestamp, RawDoc), crate::StorageError>| {
            item.as_ref().map_or(true, |(ts, _)| ahead.contains(ts))
        };
        let walk = AtHand(entries.take_while(within).map(|item| {
            let (ts, doc) = item.map_err(query_error)?;
            Ok(Record { key: RecordKey::from_bytes(&entry_key(ts)), doc })
        }));
        match after {
            None => Box::new(walk),
            Some(place) => resumed(walk, self.fetch(place), || self.record_id(place)),
        }
    }

    fn index_scan<'s>(
        &'s self,
        _: usize,
        _: &KeyRange,
        _: Option<&IndexEntry>,
        _: Direction,
    ) -> IndexEntries<'s> {
        Box::new(std::iter::empty())
    }

    fn fetch(&self, record: &RecordKey) -> Result<Option<RawDoc>, QueryError> {
        match timestamp(record) {
            Some(ts) => self.oplog.entry(ts).map_err(query_error),
            None => Ok(None),
        }
    }

    /// As in mongod, an oplog entry's record id is its timestamp.
    fn record_id(&self, record: &RecordKey) -> OwnedValue {
        let ts = timestamp(record).unwrap_or(Timestamp::NULL);
        Value::Int64(i64::from_le_bytes(ts.as_u64().to_le_bytes())).into()
    }

    /// Entries have no `_id`, so there is no `_id` index.
    fn by_id(&self, _: Value<'_>) -> Result<Option<Record>, QueryError> {
        Ok(None)
    }
}

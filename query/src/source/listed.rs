//! A source of documents that are already in memory: what a node reports about itself, or a collection that does not
//! exist.

use std::sync::Arc;

use protocol::RawDoc;

use super::{
    AtHand, Direction, IndexEntries, IndexEntry, IndexInfo, KeyRange, Record, RecordKey, Records,
    Source,
};
use crate::{error::QueryError, value::Value};

/// Documents in natural order. A document's record key is its position in the list.
#[derive(Debug, Clone)]
pub struct Listed {
    namespace: String,
    docs: Arc<[RawDoc]>,
}

impl Listed {
    /// These documents under this namespace.
    pub fn new(namespace: impl Into<String>, docs: Arc<[RawDoc]>) -> Self {
        Self { namespace: namespace.into(), docs }
    }

    /// A collection that does not exist.
    pub fn nothing() -> Self {
        Self::new("", Arc::from([]))
    }

    /// True if there is no document.
    pub fn is_empty(&self) -> bool {
        self.docs.is_empty()
    }

    fn record(&self, at: usize) -> Option<Result<Record, QueryError>> {
        let key = RecordKey::from_bytes(&(at as u64).to_be_bytes());
        self.docs.get(at).map(|doc| Ok(Record { key, doc: doc.clone() }))
    }
}

fn place(record: &RecordKey) -> Option<usize> {
    let bytes = <[u8; 8]>::try_from(record.as_bytes()).ok()?;
    usize::try_from(u64::from_be_bytes(bytes)).ok()
}

impl Source for Listed {
    fn namespace(&self) -> String {
        self.namespace.clone()
    }

    fn indexes(&self) -> &[IndexInfo] {
        &[]
    }

    fn count(&self) -> Result<u64, QueryError> {
        Ok(self.docs.len() as u64)
    }

    fn scan<'s>(&'s self, after: Option<&RecordKey>, direction: Direction) -> Records<'s> {
        let after = after.and_then(place);
        match direction {
            Direction::Forward => {
                let from = after.map_or(0, |at| at + 1);
                Box::new(AtHand((from..self.docs.len()).filter_map(|at| self.record(at))))
            }
            Direction::Backward => {
                let to = after.unwrap_or(self.docs.len());
                Box::new(AtHand((0..to).rev().filter_map(|at| self.record(at))))
            }
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
        Ok(place(record).and_then(|at| self.docs.get(at)).cloned())
    }

    fn by_id(&self, _: Value<'_>) -> Result<Option<Record>, QueryError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn walks_go_both_ways_and_on_from_any_place() {
        let docs: Vec<RawDoc> = (0..4).map(|n| rawdoc! { "_id": n }.into()).collect();
        let source = Listed::new("a.b", docs.into());
        let ids = |after: Option<&RecordKey>, direction| -> Vec<i32> {
            let found = source.scan(after, direction);
            found.map(|record| record.unwrap().doc.get_i32("_id").unwrap()).collect()
        };
        assert_eq!(ids(None, Direction::Forward), [0, 1, 2, 3]);
        assert_eq!(ids(None, Direction::Backward), [3, 2, 1, 0]);
        let second = source.scan(None, Direction::Forward).nth(1).unwrap().unwrap().key;
        assert_eq!(ids(Some(&second), Direction::Forward), [2, 3]);
        assert_eq!(ids(Some(&second), Direction::Backward), [0]);
        assert!(source.fetch(&second).unwrap().is_some());
        assert_eq!(Listed::nothing().scan(None, Direction::Forward).count(), 0);
    }
}

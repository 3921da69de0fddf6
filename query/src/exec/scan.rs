//! The bottom of a pipeline: how documents are reached.

use std::collections::HashSet;

use protocol::{ErrorCode, RawDoc};

use super::{Examined, Input};
use crate::{
    error::QueryError,
    source::{
        Direction, IndexEntries, IndexEntry, IndexInfo, KeyRange, RecordKey, Records, Source,
    },
    value::OwnedValue,
};

/// How documents are reached.
#[derive(Debug, Clone)]
pub enum Access {
    /// There are none (a collection that does not exist, a filter that nothing matches).
    Nothing,
    /// All records in natural order.
    Collection(Direction),
    /// By `_id`, one value after the other.
    ById(Vec<OwnedValue>),
    /// By an index, or by several for the branches of an `$or`.
    Indexes(Vec<IndexScan>),
    /// Documents given in the query itself (`$documents`).
    Given(Vec<RawDoc>),
}

/// Ranges of one index in the order of the scan.
#[derive(Debug, Clone)]
pub struct IndexScan {
    /// The index's place in the source's list, where the plan was made or this batch began.
    pub index: usize,
    /// What it was planned for: the list may be another one in the next batch.
    pub planned: RawDoc,
    /// The ranges, in key order; a backward scan takes the last first.
    pub ranges: Vec<KeyRange>,
    /// Which way.
    pub direction: Direction,
}

/// An iterator that lives for one batch.
pub(super) enum Open<'v> {
    Records(Records<'v>),
    Entries(IndexEntries<'v>),
}

/// A scan and its position.
#[derive(Debug)]
pub struct Scan {
    access: Access,
    after_record: Option<RecordKey>,
    after_entry: Option<IndexEntry>,
    /// Which branch, and which range or value of it, comes next.
    branch: usize,
    step: usize,
    /// Records already given: an index with arrays and the branches of an `$or` meet them again.
    seen: Option<HashSet<RecordKey>>,
    examined: Examined,
}

/// How often a long scan asks whether it should go on.
const CHECK_EVERY: u64 = 128;

impl Scan {
    /// A scan at its beginning.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            after_record: None,
            after_entry: None,
            branch: 0,
            step: 0,
            seen: None,
            examined: Examined::default(),
        }
    }

    /// What was looked at so far.
    pub fn examined(&self) -> Examined {
        self.examined
    }

    /// The next document.
    pub fn next(&mut self, input: &mut Input<'_>) -> Result<Option<RawDoc>, QueryError> {
        if (self.examined.keys + self.examined.docs).is_multiple_of(CHECK_EVERY) {
            input.context.check()?;
        }
        match &self.access {
            Access::Nothing => Ok(None),
            Access::Collection(direction) => {
                let direction = *direction;
                self.next_record(direction, input)
            }
            Access::ById(_) => self.next_by_id(input),
            Access::Indexes(_) => self.next_by_index(input),
            Access::Given(docs) => {
                let doc = docs.get(self.step).cloned();
                self.step += 1;
                Ok(doc)
            }
        }
    }

    fn next_record<'v>(
        &mut self,
        direction: Direction,
        input: &mut Input<'v>,
    ) -> Result<Option<RawDoc>, QueryError> {
        if self.step > 0 {
            return Ok(None);
        }
        if input.open.is_none() {
            let records = input.source.scan(self.after_record.as_ref(), direction);
            input.open = Some(Open::Records(records));
        }
        let Some(Open::Records(records)) = &mut input.open else { return Ok(None) };
        match records.next().transpose()? {
            Some(record) => {
                self.examined.docs += 1;
                self.after_record = Some(record.key);
                Ok(Some(record.doc))
            }
            None => {
                self.step = 1;
                Ok(None)
            }
        }
    }

    fn next_by_id(&mut self, input: &mut Input<'_>) -> Result<Option<RawDoc>, QueryError> {
        let Access::ById(ids) = &self.access else { return Ok(None) };
        while let Some(id) = ids.get(self.step) {
            self.step += 1;
            self.examined.keys += 1;
            if let Some(record) = input.source.by_id(id.get())? {
                self.examined.docs += 1;
                return Ok(Some(record.doc));
            }
        }
        Ok(None)
    }

    fn next_by_index(&mut self, input: &mut Input<'_>) -> Result<Option<RawDoc>, QueryError> {
        while let Some(mut entry) = self.next_entry(input)? {
            self.examined.keys += 1;
            let (record, doc) = (entry.record.clone(), entry.doc.take());
            self.after_entry = Some(entry);
            if self.examined.keys.is_multiple_of(CHECK_EVERY) {
                input.context.check()?;
            }
            if !self.is_new(&record, input) {
                continue;
            }
            let doc = match doc {
                Some(doc) => Some(doc),
                None => input.source.fetch(&record)?,
            };
            if let Some(doc) = doc {
                self.examined.docs += 1;
                return Ok(Some(doc));
            }
        }
        Ok(None)
    }

    fn next_entry(&mut self, input: &mut Input<'_>) -> Result<Option<IndexEntry>, QueryError> {
        let Access::Indexes(branches) = &self.access else { return Ok(None) };
        while let Some(branch) = branches.get(self.branch) {
            let at = match branch.direction {
                Direction::Forward => Some(self.step),
                Direction::Backward => branch.ranges.len().checked_sub(self.step + 1),
            };
            let Some(range) = at.and_then(|at| branch.ranges.get(at)) else {
                self.branch += 1;
                self.step = 0;
                continue;
            };
            if input.open.is_none() {
                let after = self.after_entry.as_ref();
                let index = place(branch, input.source)?;
                let entries = input.source.index_scan(index, range, after, branch.direction);
                input.open = Some(Open::Entries(entries));
            }
            if let Some(Open::Entries(entries)) = &mut input.open
                && let Some(entry) = entries.next().transpose()?
            {
                return Ok(Some(entry));
            }
            input.open = None;
            self.after_entry = None;
            self.step += 1;
        }
        Ok(None)
    }

    /// Remembers records where one can come twice.
    fn is_new(&mut self, record: &RecordKey, input: &Input<'_>) -> bool {
        let Access::Indexes(branches) = &self.access else { return true };
        let twice = branches.len() > 1
            || branches.iter().any(|branch| {
                let at = place(branch, input.source).ok();
                at.and_then(|at| input.source.indexes().get(at)).is_some_and(|i| i.is_multikey())
            });
        !twice || self.seen.get_or_insert_default().insert(record.clone())
    }
}

/// Where the index of a scan is in the source's list now. Indexes come and go between two batches.
fn place(scan: &IndexScan, source: &dyn Source) -> Result<usize, QueryError> {
    // Other options of an index can be changed under way.
    let same = |index: &IndexInfo| {
        let (now, then) = (&index.spec, &scan.planned);
        let agrees =
            |field| matches!((now.get(field), then.get(field)), (Ok(now), Ok(then)) if now == then);
        now == then || (agrees("name") && agrees("key"))
    };
    let indexes = source.indexes();
    if indexes.get(scan.index).is_some_and(same) {
        return Ok(scan.index);
    }
    indexes.iter().position(same).ok_or_else(|| {
        let name = scan.planned.get_str("name").unwrap_or_default();
        let text = format!("query plan killed :: index '{name}' dropped");
        QueryError::new(ErrorCode::QueryPlanKilled, text)
    })
}

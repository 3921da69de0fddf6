//! The bottom of a pipeline: reads documents.

use std::collections::HashSet;

use bson::RawDocumentBuf;
use protocol::{ErrorCode, RawDoc};

use super::{CHECK_EVERY, Examined, Input, Noted, Seen, Test, TextScan, keys};
use crate::{
    error::QueryError,
    expression::DocBuilder,
    matcher::{Matcher, Node},
    planner::Interval,
    sort::keys_at,
    source::{
        BoundedEntries, Direction, IndexEntries, IndexEntry, IndexInfo, IndexKind, KeyRange,
        RecordKey, Records, Source,
    },
    stage::to_doc,
    value::{Elements, OwnedValue, Value, path::Path},
};

/// How documents are read.
#[derive(Debug, Clone)]
pub enum Access {
    /// No documents (the collection does not exist, or the filter matches nothing).
    Nothing,
    /// All records in natural order.
    Collection(Direction),
    /// By `_id`, one value after the other.
    ById(Vec<OwnedValue>),
    /// By one index, or by several for the branches of an `$or`.
    Indexes(Vec<IndexScan>),
    /// By the terms of a text search.
    Text(Box<TextScan>),
    /// Documents given in the query itself (`$documents`).
    Given(Vec<RawDoc>),
}

impl Access {
    /// Its index scans, run one after the other.
    pub fn branches(&self) -> &[IndexScan] {
        match self {
            Self::Indexes(scans) => scans,
            Self::Text(text) => &text.walked,
            _ => &[],
        }
    }
}

/// A scan of ranges of one index.
#[derive(Debug, Clone)]
pub struct IndexScan {
    /// The index's position in the source's list, as of planning or the start of this batch.
    pub index: usize,
    /// The index spec at planning: the list may differ in the next batch.
    pub planned: RawDoc,
    /// The ranges in key order; a backward scan starts with the last.
    pub ranges: Vec<KeyRange>,
    /// Intervals for every field; empty if the ranges suffice.
    pub bounds: Vec<Vec<Interval>>,
    /// The scan direction.
    pub direction: Direction,
    /// Number of multikey paths at planning. If there are more later, keys no longer show what the plan expects.
    pub arrays: usize,
    /// A filter on keys, checked before documents are fetched.
    pub key_filter: Option<Matcher>,
    /// Return only the first of the keys that share this many leading fields.
    pub distinct: Option<usize>,
    /// For a branch of an `$or`: the filter that remains to be checked.
    pub rest: Option<Node>,
}

impl IndexScan {
    /// A scan of all keys within ranges.
    pub fn new(index: usize, planned: RawDoc, ranges: Vec<KeyRange>) -> Self {
        Self {
            index,
            planned,
            ranges,
            bounds: Vec::new(),
            direction: Direction::Forward,
            arrays: 0,
            key_filter: None,
            distinct: None,
            rest: None,
        }
    }

    /// True if a single range expresses all bounds.
    pub(crate) fn is_plain(&self) -> bool {
        let [range] = self.ranges.as_slice() else { return self.bounds.is_empty() };
        let named = range.prefix.len() + usize::from(range.edges.is_some());
        self.bounds.iter().skip(named).all(|b| matches!(b.as_slice(), [all] if all.is_all()))
    }
}

/// An iterator that lives for one batch.
pub(super) enum Open<'v> {
    Records(Records<'v>),
    Entries(IndexEntries<'v>),
    Bounded(BoundedEntries<'v>),
}

/// A scan and its position.
#[derive(Debug)]
pub struct Scan {
    access: Access,
    after_record: Option<RecordKey>,
    after_entry: Option<IndexEntry>,
    /// The next branch, and the next range or value in it.
    branch: usize,
    step: usize,
    /// Remaining records with their scores.
    scores: Option<std::vec::IntoIter<(RecordKey, f64)>>,
    /// Records already returned: a multikey index and the branches of an `$or` may find them again.
    seen: Option<HashSet<RecordKey>>,
    examined: Examined,
    /// Number of entries still to skip.
    skip: u64,
    /// Do not fetch documents.
    keys_only: bool,
    /// The keys hold everything that is needed and are returned instead of the documents.
    covered: bool,
    /// Add each key's record as metadata.
    noted: bool,
    /// The complete filter, if the bounds decide part of it.
    wary: Option<Matcher>,
}

/// The key of an entry as a document, if needed, and the stored document if it was read for that.
struct Entered {
    key: Option<Vec<u8>>,
    doc: Option<RawDoc>,
}

impl Scan {
    /// A scan at its start.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            after_record: None,
            after_entry: None,
            branch: 0,
            step: 0,
            scores: None,
            seen: None,
            examined: Examined::default(),
            skip: 0,
            keys_only: false,
            covered: false,
            noted: false,
            wary: None,
        }
    }

    /// A scan that returns an empty document for each index entry.
    pub(crate) fn of_keys(access: Access) -> Self {
        Self { keys_only: true, ..Self::new(access) }
    }

    /// Sets the complete filter, which is checked when the bounds alone no longer guarantee a match.
    pub(super) fn be_wary(&mut self, filter: Matcher) {
        self.wary = Some(filter);
    }

    /// Skips the first entries without fetching them.
    pub(super) fn skip(&mut self, n: u64) {
        self.skip = n;
    }

    /// Returns documents built from keys.
    pub(super) fn cover(&mut self) {
        self.covered = true;
    }

    /// Adds each key's record as metadata.
    pub(super) fn note_records(&mut self) {
        self.noted = true;
    }

    /// Counts documents that were fetched later.
    pub(super) fn count_fetched(&mut self, n: u64) {
        self.examined.docs += n;
    }

    /// The record of the last returned document.
    pub(super) fn record(&self) -> Option<&RecordKey> {
        let by_entry = self.after_entry.as_ref().map(|entry| &entry.record);
        by_entry.or(self.after_record.as_ref())
    }

    /// The index key of the last returned document, if an index was used.
    pub(super) fn index_key(
        &self,
        doc: &RawDoc,
        source: &dyn Source,
    ) -> Result<Option<RawDocumentBuf>, QueryError> {
        match (&self.access, &self.after_entry) {
            (Access::ById(_), _) => {
                let mut key = DocBuilder::new();
                if let Some(id) = Elements::new(doc).find(b"_id") {
                    key.push_raw(id.bytes);
                }
                Ok(RawDocumentBuf::from_bytes(key.finish()).ok())
            }
            (Access::Indexes(branches), Some(entry)) => match branches.get(self.branch) {
                Some(branch) => match wildcard_key(branch, source, doc)? {
                    Some(key) => Ok(Some(key)),
                    None => source.key_of(place(branch, source)?, entry, doc).map(Some),
                },
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// What was examined so far.
    pub fn examined(&self) -> Examined {
        self.examined
    }

    /// The next document.
    pub fn next(&mut self, input: &mut Input<'_>) -> Result<Option<Noted>, QueryError> {
        input.scanned = true;
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
            Access::Text(text) if text.scored => self.next_by_score(input),
            Access::Text(_) => self.next_by_index(input),
            Access::Given(docs) => {
                let doc = docs.get(self.step).cloned();
                self.step += 1;
                Ok(doc.map(Noted::from))
            }
        }
    }

    fn next_record(
        &mut self,
        direction: Direction,
        input: &mut Input<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        let Some(records) = self.records(direction, input) else { return Ok(None) };
        match records.next().transpose()? {
            Some(record) => {
                self.examined.docs += 1;
                self.after_record = Some(record.key);
                Ok(Some(record.doc.into()))
            }
            None => {
                self.step = 1;
                Ok(None)
            }
        }
    }

    /// The next document that the test accepts.
    pub(super) fn next_where(
        &mut self,
        input: &mut Input<'_>,
        test: Test<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        let Access::Collection(direction) = self.access else {
            while let Some(row) = self.next(input)? {
                if test(row.seen())? {
                    return Ok(Some(row));
                }
            }
            return Ok(None);
        };
        let context = input.context;
        let Some(records) = self.records(direction, input) else { return Ok(None) };
        let examined = &mut self.examined.docs;
        let found = records.next_where(&mut |doc| {
            if examined.is_multiple_of(CHECK_EVERY) {
                context.check()?;
            }
            *examined += 1;
            test(Seen::plain(doc))
        });
        match found.transpose()? {
            Some(record) => {
                self.after_record = Some(record.key);
                Ok(Some(record.doc.into()))
            }
            None => {
                self.step = 1;
                Ok(None)
            }
        }
    }

    /// The open record iterator, unless it has ended.
    fn records<'i, 'v>(
        &self,
        direction: Direction,
        input: &'i mut Input<'v>,
    ) -> Option<&'i mut Records<'v>> {
        if self.step > 0 {
            return None;
        }
        if input.open.is_none() {
            let records = input.source.scan(self.after_record.as_ref(), direction);
            input.open = Some(Open::Records(records));
        }
        match &mut input.open {
            Some(Open::Records(records)) => Some(records),
            _ => None,
        }
    }

    fn next_by_id(&mut self, input: &mut Input<'_>) -> Result<Option<Noted>, QueryError> {
        let Access::ById(ids) = &self.access else { return Ok(None) };
        while let Some(id) = ids.get(self.step) {
            self.step += 1;
            self.examined.keys += 1;
            if let Some(record) = input.source.by_id(id.get())? {
                self.examined.docs += 1;
                self.after_record = Some(record.key);
                return Ok(Some(record.doc.into()));
            }
        }
        Ok(None)
    }

    /// The next document of a scored search: first those of the text search, then those of other branches of an
    /// `$or`.
    fn next_by_score(&mut self, input: &mut Input<'_>) -> Result<Option<Noted>, QueryError> {
        let Access::Text(text) = &self.access else { return Ok(None) };
        if self.scores.is_none() {
            let found = text.read(input, &mut self.examined)?;
            if !text.walked.is_empty() {
                self.seen = Some(found.iter().map(|(record, _)| record.clone()).collect());
            }
            self.scores = Some(found.into_iter());
        }
        for (record, score) in self.scores.iter_mut().flatten() {
            let Some(doc) = input.source.fetch(&record)? else { continue };
            self.examined.docs += 1;
            self.after_record = Some(record);
            return text.noted(doc, score, input.context).map(Some);
        }
        self.next_by_index(input)
    }

    fn next_by_index(&mut self, input: &mut Input<'_>) -> Result<Option<Noted>, QueryError> {
        while let Some(mut entry) = self.next_entry(input)? {
            self.examined.keys += 1;
            let (record, doc) = (entry.record.clone(), entry.doc.take());
            let found = self.look(&entry, doc, input)?;
            self.after_entry = Some(entry);
            if self.examined.keys.is_multiple_of(CHECK_EVERY) {
                input.context.check()?;
            }
            let Some(Entered { key, doc }) = found else { continue };
            if !self.is_new(&record, input) {
                continue;
            }
            if self.skip > 0 {
                self.skip -= u64::from(self.is_skipped(&record, doc, input)?);
                continue;
            }
            self.examined.given += 1;
            if self.keys_only {
                return Ok(Some(RawDoc::from(RawDocumentBuf::new()).into()));
            }
            if let Some(key) = key.filter(|_| self.covered) {
                if let Some(doc) = &doc
                    && !self.matches_still(doc, input)?
                {
                    continue;
                }
                let row = match self.noted {
                    true => keys::with_record(key, &record),
                    false => to_doc(key).map(Noted::from),
                };
                return row.map(Some);
            }
            let doc = match doc {
                Some(doc) => Some(doc),
                None => input.source.fetch(&record)?,
            };
            if let Some(doc) = doc {
                self.examined.docs += 1;
                if self.matches_still(&doc, input)? {
                    return Ok(Some(doc.into()));
                }
            }
        }
        Ok(None)
    }

    /// True if an entry counts as skipped. If the bounds do not decide the filter, its document is checked.
    fn is_skipped(
        &self,
        record: &RecordKey,
        doc: Option<RawDoc>,
        input: &mut Input<'_>,
    ) -> Result<bool, QueryError> {
        if self.wary.is_none() || self.is_as_planned(input)? {
            return Ok(true);
        }
        let doc = doc.map_or_else(|| input.source.fetch(record), |doc| Ok(Some(doc)))?;
        doc.map_or(Ok(false), |doc| self.matches_still(&doc, input))
    }

    /// Checks the complete filter if the bounds no longer decide it.
    fn matches_still(&self, doc: &RawDoc, input: &mut Input<'_>) -> Result<bool, QueryError> {
        match &self.wary {
            Some(filter) if !self.is_as_planned(input)? => {
                filter.check_bytes(doc.as_bytes(), input.context)
            }
            _ => Ok(true),
        }
    }

    /// True if its indexes have the same multikey paths as at planning. They do not change within a batch.
    fn is_as_planned(&self, input: &mut Input<'_>) -> Result<bool, QueryError> {
        if let Some(known) = input.as_planned {
            return Ok(known);
        }
        let mut same = true;
        for branch in self.access.branches() {
            let info = input.source.indexes().get(place(branch, input.source)?);
            same &= info.is_some_and(|info| info.arrays() == branch.arrays);
        }
        Ok(*input.as_planned.insert(same))
    }

    /// The number of fields that form a value, if the scan skips from value to value. It cannot do so if the index
    /// became multikey since planning.
    fn values_by(&self, input: &mut Input<'_>) -> Result<Option<usize>, QueryError> {
        let distinct = self.access.branches().get(self.branch).and_then(|branch| branch.distinct);
        match distinct {
            Some(fields) if self.is_as_planned(input)? => Ok(Some(fields)),
            _ => Ok(None),
        }
    }

    /// Decodes a key; `None` if the key filter rejects it.
    fn look(
        &mut self,
        entry: &IndexEntry,
        doc: Option<RawDoc>,
        input: &Input<'_>,
    ) -> Result<Option<Entered>, QueryError> {
        let Some(branch) = self.access.branches().get(self.branch) else {
            return Ok(Some(Entered { key: None, doc }));
        };
        if branch.key_filter.is_none() && !self.covered {
            return Ok(Some(Entered { key: None, doc }));
        }
        let index = place(branch, input.source)?;
        let looked = keys::look((branch, index), entry, doc, input.source)?;
        let Some(looked) = looked else { return Ok(None) };
        let passes = match &branch.key_filter {
            Some(filter) => filter.check_bytes(&looked.key, input.context)?,
            None => true,
        };
        // If the document is returned later, it is counted then.
        let given = passes && !self.covered && !self.keys_only;
        self.examined.docs += u64::from(looked.fetched && !given);
        Ok(passes.then_some(Entered { key: Some(looked.key), doc: looked.doc }))
    }

    fn next_entry(&mut self, input: &mut Input<'_>) -> Result<Option<IndexEntry>, QueryError> {
        let branches = self.access.branches();
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
            let values_by = self.values_by(input)?;
            if input.open.is_none() {
                let after = self.after_entry.as_ref();
                input.open = Some(open(branch, range, after, values_by, input.source)?);
            }
            // A bounded scan is a single step.
            let mut steps = 1;
            match &mut input.open {
                Some(Open::Entries(entries)) => {
                    if let Some(entry) = entries.next().transpose()? {
                        return Ok(Some(entry));
                    }
                }
                Some(Open::Bounded(entries)) => {
                    steps = branch.ranges.len();
                    if let Some(found) = entries.next().transpose()? {
                        self.examined.keys += found.passed;
                        if let Some(entry) = found.entry {
                            if let Some(fields) = values_by {
                                entries.pass(&entry, fields);
                            }
                            return Ok(Some(entry));
                        }
                        if found.more {
                            input.context.check()?;
                            continue;
                        }
                    }
                }
                _ => {}
            }
            input.open = None;
            self.after_entry = None;
            self.step += steps;
        }
        Ok(None)
    }

    /// False if the record was returned before; records are remembered only if they can occur twice.
    fn is_new(&mut self, record: &RecordKey, input: &Input<'_>) -> bool {
        let branches = self.access.branches();
        // When skipping from value to value, a document may have several values.
        if branches.iter().any(|branch| branch.distinct.is_some()) && input.as_planned == Some(true)
        {
            return true;
        }
        let twice = branches.len() > 1
            || self.scores.is_some()
            || branches.iter().any(|branch| {
                let at = place(branch, input.source).ok();
                at.and_then(|at| input.source.indexes().get(at)).is_some_and(|i| i.is_multikey())
            });
        !twice || self.seen.get_or_insert_default().insert(record.clone())
    }
}

/// Opens a scan of one range, or of all bounds.
fn open<'v>(
    branch: &IndexScan,
    range: &KeyRange,
    after: Option<&IndexEntry>,
    values_by: Option<usize>,
    source: &'v dyn Source,
) -> Result<Open<'v>, QueryError> {
    let index = place(branch, source)?;
    if !branch.is_plain() || branch.distinct.is_some() {
        let walk = source.bounded_scan(index, &branch.bounds, after, branch.direction);
        if let Some(mut walk) = walk {
            if let (Some(after), Some(fields)) = (after, values_by) {
                walk.pass(after, fields);
            }
            return Ok(Open::Bounded(walk));
        }
    }
    Ok(Open::Entries(source.index_scan(index, range, after, branch.direction)))
}

/// The key of a wildcard index: a path and its value.
fn wildcard_key(
    scan: &IndexScan,
    source: &dyn Source,
    doc: &RawDoc,
) -> Result<Option<RawDocumentBuf>, QueryError> {
    let index = source.indexes().get(place(scan, source)?);
    let path = scan.ranges.first().and_then(|range| range.prefix.first()).map(OwnedValue::get);
    let (Some(Value::String(path)), Some(IndexKind::Wildcard)) = (path, index.map(|i| i.kind))
    else {
        return Ok(None);
    };
    let mut keys = keys_at(&[&Path::new(path)], doc.as_bytes())?;
    let mut key = DocBuilder::new();
    key.push(b"$_path", Value::String(path));
    key.push(path, keys.pop().and_then(|mut key| key.pop()).unwrap_or(Value::Null.into()).get());
    Ok(RawDocumentBuf::from_bytes(key.finish()).ok())
}

/// The current position of the scan's index in the source's list. Indexes may be created and dropped between two
/// batches.
pub(super) fn place(scan: &IndexScan, source: &dyn Source) -> Result<usize, QueryError> {
    // Other options of an index may change meanwhile.
    let same = |index: &IndexInfo| {
        let (now, then) = (&index.spec, &scan.planned);
        let agrees =
            |field| matches!((now.get(field), then.get(field)), (Ok(now), Ok(then)) if now == then);
        let told = ["name", "key", "collation", "sparse", "partialFilterExpression"];
        now == then || told.into_iter().all(agrees)
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

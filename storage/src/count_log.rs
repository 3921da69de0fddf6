//! The number of documents of a collection at every readable timestamp.
//!
//! The newest counts are in `meta`. Each batch writes one row per changed collection to `history`: the counts before
//! the batch, and every change with its timestamp. The count at T is computed from the first batch that ends after T.
//! The row is dropped with its epoch, like any version.
//!
//! Commits of prepared transactions may have timestamps before batches that already exist. They are also listed in a
//! separate table, which is nearly always empty.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use protocol::Timestamp;

use crate::{
    StorageError,
    engine::{Batch, Keyspace, Snapshot},
    layout::{
        Epoch, Reader as Bytewise, TableId, history_key, numbers, prefix_range, push_varint,
        split_history_key,
    },
    mvcc::{History, Reader, Version, history::Held, version::Head, write::When},
    store::Counts,
};

/// The changes of one batch to the counts of one collection.
pub(crate) struct CountLog {
    documents: u64,
    bytes: u64,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    ts: Timestamp,
    /// For rollback: the timestamp of a prepared transaction's commit entry.
    durable: Option<Timestamp>,
    documents: i64,
    bytes: i64,
}

impl CountLog {
    pub(crate) fn new(before: Counts) -> Self {
        Self { documents: before.documents, bytes: before.bytes, steps: Vec::new() }
    }

    /// Records a change.
    pub(crate) fn push(&mut self, when: When, documents: i64, bytes: i64) {
        match self.steps.last_mut() {
            Some(last) if last.ts == when.ts && last.durable == when.durable => {
                last.documents += documents;
                last.bytes += bytes;
            }
            _ => self.steps.push(Step { ts: when.ts, durable: when.durable, documents, bytes }),
        }
    }

    /// Adds the row to the batch that ends at `end`.
    pub(crate) fn save(self, table: TableId, end: Timestamp, history: &History, batch: &mut Batch) {
        let late: Vec<Step> =
            self.steps.iter().copied().filter(|step| step.durable.is_some()).collect();
        if !late.is_empty() {
            let late = Self { documents: 0, bytes: 0, steps: late };
            late.put(TableId::LATE_COUNTS, table, end, history, batch);
        }
        self.put(TableId::COUNTS, table, end, history, batch);
    }

    fn put(
        &self,
        kind: TableId,
        table: TableId,
        end: Timestamp,
        history: &History,
        batch: &mut Batch,
    ) {
        let epoch = history.epoch_of(end);
        let key = history_key(epoch, &kind.key(&table.0.to_be_bytes()), end);
        let value = Version::new(Head::default(), &[&self.encode(end)]);
        let bytes = (key.len() + value.bytes().len()) as u64;
        let held = Held { versions: 1, bytes, ..Held::default() };
        history.count(&BTreeMap::from([((epoch, kind), held)]), batch);
        batch.put(Keyspace::History, key, value.bytes().clone());
    }

    /// `documents(8) bytes(8)`, then for each step: whether it is a prepared commit, its timestamps as (seconds
    /// before the batch's end, increment), and the changes of documents and bytes.
    fn encode(&self, end: Timestamp) -> Vec<u8> {
        let mut out = numbers([self.documents, self.bytes]).to_vec();
        let mut push = |number: u64| {
            push_varint(&mut out, usize::try_from(number).unwrap_or(usize::MAX));
        };
        for step in &self.steps {
            push(u64::from(step.durable.is_some()));
            for ts in [Some(step.ts), step.durable].into_iter().flatten() {
                push(u64::from(end.secs().saturating_sub(ts.secs())));
                push(u64::from(ts.inc()));
            }
            push(zigzag(step.documents));
            push(zigzag(step.bytes));
        }
        out
    }

    pub(crate) fn parse(version: &Version, end: Timestamp) -> Result<Self, StorageError> {
        let mut reader = Bytewise(version.payload());
        let parsed = (|| {
            let mut log =
                Self { documents: reader.u64()?, bytes: reader.u64()?, steps: Vec::new() };
            while !reader.0.is_empty() {
                let late = reader.varint()? != 0;
                let mut time = || {
                    let back = u32::try_from(reader.varint()?).ok()?;
                    let inc = u32::try_from(reader.varint()?).ok()?;
                    Some(Timestamp::new(end.secs().checked_sub(back)?, inc))
                };
                let ts = time()?;
                let durable = if late { Some(time()?) } else { None };
                let (documents, bytes) = (unzigzag(reader.varint()?), unzigzag(reader.varint()?));
                log.steps.push(Step { ts, durable, documents, bytes });
            }
            Some(log)
        })();
        parsed.ok_or_else(|| StorageError::corrupt("history", "a row of counts"))
    }

    fn add_until(&self, at: Timestamp, counts: &mut Counts) {
        for step in self.steps.iter().filter(|step| step.ts <= at) {
            counts.documents = counts.documents.saturating_add_signed(step.documents);
            counts.bytes = counts.bytes.saturating_add_signed(step.bytes);
        }
    }
}

fn zigzag(n: i64) -> u64 {
    (n.cast_unsigned() << 1) ^ (n >> 63).cast_unsigned()
}

fn unzigzag(n: usize) -> i64 {
    let n = n as u64;
    (n >> 1).cast_signed() ^ -((n & 1).cast_signed())
}

/// The counts of a table at the reader's timestamp; `newest` are the counts in its snapshot.
pub(crate) fn counts_at(
    reader: &Reader,
    table: TableId,
    newest: Counts,
) -> Result<Counts, StorageError> {
    let Some(at) = reader.at else { return Ok(newest) };
    let Some((end, log)) = rows_after(reader, TableId::COUNTS, table, at).next().transpose()?
    else {
        return Ok(newest);
    };
    let mut counts = Counts { documents: log.documents, bytes: log.bytes, ..newest };
    log.add_until(at, &mut counts);
    for item in rows_after(reader, TableId::LATE_COUNTS, table, end) {
        item?.1.add_until(at, &mut counts);
    }
    Ok(counts)
}

/// A table's rows of the batches that end after `at`, in order.
fn rows_after(
    reader: &Reader,
    kind: TableId,
    table: TableId,
    at: Timestamp,
) -> impl Iterator<Item = Result<(Timestamp, CountLog), StorageError>> {
    let row = kind.key(&table.0.to_be_bytes());
    let epochs: Vec<Epoch> = reader.history.epochs_from(at, kind);
    epochs.into_iter().flat_map(move |epoch| {
        let (from, to) = (history_key(epoch, &row, at), history_key(epoch, &row, Timestamp::MAX));
        let (from, to) = (Bound::Excluded(from.as_slice()), Bound::Included(to.as_slice()));
        reader.snapshot.range(Keyspace::History, from, to).map(|item| {
            let (key, value) = item?;
            let end = split_history_key(&key).map_or(Timestamp::NULL, |(_, end)| end);
            Ok((end, CountLog::parse(&Version::parse(value)?, end)?))
        })
    })
}

/// True for tables of count rows, which hold no versions.
pub(crate) fn is_ours(table: TableId) -> bool {
    table == TableId::COUNTS || table == TableId::LATE_COUNTS
}

/// Rolls back to `common`: removes the rows of later batches; of a batch that spans `common`, the earlier steps stay.
pub(crate) fn roll_back(
    snapshot: &dyn Snapshot,
    history: &History,
    common: Timestamp,
    batch: &mut Batch,
) -> Result<(), StorageError> {
    for kind in [TableId::COUNTS, TableId::LATE_COUNTS] {
        for epoch in history.epochs_from(common, kind) {
            let from = [&epoch.prefix()[..], &kind.key(&[])].concat();
            let to = [&epoch.prefix()[..], &kind.end()].concat();
            let (from, to) = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
            for item in snapshot.range(Keyspace::History, from, to) {
                let (key, value) = item?;
                let Some((row, end)) = split_history_key(&key) else { continue };
                if end <= common {
                    continue;
                }
                let mut log = CountLog::parse(&Version::parse(value)?, end)?;
                log.steps.retain(|step| step.durable.unwrap_or(step.ts) <= common);
                if !log.steps.is_empty() {
                    let table = row.get(4..).and_then(|id| Bytewise(id).u32()).map(TableId);
                    let table =
                        table.ok_or_else(|| StorageError::corrupt("history", "a key of counts"))?;
                    log.put(kind, table, common, history, batch);
                }
                batch.remove(Keyspace::History, key);
            }
        }
    }
    Ok(())
}

/// The counts of all tables.
pub(crate) fn read_counts(
    snapshot: &dyn Snapshot,
) -> Result<HashMap<TableId, Counts>, StorageError> {
    let (from, to) = prefix_range(b"c");
    snapshot
        .range(Keyspace::Meta, from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice))
        .map(|item| {
            let (key, value) = item?;
            let row =
                (|| Some((TableId(Bytewise(key.get(1..)?).u32()?), Counts::parse(&value)?)))();
            row.ok_or_else(|| StorageError::corrupt("meta", "a row of counts"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_back_and_add_up() {
        let ts = |secs, inc| Timestamp::new(secs, inc);
        let mut log = CountLog::new(Counts { documents: 7, bytes: 900, next_record: 0 });
        log.push(ts(10, 1).into(), 1, 400);
        log.push(ts(10, 1).into(), 1, 300);
        log.push(ts(11, 9).into(), -1, -16_000_000);
        log.push(When { ts: ts(4, 2), durable: Some(ts(12, 1)) }, 1, 5);
        let end = ts(12, 1);
        let value = Version::new(Head::default(), &[&log.encode(end)]);
        let back = CountLog::parse(&value, end).unwrap();
        assert_eq!((back.documents, back.bytes, &back.steps), (7, 900, &log.steps));
        assert_eq!(back.steps.len(), 3);
        let mut counts = Counts { documents: 7, bytes: 900, next_record: 0 };
        back.add_until(ts(10, 5), &mut counts);
        assert_eq!((counts.documents, counts.bytes), (10, 1605));
        for n in [0, 1, -1, 17, -17, i64::from(i32::MAX), -i64::from(i32::MAX)] {
            assert_eq!(unzigzag(usize::try_from(zigzag(n)).unwrap()), n);
        }
    }
}

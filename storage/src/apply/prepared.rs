//! Prepared transactions: their writes are kept aside from the prepare entry until commit, when they become versions
//! at the commit timestamp, or abort, when they are discarded.
//!
//! ```text
//!   prepare        'k' table key -> its transaction    't' transaction n -> one write
//!   commit, abort  both go; 'r' resolved-ts transaction n keeps the writes until `stable` has passed, for rollback
//! ```
//! Readers that must wait for the decision look at the 'k' rows; all others ignore them.

use std::ops::Bound;

use bytes::Bytes;
use protocol::{RawDoc, Timestamp};
use uuid::Uuid;

use super::{Apply, documents::id_of};
use crate::{
    StorageError,
    engine::{Batch, Iter, Keyspace, Snapshot},
    keystring,
    layout::{Reader, TableId, cut, prefix_range},
    mvcc::write::When,
};

/// Identifies a prepared transaction: session and transaction number, encoded by the caller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId(pub Vec<u8>);

/// One write of a prepared transaction.
#[derive(Clone, Debug)]
pub enum PreparedWrite {
    /// Insert or replace by `_id`.
    Put {
        /// The collection.
        coll: Uuid,
        /// The whole document.
        doc: RawDoc,
    },
    /// Delete by `_id`.
    Delete {
        /// The collection.
        coll: Uuid,
        /// `{_id}`.
        doc_id: RawDoc,
    },
}

/// A prepared transaction.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) ts: Timestamp,
    pub(crate) writes: Vec<PreparedWrite>,
}

impl PreparedWrite {
    fn parts(&self) -> (u8, Uuid, &RawDoc) {
        match self {
            Self::Put { coll, doc } => (1, *coll, doc),
            Self::Delete { coll, doc_id } => (0, *coll, doc_id),
        }
    }

    fn to_value(&self) -> Vec<u8> {
        let (kind, coll, doc) = self.parts();
        [&[kind][..], coll.as_bytes(), doc.as_bytes()].concat()
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let mut reader = Reader(value);
        let kind = reader.u8()?;
        let coll = Uuid::from_slice(reader.bytes(16)?).ok()?;
        let doc = RawDoc::new(Bytes::copy_from_slice(reader.0)).ok()?;
        Some(match kind {
            0 => Self::Delete { coll, doc_id: doc },
            _ => Self::Put { coll, doc },
        })
    }
}

impl Apply {
    /// Stores the writes of a prepared transaction. They are invisible, but block readers that must wait for the
    /// decision.
    pub fn prepare(
        &mut self,
        txn: &TxnId,
        ts: Timestamp,
        writes: Vec<PreparedWrite>,
    ) -> Result<(), StorageError> {
        let prepared = Prepared { ts, writes };
        self.hold(txn, &prepared)?;
        self.prepared.insert(txn.clone(), Some(prepared));
        Ok(())
    }

    /// Turns the writes of a prepared transaction into versions at `commit_ts`; `durable_ts` is the timestamp of the
    /// commit entry.
    pub fn commit_prepared(
        &mut self,
        txn: &TxnId,
        commit_ts: Timestamp,
        durable_ts: Timestamp,
    ) -> Result<(), StorageError> {
        let prepared = self.release(txn, durable_ts)?;
        let when = When { ts: commit_ts, durable: Some(durable_ts) };
        for write in &prepared.writes {
            let (_, uuid, doc) = write.parts();
            let coll = self.collection(uuid).ok_or(StorageError::NoCollection(uuid))?;
            match write {
                PreparedWrite::Put { doc, .. } => drop(self.put_when(when, &coll, doc)?),
                PreparedWrite::Delete { .. } => {
                    let id = keystring::encode(id_of(doc)?)?;
                    drop(self.delete_when(when, &coll, &id)?);
                }
            }
        }
        Ok(())
    }

    /// Discards a prepared transaction. `ts` is the timestamp of the abort entry.
    pub fn abort_prepared(&mut self, txn: &TxnId, ts: Timestamp) -> Result<(), StorageError> {
        self.release(txn, ts).map(drop)
    }

    fn hold(&mut self, txn: &TxnId, prepared: &Prepared) -> Result<(), StorageError> {
        let mut batch = std::mem::take(&mut self.meta);
        batch.put(Keyspace::Prepared, txn_key(b't', txn, None), ts_value(prepared.ts));
        for (n, write) in prepared.writes.iter().enumerate() {
            batch.put(Keyspace::Prepared, txn_key(b't', txn, Some(n)), write.to_value());
            let mut holder = prepared.ts.as_u64().to_be_bytes().to_vec();
            holder.extend_from_slice(&txn.0);
            if let Some(key) = self.held_key(write)? {
                batch.put(Keyspace::Prepared, key, holder);
            }
        }
        self.meta = batch;
        Ok(())
    }

    fn release(&mut self, txn: &TxnId, at: Timestamp) -> Result<Prepared, StorageError> {
        let unknown = || StorageError::NoPrepared(format!("{:02x?}", txn.0));
        let prepared = match self.prepared.get(txn) {
            Some(known) => known.clone(),
            None => read(&*self.changes.reader.snapshot, txn)?,
        };
        let prepared = prepared.ok_or_else(unknown)?;
        let mut batch = std::mem::take(&mut self.meta);
        batch.remove(Keyspace::Prepared, txn_key(b't', txn, None));
        let resolved = |n| resolved_key(at, txn, n);
        batch.put(Keyspace::Prepared, resolved(None), ts_value(prepared.ts));
        for (n, write) in prepared.writes.iter().enumerate() {
            batch.remove(Keyspace::Prepared, txn_key(b't', txn, Some(n)));
            batch.put(Keyspace::Prepared, resolved(Some(n)), write.to_value());
            if let Some(key) = self.held_key(write)? {
                batch.remove(Keyspace::Prepared, key);
            }
        }
        self.meta = batch;
        self.prepared.insert(txn.clone(), None);
        Ok(prepared)
    }

    /// The key of the row that names the transaction of a prepared document; none if its collection no longer exists.
    fn held_key(&self, write: &PreparedWrite) -> Result<Option<Vec<u8>>, StorageError> {
        let (_, uuid, doc) = write.parts();
        let Some(coll) = self.collection(uuid) else { return Ok(None) };
        Ok(Some(holder_key(coll.table, &keystring::encode(id_of(doc)?)?)))
    }
}

/// The key of the row that names a document's prepared transaction; by `_id`, also in capped collections.
pub(crate) fn holder_key(table: TableId, id_key: &[u8]) -> Vec<u8> {
    let short = cut(id_key);
    let mut out = vec![b'k'];
    out.extend_from_slice(&table.key(short.as_deref().unwrap_or(id_key)));
    out
}

fn txn_key(family: u8, txn: &TxnId, n: Option<usize>) -> Vec<u8> {
    let mut out = vec![family];
    append_txn(&mut out, txn, n);
    out
}

pub(crate) fn resolved_key(at: Timestamp, txn: &TxnId, n: Option<usize>) -> Vec<u8> {
    let mut out = vec![b'r'];
    out.extend_from_slice(&at.as_u64().to_be_bytes());
    append_txn(&mut out, txn, n);
    out
}

fn append_txn(out: &mut Vec<u8>, txn: &TxnId, n: Option<usize>) {
    out.extend_from_slice(&u16::try_from(txn.0.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&txn.0);
    if let Some(n) = n {
        out.extend_from_slice(&u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes());
    }
}

fn ts_value(ts: Timestamp) -> [u8; 8] {
    ts.as_u64().to_be_bytes()
}

fn prefix(snapshot: &dyn Snapshot, prefix: &[u8]) -> Iter {
    let (from, to) = prefix_range(prefix);
    snapshot.range(
        Keyspace::Prepared,
        from.as_ref().map(Vec::as_slice),
        to.as_ref().map(Vec::as_slice),
    )
}

fn broken() -> StorageError {
    StorageError::corrupt("the prepared transactions", "a row that we never write")
}

/// Reads a prepared transaction from the engine.
pub(crate) fn read(snapshot: &dyn Snapshot, txn: &TxnId) -> Result<Option<Prepared>, StorageError> {
    let head = txn_key(b't', txn, None);
    let Some(value) = snapshot.get(Keyspace::Prepared, &head)? else { return Ok(None) };
    let ts = Reader(&value).ts().ok_or_else(broken)?;
    let mut writes = Vec::new();
    for item in prefix(snapshot, &head) {
        let (key, value) = item?;
        if key.len() > head.len() {
            writes.push(PreparedWrite::parse(&value).ok_or_else(broken)?);
        }
    }
    Ok(Some(Prepared { ts, writes }))
}

/// All undecided prepared transactions with their prepare timestamps.
pub(crate) fn list(snapshot: &dyn Snapshot) -> Result<Vec<(TxnId, Timestamp)>, StorageError> {
    let mut out = Vec::new();
    let mut from = b"t".to_vec();
    loop {
        let mut rows =
            snapshot.range(Keyspace::Prepared, Bound::Included(&from), Bound::Excluded(b"u"));
        let Some(head) = rows.next().transpose()? else { return Ok(out) };
        let (txn, _) = split_txn(head.0.get(1..).unwrap_or_default()).ok_or_else(broken)?;
        // Skip to the next transaction: this one may have many writes.
        let Bound::Excluded(next) = prefix_range(&txn_key(b't', &txn, None)).1 else {
            return Err(broken());
        };
        from = next;
        out.push((txn, Reader(&head.1).ts().ok_or_else(broken)?));
    }
}

fn split_txn(key: &[u8]) -> Option<(TxnId, Option<u32>)> {
    let (len, rest) = key.split_first_chunk::<2>()?;
    let (txn, n) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let n = n.first_chunk().map(|n| u32::from_be_bytes(*n));
    Some((TxnId(txn.to_vec()), n))
}

/// Rolls back to `common`: transactions prepared after it are discarded, those decided after it are prepared again.
pub(crate) fn roll_back(
    snapshot: &dyn Snapshot,
    common: Timestamp,
    table_of: &dyn Fn(Uuid) -> Option<TableId>,
    batch: &mut Batch,
) -> Result<(), StorageError> {
    let holder = |write: &PreparedWrite| -> Result<Option<Vec<u8>>, StorageError> {
        let (_, uuid, doc) = write.parts();
        let Some(table) = table_of(uuid) else { return Ok(None) };
        Ok(Some(holder_key(table, &keystring::encode(id_of(doc)?)?)))
    };
    for (txn, _) in list(snapshot)?.iter().filter(|(_, ts)| *ts > common) {
        let Some(prepared) = read(snapshot, txn)? else { continue };
        batch.remove(Keyspace::Prepared, txn_key(b't', txn, None));
        for (n, write) in prepared.writes.iter().enumerate() {
            batch.remove(Keyspace::Prepared, txn_key(b't', txn, Some(n)));
            if let Some(key) = holder(write)? {
                batch.remove(Keyspace::Prepared, key);
            }
        }
    }
    let mut prepare_ts = Timestamp::NULL;
    let from = resolved_key(Timestamp::from_u64(common.as_u64() + 1), &TxnId(Vec::new()), None);
    let from = from.get(..9).unwrap_or_default();
    for item in snapshot.range(Keyspace::Prepared, Bound::Included(from), Bound::Excluded(b"s")) {
        let (key, value) = item?;
        let (txn, n) = split_txn(key.get(9..).unwrap_or_default()).ok_or_else(broken)?;
        batch.remove(Keyspace::Prepared, key);
        if n.is_none() {
            prepare_ts = Reader(&value).ts().ok_or_else(broken)?;
        }
        if prepare_ts > common {
            continue;
        }
        let n = n.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        batch.put(Keyspace::Prepared, txn_key(b't', &txn, n), value.clone());
        if n.is_some() {
            let write = PreparedWrite::parse(&value).ok_or_else(broken)?;
            if let Some(key) = holder(&write)? {
                let held = [&ts_value(prepare_ts)[..], &txn.0].concat();
                batch.put(Keyspace::Prepared, key, held);
            }
        }
    }
    Ok(())
}

/// The prepared transaction that wrote a document.
pub(crate) fn holder(
    snapshot: &dyn Snapshot,
    table: TableId,
    id_key: &[u8],
) -> Result<Option<(TxnId, Timestamp)>, StorageError> {
    let Some(value) = snapshot.get(Keyspace::Prepared, &holder_key(table, id_key))? else {
        return Ok(None);
    };
    let mut reader = Reader(&value);
    let ts = reader.ts().ok_or_else(broken)?;
    Ok(Some((TxnId(reader.0.to_vec()), ts)))
}

/// True if a transaction prepared at or before `until` has written to this table (or to any table).
pub(crate) fn any_held(
    snapshot: &dyn Snapshot,
    table: Option<TableId>,
    until: Timestamp,
) -> Result<bool, StorageError> {
    let mut rows = vec![b'k'];
    if let Some(table) = table {
        rows.extend_from_slice(&table.key(&[]));
    }
    for item in prefix(snapshot, &rows) {
        if Reader(&item?.1).ts().ok_or_else(broken)? <= until {
            return Ok(true);
        }
    }
    Ok(false)
}

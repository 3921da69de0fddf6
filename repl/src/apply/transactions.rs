//! `applyOps`: many operations that take effect at one timestamp.
//!
//! ```text
//! a plain applyOps                                applied at its ts
//! partialTxn ... partialTxn ... last              above 16 MB: linked by prevOpTime, applied at the last one's ts
//! [partialTxn ...] prepare   commitTransaction    held from the prepare entry on, applied at commitTimestamp
//! multiOpType: 1                                  several retryable writes in one entry; prevOpTime links no parts
//! ```
//! The parts of a chain are read back from our own oplog, one at a time, because a transaction may be larger than
//! memory.

use std::collections::HashMap;

use bson::{RawDocumentBuf, raw::cstr};
use protocol::{
    OpTime, OplogEntry, RawDoc, Timestamp,
    oplog_entry::{ApplyOps, Command, MultiOpType, OpKind, ReplOperation},
};
use storage::{Apply, PreparedWrite, TxnId};
use uuid::Uuid;

use super::{
    Applier, ApplyError, Mode, Moment, Place,
    crud::{document_id, updated},
    parse,
    sessions::TxnState,
};

impl Applier {
    pub(super) fn apply_ops(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
    ) -> Result<(), ApplyError> {
        let ts = entry.op_time.ts;
        if entry.multi_op_type == Some(MultiOpType::AppliedSeparately) {
            self.operations_at(batch, entry, ops, ts, Place::of(entry))?;
            return self.note_retryable_write(batch, entry);
        }
        if ops.partial_txn {
            return self.first_part(batch, entry);
        }
        if ops.prepare {
            return self.prepare(batch, entry, ops);
        }
        self.whole_chain_at(batch, entry, ops, ts)?;
        match entry.prev_op_time {
            Some(_) => self.note_session(batch, entry, None, Some(TxnState::Committed)),
            None => Ok(()),
        }
    }

    /// Only the first part of a chain has an effect: it records where the transaction starts.
    fn first_part(&self, batch: &mut Apply, entry: &OplogEntry<'_>) -> Result<(), ApplyError> {
        match entry.prev_op_time {
            Some(prev) if prev.is_null() => {
                self.note_session(batch, entry, Some(entry.op_time), Some(TxnState::InProgress))
            }
            _ => Ok(()),
        }
    }

    /// Applies the chain that ends with `last`, all of it at `ts`.
    fn whole_chain_at(
        &self,
        batch: &mut Apply,
        last: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
        ts: Timestamp,
    ) -> Result<(), ApplyError> {
        for part in self.earlier_parts(last)? {
            let part = self.part(part, last.op_time)?;
            let part = parse(&part)?;
            self.operations_at(batch, last, &apply_ops_of(&part)?, ts, Place::of(&part))?;
        }
        self.operations_at(batch, last, ops, ts, Place::of(last))
    }

    /// Applies the operations of one `applyOps`, the first of them at `place`. `entry` determines the timestamp.
    fn operations_at(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
        ts: Timestamp,
        mut place: Place,
    ) -> Result<(), ApplyError> {
        for op in ops.iter() {
            let op = op.map_err(|e| ApplyError::entry(entry.op_time, e))?;
            match &op.kind {
                OpKind::Insert | OpKind::Update { .. } | OpKind::Delete => {
                    self.crud(batch, entry, &op, Moment { ts, place })?;
                }
                OpKind::Command(Command::ApplyOps(inner)) => {
                    let inside = Place { index: 0, ..place };
                    self.operations_at(batch, entry, inner, ts, inside)?;
                }
                OpKind::Command(command) => self.ddl(batch, entry, &op, command, ts)?,
                OpKind::Noop => {}
            }
            place.index += 1;
        }
        Ok(())
    }

    /// Timestamps of the parts before `last`, oldest first.
    fn earlier_parts(&self, last: &OplogEntry<'_>) -> Result<Vec<Timestamp>, ApplyError> {
        let mut parts = Vec::new();
        let mut prev = last.prev_op_time;
        while let Some(at) = prev.filter(|at| !at.is_null()) {
            parts.push(at.ts);
            prev = parse(&self.part(at.ts, last.op_time)?)?.prev_op_time;
        }
        parts.reverse();
        Ok(parts)
    }

    fn part(&self, ts: Timestamp, last: OpTime) -> Result<RawDoc, ApplyError> {
        self.store.oplog().entry_written(ts)?.ok_or(ApplyError::ChainBroken { entry: last })
    }

    /// Applies a prepare. During initial sync the documents may be ahead of the transaction, so a prepare only writes
    /// its session row; undecided transactions are prepared at the end, see [`Applier::hold_prepared`].
    fn prepare(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
    ) -> Result<(), ApplyError> {
        let parts = self.earlier_parts(entry)?;
        let start = match parts.first() {
            None => entry.op_time,
            Some(ts) => parse(&self.part(*ts, entry.op_time)?)?.op_time,
        };
        if self.mode == Mode::Steady {
            self.hold(batch, entry, ops, parts)?;
        }
        self.note_session(batch, entry, Some(start), Some(TxnState::Prepared))
    }

    /// Prepares the transaction whose prepare entry is at `prepared`, at the end of an initial sync.
    pub(super) fn hold_prepared(
        &self,
        batch: &mut Apply,
        prepared: OpTime,
    ) -> Result<(), ApplyError> {
        let raw = self.part(prepared.ts, prepared)?;
        let entry = parse(&raw)?;
        let parts = self.earlier_parts(&entry)?;
        self.hold(batch, &entry, &apply_ops_of(&entry)?, parts)
    }

    fn hold(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
        parts: Vec<Timestamp>,
    ) -> Result<(), ApplyError> {
        let mut held = Held::default();
        for part in parts {
            let part = self.part(part, entry.op_time)?;
            let part = parse(&part)?;
            held.operations(self, batch, entry, &apply_ops_of(&part)?, Place::of(&part))?;
        }
        held.operations(self, batch, entry, ops, Place::of(entry))?;
        Ok(batch.prepare(&txn_id(entry)?, entry.op_time.ts, held.writes)?)
    }

    pub(super) fn commit_transaction(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        commit_ts: Timestamp,
    ) -> Result<(), ApplyError> {
        let ts = entry.op_time.ts;
        match self.mode {
            Mode::Steady => batch.commit_prepared(&txn_id(entry)?, commit_ts, ts)?,
            Mode::InitialSync => {
                let prepared = entry.prev_op_time.map_or(Timestamp::NULL, |at| at.ts);
                let raw = self.part(prepared, entry.op_time)?;
                let prepared = parse(&raw)?;
                self.whole_chain_at(batch, &prepared, &apply_ops_of(&prepared)?, ts)?;
            }
        }
        self.note_session(batch, entry, None, Some(TxnState::Committed))
    }

    pub(super) fn abort_transaction(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
    ) -> Result<(), ApplyError> {
        if self.mode == Mode::Steady {
            batch.abort_prepared(&txn_id(entry)?, entry.op_time.ts)?;
        }
        self.note_session(batch, entry, None, Some(TxnState::Aborted))
    }
}

/// The writes of a prepared transaction: the resulting documents, computed at prepare. The primary lets nobody else
/// change them until the decision.
#[derive(Default)]
struct Held {
    writes: Vec<PreparedWrite>,
    /// Documents already written by this transaction, by collection and raw `_id`.
    seen: HashMap<(Uuid, Vec<u8>), Option<RawDoc>>,
}

impl Held {
    fn operations(
        &mut self,
        applier: &Applier,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
        mut place: Place,
    ) -> Result<(), ApplyError> {
        for op in ops.iter() {
            let op = op.map_err(|e| ApplyError::entry(entry.op_time, e))?;
            match op.kind {
                OpKind::Noop => {}
                OpKind::Command(_) => {
                    let why = "a prepared transaction holds a command";
                    return Err(ApplyError::entry(entry.op_time, why));
                }
                _ => self.operation(applier, batch, entry, &op, place)?,
            }
            place.index += 1;
        }
        Ok(())
    }

    fn operation(
        &mut self,
        applier: &Applier,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        op: &ReplOperation<'_>,
        place: Place,
    ) -> Result<(), ApplyError> {
        let Some(coll) = applier.collection_of(batch, op, entry.op_time)? else { return Ok(()) };
        let id = document_id(op, entry.op_time)?;
        let mut id_doc = RawDocumentBuf::new();
        id_doc.append(cstr!("_id"), id);
        let key = (coll.uuid(), id_doc.as_bytes().to_vec());
        let keeps_image = applier.wants_pre_image(&coll, entry, op);
        let pre = match self.seen.get(&key) {
            Some(written) => written.clone(),
            None if keeps_image || matches!(op.kind, OpKind::Update { .. }) => {
                batch.get(&coll, id)?
            }
            None => None,
        };
        if let Some(pre) = pre.as_ref().filter(|_| keeps_image) {
            self.writes.push(applier.held_pre_image(batch, &coll, entry, place, pre)?);
        }
        let after = match (&op.kind, pre) {
            (OpKind::Insert, _) => Some(RawDoc::from(op.o)),
            (OpKind::Delete, _) => None,
            (_, Some(pre)) => Some(RawDoc::from(updated(&pre, op, entry.op_time)?)),
            (_, None) => {
                let why = "it updates a document that is not here";
                return Err(ApplyError::entry(entry.op_time, why));
            }
        };
        self.writes.push(match &after {
            Some(doc) => PreparedWrite::Put { coll: coll.uuid(), doc: doc.clone() },
            None => PreparedWrite::Delete { coll: coll.uuid(), doc_id: RawDoc::from(id_doc) },
        });
        self.seen.insert(key, after);
        Ok(())
    }
}

fn apply_ops_of<'a>(entry: &OplogEntry<'a>) -> Result<ApplyOps<'a>, ApplyError> {
    match &entry.op.kind {
        OpKind::Command(Command::ApplyOps(ops)) => Ok(ops.clone()),
        _ => Err(ApplyError::entry(entry.op_time, "it is no part of a transaction")),
    }
}

/// The id of a prepared transaction: its session and number.
fn txn_id(entry: &OplogEntry<'_>) -> Result<TxnId, ApplyError> {
    let Some(session) = entry.session else {
        return Err(ApplyError::entry(entry.op_time, "a prepared transaction without session"));
    };
    let mut id = session.lsid.as_bytes().to_vec();
    id.extend_from_slice(&session.txn_number.to_be_bytes());
    Ok(TxnId(id))
}

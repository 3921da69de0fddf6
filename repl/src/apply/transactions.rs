//! `applyOps`: many operations that take effect at one moment.
//!
//! ```text
//! an applyOps of its own                          applied at its ts
//! partialTxn ... partialTxn ... last              beyond 16 MB: linked by prevOpTime, applied at the last one's ts
//! [partialTxn ...] prepare   commitTransaction    applied when the commit comes
//! multiOpType: 1                                  several retryable writes in one entry; prevOpTime links no parts
//! ```
//! The parts of a chain are read back from our own oplog, one at a time: a transaction may be larger than memory.

use protocol::{
    OpTime, OplogEntry, RawDoc, Timestamp,
    oplog_entry::{ApplyOps, Command, MultiOpType, OpKind},
};
use storage::Apply;

use super::{Applier, ApplyError, Moment, parse, sessions::TxnState};

impl Applier {
    pub(super) fn apply_ops(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
    ) -> Result<(), ApplyError> {
        let ts = entry.op_time.ts;
        if entry.multi_op_type == Some(MultiOpType::AppliedSeparately) {
            self.operations_at(batch, entry, ops, ts, &mut 0)?;
            return self.note_retryable_write(batch, entry);
        }
        if ops.partial_txn {
            return self.first_part(batch, entry);
        }
        if ops.prepare {
            return self.prepare(batch, entry);
        }
        self.whole_chain_at(batch, entry, ops, ts)?;
        match entry.prev_op_time {
            Some(_) => self.note_session(batch, entry, None, Some(TxnState::Committed)),
            None => Ok(()),
        }
    }

    /// Of the parts of a chain only the first leaves a trace: where the transaction starts.
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
        let mut index = 0;
        for part in self.earlier_parts(last)? {
            let part = self.part(part, last.op_time)?;
            self.operations_at(batch, last, &apply_ops_of(&parse(&part)?)?, ts, &mut index)?;
        }
        self.operations_at(batch, last, ops, ts, &mut index)
    }

    /// The operations within one `applyOps`. `entry` is the one that gives the moment.
    fn operations_at(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        ops: &ApplyOps<'_>,
        ts: Timestamp,
        index: &mut i64,
    ) -> Result<(), ApplyError> {
        for op in ops.iter() {
            let op = op.map_err(|e| ApplyError::entry(entry.op_time, e))?;
            match &op.kind {
                OpKind::Insert | OpKind::Update { .. } | OpKind::Delete => {
                    self.crud(batch, entry, &op, Moment { ts, index: *index })?;
                }
                OpKind::Command(Command::ApplyOps(inner)) => {
                    self.operations_at(batch, entry, inner, ts, &mut 0)?;
                }
                OpKind::Command(command) => self.ddl(batch, entry, &op, command, ts)?,
                OpKind::Noop => {}
            }
            *index += 1;
        }
        Ok(())
    }

    /// Where the parts before `last` stand, oldest first.
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

    /// A prepare leaves only its session row: its operations stand in our oplog, and take effect when it commits.
    fn prepare(&self, batch: &mut Apply, entry: &OplogEntry<'_>) -> Result<(), ApplyError> {
        let start = match self.earlier_parts(entry)?.first() {
            None => entry.op_time,
            Some(ts) => parse(&self.part(*ts, entry.op_time)?)?.op_time,
        };
        self.note_session(batch, entry, Some(start), Some(TxnState::Prepared))
    }

    pub(super) fn commit_transaction(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
    ) -> Result<(), ApplyError> {
        let prepared = entry.prev_op_time.map_or(Timestamp::NULL, |at| at.ts);
        let raw = self.part(prepared, entry.op_time)?;
        let prepared = parse(&raw)?;
        self.whole_chain_at(batch, &prepared, &apply_ops_of(&prepared)?, entry.op_time.ts)?;
        self.note_session(batch, entry, None, Some(TxnState::Committed))
    }

    pub(super) fn abort_transaction(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
    ) -> Result<(), ApplyError> {
        self.note_session(batch, entry, None, Some(TxnState::Aborted))
    }
}

fn apply_ops_of<'a>(entry: &OplogEntry<'a>) -> Result<ApplyOps<'a>, ApplyError> {
    match &entry.op.kind {
        OpKind::Command(Command::ApplyOps(ops)) => Ok(ops.clone()),
        _ => Err(ApplyError::entry(entry.op_time, "it is no part of a transaction")),
    }
}

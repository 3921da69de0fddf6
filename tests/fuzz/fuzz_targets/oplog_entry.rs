//! Parses an oplog entry and the operations inside it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::oplog_entry::{Command, OplogEntry};

fuzz_target!(|data: &[u8]| {
    let Ok(raw) = bson::RawDocument::from_bytes(data) else { return };
    let Ok(entry) = OplogEntry::parse(raw) else { return };
    entry.op.stmt_ids.iter().for_each(drop);
    match entry.op.command() {
        Some(Command::ApplyOps(apply_ops)) => apply_ops.iter().for_each(drop),
        Some(Command::CreateIndexes { spec, .. }) => drop(spec.to_spec()),
        _ => {}
    }
});

use std::io::Write as _;

use fjall::AbstractTree as _;

use super::*;
use crate::{
    engine::{Batch, Engine, Keyspace, Sync, fjall::Fjall},
    layout::{APPLIED, numbers},
};

/// Writes batches of one row each; if `marked`, each also records how far the engine was synced.
fn write(engine: &Fjall, rows: u64, marked: bool) {
    for row in 0..rows {
        let mut batch = Batch::default();
        batch.put(Keyspace::Current, row.to_be_bytes(), [7u8; 100]);
        if marked {
            batch.put(Keyspace::Meta, APPLIED, numbers([1, 1, 1, engine.synced()]));
        }
        engine.commit(batch, Sync::No).unwrap();
    }
}

fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn filled(act: impl FnOnce(&Fjall)) -> (tempfile::TempDir, u64) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Fjall::open_here(dir.path(), false).unwrap();
    act(&engine);
    drop(engine);
    let end = check(dir.path(), Rubble::Cut).unwrap().held[&0].end;
    (dir, end)
}

#[test]
fn rubble_that_was_synced_is_damage() {
    let (dir, end) = filled(|engine| {
        write(engine, 10, true);
        engine.sync().unwrap();
        write(engine, 10, true);
    });
    for part in [0, 1, 5] {
        let path = file(dir.path(), 0);
        flip(&path, end * part / 20);
        let error = check(dir.path(), Rubble::Cut).unwrap_err().to_string();
        assert!(error.contains("0.jnl is damaged") && error.contains("was synced"), "{error}");
        flip(&path, end * part / 20);
    }
    assert_eq!(check(dir.path(), Rubble::Cut).unwrap().held[&0].end, end);
}

#[test]
fn rubble_that_was_never_synced_is_cut_off_even_in_front_of_whole_batches() {
    let (dir, end) = filled(|engine| {
        write(engine, 10, true);
        engine.sync().unwrap();
        write(engine, 10, true);
    });
    let before = check(dir.path(), Rubble::Cut).unwrap().last;
    flip(&file(dir.path(), 0), end * 3 / 4);
    let cut = check(dir.path(), Rubble::Cut).unwrap();
    let at = cut.held[&0].end;
    assert!(cut.last < before && at >= end / 2 && at <= end * 3 / 4, "{at} of {end}, {cut:?}");
    let engine = Fjall::open_here(dir.path(), true).unwrap();
    assert!(engine.snapshot().get(Keyspace::Current, &3u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn batches_of_a_program_that_did_not_tell_count_as_synced() {
    let (dir, end) = filled(|engine| {
        write(engine, 5, false);
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, APPLIED, numbers([1, 1, 1]));
        engine.commit(batch, Sync::No).unwrap();
    });
    flip(&file(dir.path(), 0), end / 10);
    assert!(check(dir.path(), Rubble::Cut).is_err());
}

#[test]
fn a_worker_that_has_ended_is_noticed_without_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Fjall::open_here(dir.path(), false).unwrap();
    write(&engine, 10, true);
    engine.tend().unwrap();
    // Without this directory the worker cannot write the table.
    let current = &engine.keyspaces[Keyspace::Current as usize];
    std::fs::rename(current.path().join("tables"), dir.path().join("aside")).unwrap();
    current.rotate_memtable().unwrap();
    let since = std::time::Instant::now();
    while engine.tend().is_ok() {
        assert!(since.elapsed().as_secs() < 60, "nobody noticed");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_bulk_load_flushes_is_synced_first() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Fjall::open_here(dir.path(), false).unwrap();
    write(&engine, 100, true);
    assert_eq!(engine.synced(), 0);
    let mut run = (0..100u8).map(|i| Ok(([b'z', i].into(), [i].into())));
    engine.ingest(Keyspace::Current, &mut run).unwrap();
    let version = engine.keyspace(Keyspace::Current).tree.current_version();
    let flushed = version.iter_tables().filter(|table| table.global_seqno() == 0);
    let last = flushed.map(lsm_tree::Table::get_highest_seqno).max().unwrap();
    assert!(last >= 100 && engine.synced() >= last, "{last}, {}", engine.synced());
}

#[test]
fn the_mark_refuses_journals_that_were_cut_to_nothing_or_lost() {
    let (dir, _) = filled(|engine| {
        write(engine, 10, true);
        engine.sync().unwrap();
        engine.tend().unwrap();
    });
    let path = file(dir.path(), 0);
    let whole = std::fs::read(&path).unwrap();
    drop(Fjall::open_here(dir.path(), true).unwrap());
    std::fs::write(&path, "").unwrap();
    let error = Fjall::open_here(dir.path(), true).err().unwrap().to_string();
    assert!(error.contains("0.jnl") && error.contains("lost its end"), "{error}");
    std::fs::rename(&path, file(dir.path(), 7)).unwrap();
    std::fs::write(&path, &whole).unwrap();
    assert!(Fjall::open_here(dir.path(), true).is_err(), "a gap");
    std::fs::remove_file(file(dir.path(), 7)).unwrap();
    drop(Fjall::open_here(dir.path(), true).unwrap());
}

/// Writes a journal in the engine's format, with batches of twenty rows of a kilobyte.
fn long_journal(path: &Path, bytes: u64) -> u64 {
    let mut out = std::io::BufWriter::new(File::create(path).unwrap());
    let (mut written, mut number) = (0, 0u64);
    while written < bytes {
        number += 1;
        let mut rows = Vec::new();
        for row in 0..20u64 {
            rows.extend([2, 0, 0]);
            rows.extend(1u64.to_le_bytes());
            rows.extend(8u16.to_le_bytes());
            rows.extend(1000u32.to_le_bytes());
            rows.extend(1000u32.to_le_bytes());
            rows.extend((number * 20 + row).to_be_bytes());
            rows.extend([7; 1000]);
        }
        let head = [&[1][..], &20u32.to_le_bytes(), &number.to_le_bytes()].concat();
        let sum = xxhash_rust::xxh3::xxh3_64(&rows);
        let tail = [&[3][..], &sum.to_le_bytes(), b"FJL\x03"].concat();
        for part in [&head, &rows, &tail] {
            out.write_all(part).unwrap();
            written += part.len() as u64;
        }
    }
    written
}

/// `JOURNAL_MIB=1024` measures the time for a gibibyte.
#[test]
fn a_long_journal_is_read_to_its_end() {
    let mebibytes = std::env::var("JOURNAL_MIB").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let dir = tempfile::tempdir().unwrap();
    let written = long_journal(&file(dir.path(), 0), mebibytes << 20);
    let since = std::time::Instant::now();
    let found = check(dir.path(), Rubble::Leave).unwrap();
    println!("{mebibytes} MiB in {:?}", since.elapsed());
    assert_eq!(found.held[&0].end, written);
}

#[test]
fn a_name_that_no_journal_has_and_a_gap_are_refused() {
    let (dir, _) = filled(|engine| write(engine, 3, true));
    std::fs::write(file(dir.path(), 2), "").unwrap();
    let error = check(dir.path(), Rubble::Cut).unwrap_err().to_string();
    assert!(error.contains("1.jnl") && error.contains("missing"), "{error}");
    std::fs::remove_file(file(dir.path(), 2)).unwrap();
    std::fs::write(dir.path().join("01.jnl"), "").unwrap();
    let error = check(dir.path(), Rubble::Cut).unwrap_err().to_string();
    assert!(error.contains("01.jnl"), "{error}");
}

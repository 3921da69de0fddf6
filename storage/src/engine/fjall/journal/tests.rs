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
    let engine = Fjall::open(dir.path(), 1 << 20, false).unwrap();
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
    let engine = Fjall::open(dir.path(), 1 << 20, true).unwrap();
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

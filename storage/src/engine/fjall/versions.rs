//! Limits which versions of its trees the engine keeps in memory.
//!
//! ```text
//!   versions of a tree    v1 - v2 - v3 - v4 - v5 - v6      each flush and each compaction adds one
//!   open snapshots             S1             S2           each sees the last version before it
//!   the engine keeps           v2 - v3 - v4 - v5 - v6      all since the oldest snapshot, with their memtables
//!   needed                     v2             v5   v6
//! ```
//! One long read would keep every memtable that is written meanwhile. So we release the versions between: the engine
//! has no call for that, but it has one to add a version, and one to release all versions before a sequence number.
//!
//! V1 Snapshots are opened only by [`Versions::open`]: the version of an unlisted snapshot could be released.
//! V2 A snapshot sees the version that was the newest when it was opened: the engine adds a version and advances its
//!    sequence number under one lock.
//! V3 No version is listed twice in the engine: when it releases one it removes the file of that name.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use fjall::{AbstractTree, Database, Keyspace};
use lsm_tree::SeqNo;
use parking_lot::Mutex;

use super::ascent::Still;

/// The open snapshots.
pub(super) struct Versions {
    keyspaces: Vec<Keyspace>,
    open: Mutex<Open>,
}

struct Open {
    snapshots: BTreeMap<SeqNo, Seen>,
    /// By keyspace: manifest files of versions before this one are removed.
    removed_before: Vec<u64>,
}

/// The versions that the snapshots at one sequence number see.
struct Seen {
    holders: usize,
    /// By keyspace: the version id.
    states: Vec<u64>,
}

/// A snapshot of the engine, listed while it is held.
pub(super) struct Listed {
    pub(super) at: fjall::Snapshot,
    versions: Arc<Versions>,
    still: Arc<[Option<Still>]>,
}

impl Listed {
    /// The state of a keyspace that had no sealed memtable when the snapshot was opened.
    pub(super) fn still(&self, keyspace: usize) -> Option<&Still> {
        self.still.get(keyspace)?.as_ref()
    }
}

impl Clone for Listed {
    fn clone(&self) -> Self {
        if let Some(seen) = self.versions.open.lock().snapshots.get_mut(&self.at.seqno()) {
            seen.holders += 1;
        }
        Self {
            at: self.at.clone(),
            versions: Arc::clone(&self.versions),
            still: Arc::clone(&self.still),
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut open = self.versions.open.lock();
        if let Some(seen) = open.snapshots.get_mut(&self.at.seqno()) {
            seen.holders -= 1;
            if seen.holders == 0 {
                open.snapshots.remove(&self.at.seqno());
            }
        }
    }
}

impl Versions {
    /// For a database that was just opened: opening removed the files of all versions but the newest.
    pub(super) fn new(keyspaces: &[Keyspace]) -> Arc<Self> {
        let keyspaces = keyspaces.to_vec();
        let removed_before = newest(&keyspaces);
        let open = Mutex::new(Open { snapshots: BTreeMap::new(), removed_before });
        Arc::new(Self { keyspaces, open })
    }

    /// Opens a snapshot of the present.
    pub(super) fn open(self: &Arc<Self>, db: &Database) -> Listed {
        let mut open = self.open.lock();
        loop {
            let states = newest(&self.keyspaces);
            let mut still: Vec<_> = self.keyspaces.iter().map(Still::of).collect();
            let at = db.snapshot();
            // V2 holds if no version was added meanwhile; a few are added per second.
            if states == newest(&self.keyspaces) {
                let seen = Seen { holders: 0, states };
                open.snapshots.entry(at.seqno()).or_insert(seen).holders += 1;
                for (ks, still) in self.keyspaces.iter().zip(&mut still) {
                    still.take_if(|still| !still.holds(ks));
                }
                return Listed { at, versions: Arc::clone(self), still: still.into() };
            }
        }
    }

    /// Releases versions that no snapshot needs.
    pub(super) fn prune(&self) {
        let Open { snapshots, removed_before } = &mut *self.open.lock();
        // The engine takes 0 for "nothing is known".
        let oldest = snapshots.keys().next().copied().unwrap_or(SeqNo::MAX);
        if oldest == 0 {
            return;
        }
        for (at, (ks, removed_before)) in self.keyspaces.iter().zip(removed_before).enumerate() {
            let mut needed: BTreeMap<u64, SeqNo> = snapshots
                .iter()
                .filter_map(|(moment, seen)| Some((*seen.states.get(at)?, *moment)))
                .collect();
            let mut states = ks.tree.get_version_history_lock();
            if states.len() == 1 {
                continue;
            }
            // Whoever adds a version holds the lock until the file names it.
            let Some(newest) = named_newest(ks.path()) else { continue };
            needed.remove(&newest);
            if states.len() <= needed.len() + 1 {
                continue;
            }
            let mut kept: Vec<_> =
                needed.values().map(|moment| states.get_version_for_snapshot(*moment)).collect();
            kept.push(states.latest_version());
            for state in kept {
                states.append_version(state);
            }
            // Of all versions before the oldest snapshot the engine keeps only the last one, which is the one that
            // was just added again. The engine would also remove the files of released versions, including the ones
            // we keep, so it gets a folder without files.
            let nowhere = ks.path().join("none");
            if let Err(error) = states.maintenance(&nowhere, oldest) {
                tracing::warn!(keyspace = %ks.name(), %error, "old versions of the keyspace could not be removed from memory");
            }
            // Opening a database reads only the newest version's file.
            for id in *removed_before..newest {
                // Most are already gone: the engine removes some itself.
                let _ = std::fs::remove_file(ks.path().join(format!("v{id}")));
            }
            *removed_before = newest;
        }
    }
}

/// The newest version of a tree, according to its file `current`.
fn named_newest(folder: &Path) -> Option<u64> {
    newest_in(&std::fs::read(folder.join("current")).ok()?)
}

/// The version id in a file named `current`.
pub(super) fn newest_in(current: &[u8]) -> Option<u64> {
    current.first_chunk().map(|id| u64::from_le_bytes(*id))
}

/// The newest version of each tree.
fn newest(keyspaces: &[Keyspace]) -> Vec<u64> {
    keyspaces.iter().map(|ks| ks.tree.current_version().id()).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        ops::Bound::{self, Unbounded},
        sync::Arc,
    };

    use fjall::AbstractTree;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use crate::engine::{Batch, Engine, Keyspace, Snapshot, Sync, fjall::Fjall};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    #[test]
    fn snapshots_stay_as_they_were_and_keep_no_more_than_they_need() {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
        println!("SEED={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut engine = Fjall::open_here(dir.path(), false).unwrap();
        let mut model = Model::new();
        let mut open: Vec<(Arc<dyn Snapshot>, Model)> = Vec::new();
        for _ in 0..150 {
            let committed = model.clone();
            let mut batch = Batch::default();
            for _ in 0..random.random_range(1..8) {
                let key = vec![b'k', random.random_range(0..60)];
                if random.random_bool(0.2) {
                    model.remove(&key);
                    batch.remove(Keyspace::Current, key);
                } else {
                    // A value above the threshold is stored in a blob file.
                    let len = if random.random_bool(0.05) { 70_000 } else { 20 };
                    let value = vec![random.random::<u8>(); len];
                    model.insert(key.clone(), value.clone());
                    batch.put(Keyspace::Current, key, value);
                }
            }
            let current = engine.keyspace(Keyspace::Current);
            match random.random_range(0..12) {
                0..3 => open.push((engine.snapshot(), committed.clone())),
                3..5 if !open.is_empty() => {
                    drop(open.swap_remove(random.random_range(0..open.len())));
                }
                5..7 => current.rotate_memtable_and_wait().unwrap(),
                7 => current.major_compact().unwrap(),
                8 => {
                    open.clear();
                    drop(engine);
                    engine = Fjall::open_here(dir.path(), false).unwrap();
                }
                _ => {}
            }
            engine.commit(batch, Sync::No).unwrap();
            assert_eq!(model, rows(&*engine.snapshot()));
            for (snapshot, then) in &open {
                assert_eq!(*then, rows(&**snapshot));
                let key = vec![b'k', random.random_range(0..60)];
                let got = snapshot.get(Keyspace::Current, &key).unwrap();
                assert_eq!(then.get(&key).map(Vec::as_slice), got.as_deref());
                let bounds = (bound(&mut random), bound(&mut random));
                let (from, to) = (
                    bounds.0.as_ref().map(<[u8; 2]>::as_slice),
                    bounds.1.as_ref().map(<[u8; 2]>::as_slice),
                );
                let up: Vec<_> = snapshot.range(Keyspace::Current, from, to).map(row).collect();
                let down = snapshot.range_back(Keyspace::Current, from, to).map(row);
                let mut down: Vec<_> = down.collect();
                down.reverse();
                assert_eq!(up, down, "from {from:?} to {to:?}");
            }
            engine.versions.prune();
            for ks in &engine.keyspaces {
                let newest = super::named_newest(ks.path()).unwrap();
                assert!(ks.path().join(format!("v{newest}")).exists(), "V3");
            }
            let tree = &engine.keyspace(Keyspace::Current).tree;
            let states = tree.get_version_history_lock().len();
            assert!(states <= open.len() + 1, "{states} states for {} snapshots", open.len());
        }
        open.clear();
        engine.versions.prune();
        let files = std::fs::read_dir(engine.keyspace(Keyspace::Current).path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let states = names.filter(|name| name.starts_with('v')).count();
        assert_eq!(1, states, "files of states that are gone");
        drop(engine);
        let engine = Fjall::open_here(dir.path(), false).unwrap();
        assert_eq!(model, rows(&*engine.snapshot()));
    }

    fn rows(snapshot: &dyn Snapshot) -> Model {
        let rows = snapshot.range(Keyspace::Current, Unbounded, Unbounded);
        rows.map(row).collect()
    }

    fn row(item: crate::engine::Item) -> (Vec<u8>, Vec<u8>) {
        item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
    }

    fn bound(random: &mut StdRng) -> Bound<[u8; 2]> {
        let key = [b'k', random.random_range(0..60)];
        match random.random_range(0..5) {
            0 => Unbounded,
            1..3 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }
}

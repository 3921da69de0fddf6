//! The decisions of a rollback, without I/O: where the two histories diverge, whether we may roll back, and what is
//! lost.
//!
//! ```text
//! ours:    a b c | d e f          c is the common point, d to f are lost
//! source:  a b c | x y            whatever the set committed lies before d
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bson::RawDocument;
use protocol::{
    OpTime, OpTimeAndWall, OplogEntry, Timestamp,
    oplog_entry::{Command, OpKind, OplogEntryError, ReplOperation},
};
use uuid::Uuid;

/// A binary search for our last entry that the source has, too. All entries up to some point are shared, and none
/// after it.
#[derive(Debug)]
pub struct Search {
    shared: usize,
    end: usize,
}

impl Search {
    /// A search among this many entries in ascending order. The first one is known to be shared.
    pub fn among(entries: usize) -> Self {
        Self { shared: 1.min(entries), end: entries }
    }

    /// The index of the entry to ask the source for; `None` when the search is over.
    pub fn next(&self) -> Option<usize> {
        (self.shared < self.end).then(|| self.shared + (self.end - self.shared) / 2)
    }

    /// Tells the search whether the source has the entry.
    pub fn answer(&mut self, asked: usize, shared: bool) {
        if shared {
            self.shared = asked + 1;
        } else {
            self.end = asked;
        }
    }

    /// The index of the last shared entry.
    pub(crate) fn last_shared(&self) -> Option<usize> {
        self.shared.checked_sub(1)
    }
}

/// Our lost branch: the entries that the set does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The common point: the last entry that the source has, too.
    pub common: OpTimeAndWall,
    /// Our first entry that the source does not have.
    pub first: OpTimeAndWall,
    /// Our last entry.
    pub last: OpTimeAndWall,
}

impl Branch {
    /// The length of the lost branch in seconds, computed as in mongod.
    pub fn seconds(&self) -> i64 {
        (self.last.wall.timestamp_millis() - self.first.wall.timestamp_millis()) / 1000
    }

    /// Checks whether we may roll back.
    pub fn check(
        &self,
        committed: OpTime,
        floor: Timestamp,
        limit_secs: i64,
    ) -> Result<(), Refusal> {
        let common = self.common.op_time;
        if common < committed {
            return Err(Refusal::Committed { common, committed });
        }
        let have = self.seconds();
        if have > limit_secs {
            return Err(Refusal::TooLong { limit: limit_secs, have });
        }
        if common.ts < floor {
            return Err(Refusal::HistoryGone { common, floor });
        }
        Ok(())
    }
}

/// The reasons why we do not roll back. Each requires an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The lost branch contains entries that are majority-committed.
    #[error(
        "the set has given up entries that a majority had: the last one that we share with it is {common}, the commit \
         point is {committed}. They stay here and can be read as the past. To go with the set, start this node again, \
         or stop it, empty its dbpath and start it"
    )]
    Committed {
        /// The common point.
        common: OpTime,
        /// The commit point.
        committed: OpTime,
    },
    /// The lost branch is longer than the limit. The text begins like mongod's.
    #[error(
        "not willing to roll back more than {limit} seconds of data. Have: {have} seconds. To let it go, raise \
         rollbackTimeLimitSecs with setParameter; this node then goes on by itself"
    )]
    TooLong {
        /// `rollbackTimeLimitSecs`.
        limit: i64,
        /// The length of the lost branch in seconds.
        have: i64,
    },
    /// The information needed to undo the lost branch has already been removed.
    #[error(
        "the last entry that we share with the set is {common}, and this node can undo nothing before {floor}. What it \
         has can be read as the past. To go with the set, stop it, empty its dbpath and start it"
    )]
    HistoryGone {
        /// The common point.
        common: OpTime,
        /// The earliest timestamp to which we can roll back.
        floor: Timestamp,
    },
}

/// Counts what the lost entries did, for the log.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of operations by kind: `insert`, `update`, `delete`, and the names of commands.
    pub counts: BTreeMap<&'static str, u64>,
    /// The names of the affected collections.
    pub namespaces: BTreeSet<String>,
    /// The UUIDs of the affected collections.
    pub uuids: BTreeSet<Uuid>,
    /// Sessions with retryable writes or transactions.
    pub sessions: BTreeSet<Uuid>,
    /// The number of entries, including no-ops.
    pub entries: u64,
}

impl Tally {
    /// Counts an entry. An entry that cannot be parsed counts as "unknown".
    pub fn add(&mut self, entry: &RawDocument) {
        self.entries += 1;
        let understood = OplogEntry::parse(entry).and_then(|entry| {
            let session = entry.session.and_then(|session| session.lsid.get_binary("id").ok());
            if let Some(id) = session.and_then(|id| Uuid::from_slice(id.bytes).ok()) {
                self.sessions.insert(id);
            }
            self.count(&entry.op)
        });
        if understood.is_err() {
            self.up("unknown");
        }
    }

    fn count(&mut self, op: &ReplOperation<'_>) -> Result<(), OplogEntryError> {
        let what = match &op.kind {
            OpKind::Insert => "insert",
            OpKind::Update { .. } => "update",
            OpKind::Delete => "delete",
            OpKind::Noop => return Ok(()),
            OpKind::Command(Command::ApplyOps(inner)) => {
                for op in inner.iter() {
                    self.count(&op?)?;
                }
                return Ok(());
            }
            OpKind::Command(command) => command_name(command),
        };
        self.up(what);
        let ns = match &op.kind {
            OpKind::Command(command) => collection_of(op.ns, command),
            _ => Some(op.ns.to_owned()),
        };
        self.namespaces.extend(ns);
        self.uuids.extend(op.ui.map(|uuid| Uuid::from_bytes(uuid.bytes())));
        Ok(())
    }

    fn up(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The number of operations of one kind.
    pub(crate) fn count_of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }
}

fn command_name(command: &Command<'_>) -> &'static str {
    match command {
        Command::Create { .. } => "create",
        Command::CollMod { .. } => "collMod",
        Command::Drop { .. } => "drop",
        Command::DropDatabase => "dropDatabase",
        Command::RenameCollection(_) => "renameCollection",
        Command::CreateIndexes { .. } => "createIndexes",
        Command::StartIndexBuild(_) => "startIndexBuild",
        Command::CommitIndexBuild(_) => "commitIndexBuild",
        Command::AbortIndexBuild { .. } => "abortIndexBuild",
        Command::DropIndexes { .. } => "dropIndexes",
        Command::ApplyOps(_) => "applyOps",
        Command::CommitTransaction { .. } => "commitTransaction",
        Command::AbortTransaction => "abortTransaction",
        Command::EmptyCapped { .. } => "emptycapped",
        Command::ConvertToCapped { .. } => "convertToCapped",
        Command::DbCheck => "dbCheck",
        Command::ImportCollection => "importCollection",
        Command::CreateDatabaseMetadata => "createDatabaseMetadata",
        Command::DropDatabaseMetadata => "dropDatabaseMetadata",
        Command::BeginPromotionToShardedCluster => "beginPromotionToShardedCluster",
        Command::CompletePromotionToShardedCluster => "completePromotionToShardedCluster",
    }
}

/// The namespace of the collection that a command changes.
fn collection_of(ns: &str, command: &Command<'_>) -> Option<String> {
    let coll = match command {
        Command::Create { coll, .. }
        | Command::CollMod { coll, .. }
        | Command::Drop { coll, .. }
        | Command::CreateIndexes { coll, .. }
        | Command::DropIndexes { coll, .. }
        | Command::EmptyCapped { coll }
        | Command::ConvertToCapped { coll, .. } => coll,
        Command::StartIndexBuild(build)
        | Command::CommitIndexBuild(build)
        | Command::AbortIndexBuild { build, .. } => build.coll,
        Command::RenameCollection(rename) => return Some(rename.from.to_owned()),
        _ => return None,
    };
    let (db, _) = ns.split_once('.')?;
    Some(format!("{db}.{coll}"))
}

/// The current values of the server parameters for rollback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RollbackSettings {
    /// `rollbackTimeLimitSecs`.
    pub limit_secs: i64,
    /// `createRollbackDataFiles`.
    pub write_files: bool,
    /// `rollbackRemoteOplogQueryBatchSize`: how many of our entries are read before the source is asked.
    pub batch_size: usize,
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn the_last_shared_entry_is_found_in_few_questions() {
        for len in 1..40 {
            for common in 0..len {
                let mut search = Search::among(len);
                let mut asked = 0;
                while let Some(entry) = search.next() {
                    asked += 1;
                    search.answer(entry, entry <= common);
                }
                assert_eq!(search.last_shared(), Some(common), "{len} entries");
                assert!(asked <= 6, "{asked} questions for {len} entries");
            }
        }
        assert_eq!(Search::among(0).last_shared(), None);
    }

    fn at(secs: u32, term: i64) -> OpTimeAndWall {
        OpTimeAndWall {
            op_time: OpTime::new(Timestamp::new(secs, 1), term),
            wall: bson::DateTime::from_millis(i64::from(secs) * 1000),
        }
    }

    #[test]
    fn what_a_majority_had_what_is_too_much_and_what_cannot_be_undone_is_refused() {
        let branch = Branch { common: at(100, 1), first: at(103, 1), last: at(107, 1) };
        let floor = Timestamp::new(100, 1);
        assert_eq!(branch.check(at(100, 1).op_time, floor, 4), Ok(()));
        assert_eq!(
            branch.check(at(101, 1).op_time, floor, 4),
            Err(Refusal::Committed { common: at(100, 1).op_time, committed: at(101, 1).op_time })
        );
        let refused = branch.check(at(100, 1).op_time, floor, 3).unwrap_err();
        assert_eq!(refused, Refusal::TooLong { limit: 3, have: 4 });
        let text = refused.to_string();
        assert!(text.starts_with("not willing to roll back more than 3 seconds of data. Have: 4"));
        assert!(matches!(
            branch.check(OpTime::NULL, Timestamp::new(100, 2), 4),
            Err(Refusal::HistoryGone { .. })
        ));
    }

    #[test]
    fn lost_entries_are_counted_with_those_inside_of_others() {
        let uuid = || bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
        let at = || bson::Timestamp { time: 5, increment: 1 };
        let wall = bson::DateTime::from_millis(5);
        let insert = rawdoc! { "op": "i", "ns": "shop.c", "ui": uuid(), "o": { "_id": 1 }, "ts": at(), "t": 1i64, "v": 2i64, "wall": wall };
        let inner = rawdoc! { "op": "d", "ns": "shop.d", "ui": uuid(), "o": { "_id": 1 } };
        let both = rawdoc! { "op": "c", "ns": "admin.$cmd", "o": { "applyOps": [inner] }, "ts": at(), "t": 1i64, "v": 2i64, "wall": wall };
        let create = rawdoc! { "op": "c", "ns": "shop.$cmd", "ui": uuid(), "o": { "create": "e" }, "ts": at(), "t": 1i64, "v": 2i64, "wall": wall };
        let strange = rawdoc! { "op": "?", "ns": "shop.c", "o": {}, "ts": at(), "t": 1i64, "v": 2i64, "wall": wall };
        let mut tally = Tally::default();
        for entry in [&insert, &both, &create, &strange] {
            tally.add(entry);
        }
        assert_eq!(tally.entries, 4);
        let counts: Vec<_> = tally.counts.into_iter().collect();
        assert_eq!(counts, [("create", 1), ("delete", 1), ("insert", 1), ("unknown", 1)]);
        let names: Vec<_> = tally.namespaces.iter().map(String::as_str).collect();
        assert_eq!(names, ["shop.c", "shop.d", "shop.e"]);
    }
}

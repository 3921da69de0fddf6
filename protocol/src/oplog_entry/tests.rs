use bson::{RawDocumentBuf, rawdoc};

use super::*;

const UUID: [u8; 16] = [7; 16];

fn uuid() -> bson::Binary {
    bson::Uuid::from_bytes(UUID).into()
}

fn entry(op: &str, o: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! {
        "op": op, "ns": "shop.$cmd", "ui": uuid(), "o": o,
        "ts": bson::Timestamp { time: 5, increment: 1 }, "t": 3_i64, "v": 2_i64,
        "wall": bson::DateTime::from_millis(9),
    }
}

fn command(o: &RawDocumentBuf) -> Result<Command<'_>, OplogEntryError> {
    Command::parse(o, None)
}

#[test]
fn an_update_of_a_retryable_write() {
    let raw = rawdoc! {
        "lsid": { "id": uuid() }, "txnNumber": 7_i64, "op": "u", "ns": "shop.items", "ui": uuid(),
        "o": { "$v": 2, "diff": { "u": { "n": 1 } } }, "o2": { "_id": 1 }, "b": true,
        "stmtId": 4, "ts": bson::Timestamp { time: 5, increment: 1 }, "t": 3_i64, "v": 2_i64,
        "wall": bson::DateTime::from_millis(9), "prevOpTime": { "ts": bson::Timestamp { time: 0, increment: 0 }, "t": -1_i64 },
        "needsRetryImage": "postImage", "someday": { "new": true },
    };
    let entry = OplogEntry::parse(&raw).unwrap();
    assert_eq!(entry.op_time, OpTime::new(Timestamp::new(5, 1), 3));
    assert!(matches!(entry.op.kind, OpKind::Update { upsert: true }));
    assert_eq!(entry.op.ui, Some(Uuid::from_bytes(UUID)));
    assert_eq!(entry.op.o2.unwrap().get_i32("_id").unwrap(), 1);
    assert_eq!(entry.op.stmt_ids.iter().collect::<Vec<_>>(), [4]);
    assert_eq!(entry.prev_op_time, Some(OpTime::NULL));
    assert_eq!(entry.op.needs_retry_image, Some(RetryImage::PostImage));
    assert_eq!(entry.session.unwrap().txn_number, 7);
    assert_eq!(entry.op.db(), "shop");
    let position = OplogEntry::op_time_and_wall(&raw).unwrap();
    assert_eq!((position.op_time, position.wall), (entry.op_time, entry.wall));
}

#[test]
fn the_unknown_is_named() {
    let raw = entry("xi", rawdoc! { "_id": 1 });
    assert_eq!(OplogEntry::parse(&raw).unwrap_err(), OplogEntryError::UnknownOp("xi".into()));
    let raw = entry("c", rawdoc! { "truncateRange": "shop.items" });
    let unknown = OplogEntryError::UnknownCommand("truncateRange".into());
    assert_eq!(OplogEntry::parse(&raw).unwrap_err(), unknown);
    let mut raw = entry("n", rawdoc! {});
    raw.append(bson::cstr!("multiOpType"), 2);
    assert!(matches!(OplogEntry::parse(&raw), Err(OplogEntryError::UnknownValue { .. })));
    let raw = rawdoc! { "op": "i", "ns": "a.b", "o": 1 };
    let told = OplogEntry::parse(&raw).unwrap_err().to_string();
    assert_eq!(
        told,
        "BSON field 'OplogEntryBase.o' is the wrong type 'int', expected type 'object'"
    );
}

#[test]
fn renames_drop_what_has_the_name() {
    let parsed = |o: RawDocumentBuf| match command(&o).unwrap() {
        Command::RenameCollection(rename) => rename.drop_target,
        other => panic!("{other:?}"),
    };
    let rename = |target: bson::RawBson| {
        rawdoc! { "renameCollection": "a.b", "to": "a.c", "stayTemp": false, "dropTarget": target }
    };
    assert_eq!(parsed(rename(uuid().into())), DropTarget::Uuid(Uuid::from_bytes(UUID)));
    assert_eq!(parsed(rename(true.into())), DropTarget::Any);
    assert_eq!(parsed(rename(false.into())), DropTarget::None);
    assert_eq!(parsed(rawdoc! { "renameCollection": "a.b", "to": "a.c" }), DropTarget::None);
}

#[test]
fn an_index_specification_comes_without_its_command() {
    let o = rawdoc! { "createIndexes": "c", "v": 2, "key": { "a": 1 }, "name": "a_1" };
    let Command::CreateIndexes { coll, spec } = command(&o).unwrap() else { unreachable!() };
    assert_eq!(coll, "c");
    assert_eq!(spec.to_spec().unwrap(), rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" });
    let o = rawdoc! { "createIndexes": "c", "spec": { "v": 2, "name": "a_1" } };
    let Command::CreateIndexes { spec, .. } = command(&o).unwrap() else { unreachable!() };
    assert_eq!(spec.to_spec().unwrap(), rawdoc! { "v": 2, "name": "a_1" });
}

#[test]
fn inner_operations_are_parsed_when_asked_for() {
    let o = rawdoc! {
        "applyOps": [
            { "op": "i", "ns": "shop.items", "ui": uuid(), "o": { "_id": 1 }, "stmtId": [1, 2] },
            { "op": "??", "ns": "shop.items", "o": {} },
        ],
        "prepare": true, "count": 9_i64,
    };
    let Command::ApplyOps(apply_ops) = command(&o).unwrap() else { unreachable!() };
    assert!(apply_ops.prepare && !apply_ops.partial_txn);
    assert_eq!(apply_ops.count, Some(9));
    let mut ops = apply_ops.iter();
    let first = ops.next().unwrap().unwrap();
    assert!(matches!(first.kind, OpKind::Insert));
    assert_eq!(first.stmt_ids.iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ops.next().unwrap().unwrap_err(), OplogEntryError::UnknownOp("??".into()));
    assert!(ops.next().is_none());
}

#[test]
fn commands_of_every_version() {
    let timestamp = bson::Timestamp { time: 3, increment: 4 };
    let build = |name: &str| {
        let mut o = RawDocumentBuf::new();
        o.append(bson::raw::CString::try_from(name).unwrap(), "c");
        o.append(bson::cstr!("indexBuildUUID"), uuid());
        o.append(bson::cstr!("indexes"), bson::RawArrayBuf::new());
        o
    };
    let commands = [
        rawdoc! { "create": "c", "idIndex": { "v": 2 } },
        rawdoc! { "collMod": "c", "index": { "name": "x", "hidden": true } },
        rawdoc! { "drop": "c" },
        rawdoc! { "dropDatabase": 1 },
        rawdoc! { "dropIndexes": "c", "index": "a_1" },
        rawdoc! { "deleteIndexes": "c", "index": { "a": 1 } },
        rawdoc! { "commitTransaction": 1, "commitTimestamp": timestamp },
        rawdoc! { "abortTransaction": 1 },
        rawdoc! { "emptycapped": "c" },
        rawdoc! { "convertToCapped": "c", "size": 4096.0 },
        rawdoc! { "dbCheck": "shop.c", "type": "batch" },
        rawdoc! { "importCollection": "shop.c" },
        rawdoc! { "createDatabaseMetadata": "shop" },
        rawdoc! { "dropDatabaseMetadata": "shop" },
        rawdoc! { "beginPromotionToShardedCluster": 1 },
        rawdoc! { "completePromotionToShardedCluster": 1 },
        build("startIndexBuild"),
        build("commitIndexBuild"),
        build("abortIndexBuild"),
    ];
    for o in &commands {
        command(o).unwrap_or_else(|e| panic!("{o:?}: {e}"));
        OplogEntry::parse(&entry("c", o.clone())).unwrap();
    }
    let Command::CommitTransaction { commit_timestamp } = command(&commands[6]).unwrap() else {
        unreachable!()
    };
    assert_eq!(commit_timestamp, Timestamp::new(3, 4));
}

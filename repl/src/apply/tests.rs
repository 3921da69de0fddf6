use bson::{RawDocumentBuf, rawdoc};
use storage::{EngineKind, ReadAt, StoreOptions};
use tokio::sync::mpsc;

use super::*;

const COLLECTION: Uuid = Uuid::from_u128(1);
const PARAMETERS: Uuid = Uuid::from_u128(2);

fn uuid(uuid: Uuid) -> bson::Binary {
    let subtype = bson::spec::BinarySubtype::Uuid;
    bson::Binary { subtype, bytes: uuid.as_bytes().to_vec() }
}

fn with(mut doc: RawDocumentBuf, more: &RawDocumentBuf) -> RawDocumentBuf {
    for field in more.iter() {
        let (name, value) = field.unwrap();
        doc.append(name, value);
    }
    doc
}

fn entry(secs: u32, more: &RawDocumentBuf) -> RawDoc {
    let at = rawdoc! {
        "ts": bson::Timestamp { time: secs, increment: 1 }, "t": 1i64, "v": 2i64,
        "wall": bson::DateTime::from_millis(i64::from(secs) * 1000),
    };
    RawDoc::from(with(at, more))
}

fn create(secs: u32, coll: &str, of: Uuid) -> RawDoc {
    let id_index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
    let create = rawdoc! { "create": coll, "idIndex": id_index };
    entry(secs, &rawdoc! { "op": "c", "ns": "config.$cmd", "ui": uuid(of), "o": create })
}

fn applier() -> Applier {
    let options = StoreOptions { engine: EngineKind::Memory, ..StoreOptions::default() };
    let store = Store::open(std::path::Path::new(""), options).unwrap();
    let builds = IndexBuilds::new(mpsc::unbounded_channel().0);
    Applier::new(store, Mode::Steady, true, builds)
}

fn rows<T>(applier: &Applier, of: impl Fn(&RawDoc) -> T) -> Vec<T> {
    let view = applier.store.view(ReadAt::Newest).unwrap();
    let coll = view.catalog().by_uuid(COLLECTION).unwrap();
    let scan = view.scan(&coll, std::ops::Bound::Unbounded, storage::Direction::Forward);
    scan.map(|row| of(&row.unwrap().1)).collect()
}

#[test]
fn a_retryable_write_that_came_with_a_chunk_is_remembered_and_an_image_is_not() {
    let applier = applier();
    let noop = |secs: u32, session: i32, more: RawDocumentBuf| {
        let doc = rawdoc! {
            "op": "n", "ns": "shop.c", "lsid": { "id": session, "uid": 0 }, "txnNumber": 7i64, "stmtId": 0,
            "prevOpTime": { "ts": bson::Timestamp { time: 0, increment: 0 }, "t": -1i64 },
        };
        entry(secs, &with(doc, &more))
    };
    let migrated = |o: RawDocumentBuf, o2: RawDocumentBuf| {
        rawdoc! { "fromMigrate": true, "o": o, "o2": o2 }
    };
    let info = rawdoc! { "$sessionMigrateInfo": 1 };
    let entries = [
        create(1, "transactions", COLLECTION),
        noop(2, 1, rawdoc! { "o": { "_id": 5 } }),
        noop(3, 2, migrated(info.clone(), rawdoc! { "op": "i" })),
        noop(4, 3, migrated(info, rawdoc! {})),
        noop(5, 4, migrated(rawdoc! { "$wouldChangeOwningShard": 1 }, rawdoc! {})),
    ];
    applier.apply(&entries).unwrap();
    let seen = rows(&applier, |row| {
        let lsid = row.get_document("_id").unwrap().get_i32("id").unwrap();
        let at = row.get_document("lastWriteOpTime").unwrap().get_timestamp("ts").unwrap();
        (lsid, at.time)
    });
    assert_eq!(seen, [(2, 3), (4, 5)]);
}

#[test]
fn pre_images_go_with_the_oplog_and_when_the_set_says_so() {
    let applier = applier();
    let image = |secs: u32, of: u128| {
        let ts = bson::Timestamp { time: secs, increment: 1 };
        let id = rawdoc! { "nsUUID": uuid(Uuid::from_u128(of)), "ts": ts, "applyOpsIndex": 0i64 };
        let at = bson::DateTime::from_millis(i64::from(secs) * 1000);
        let row = rawdoc! { "_id": id, "operationTime": at, "preImage": { "_id": 1 } };
        let ns = "config.system.preimages";
        entry(secs, &rawdoc! { "op": "i", "ns": ns, "ui": uuid(COLLECTION), "o": row })
    };
    let noop = |secs: u32| entry(secs, &rawdoc! { "op": "n", "ns": "", "o": {} });
    let times =
        || rows(&applier, |row| row.get_document("_id").unwrap().get_timestamp("ts").unwrap().time);
    applier.apply(&[create(1, "system.preimages", COLLECTION)]).unwrap();
    // Two collections with pre-images, whose rows are adjacent.
    applier.apply(&[image(2, 7), image(3, 8), image(100, 7), image(101, 8)]).unwrap();
    applier.apply(&[noop(150)]).unwrap();
    assert_eq!(times(), [2, 100, 3, 101], "nothing is said about them");
    // Our oplog begins at 100.
    applier.store.oplog().append(&[noop(100)]).unwrap();
    applier.store.oplog().sync().unwrap();
    applier.apply(&[noop(155)]).unwrap();
    assert_eq!(times(), [2, 100, 3, 101], "it is not time yet");
    applier.apply(&[noop(170)]).unwrap();
    assert_eq!(times(), [100, 101]);
    let options = rawdoc! {
        "_id": "changeStreamOptions", "preAndPostImages": { "expireAfterSeconds": 100i64 },
    };
    let ns = "config.clusterParameters";
    let set = rawdoc! { "op": "i", "ns": ns, "ui": uuid(PARAMETERS), "o": options };
    applier.apply(&[create(171, "clusterParameters", PARAMETERS), entry(172, &set)]).unwrap();
    applier.apply(&[noop(200)]).unwrap();
    assert_eq!(times(), [101]);
}

#[test]
fn what_5_0_is_not_told_about_pre_images_turns_them_off() {
    for (fcv, kept) in [("4.4", true), ("5.0", false)] {
        let applier = applier();
        let id_index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
        let versions = rawdoc! { "create": "system.version", "idIndex": id_index.clone() };
        let imaged = rawdoc! { "create": "c", "recordPreImages": true, "idIndex": id_index };
        let version = rawdoc! { "_id": "featureCompatibilityVersion", "version": fcv };
        let (parameters, collection) = (uuid(PARAMETERS), uuid(COLLECTION));
        let change = rawdoc! { "collMod": "c", "validationLevel": "off" };
        let entries = [
            rawdoc! { "op": "c", "ns": "admin.$cmd", "ui": parameters.clone(), "o": versions },
            rawdoc! { "op": "i", "ns": "admin.system.version", "ui": parameters, "o": version },
            rawdoc! { "op": "c", "ns": "shop.$cmd", "ui": collection.clone(), "o": imaged },
            rawdoc! { "op": "c", "ns": "shop.$cmd", "ui": collection, "o": change },
        ];
        let entries: Vec<RawDoc> =
            (1..).zip(&entries).map(|(secs, more)| entry(secs, more)).collect();
        applier.apply(&entries).unwrap();
        let view = applier.store.view(ReadAt::Newest).unwrap();
        let coll = view.catalog().by_uuid(COLLECTION).unwrap();
        assert_eq!(coll.options().get("recordPreImages").unwrap().is_some(), kept, "{fcv}");
        assert_eq!(coll.options().get_str("validationLevel").unwrap(), "off");
    }
}

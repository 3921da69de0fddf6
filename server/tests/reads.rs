//! Runs commands through dispatch over a store that was filled directly. The cases of the `tests` crate compare the
//! same commands with real servers; these tests need no second server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::sync::Arc;

use bson::{Document, RawDocument, doc, oid::ObjectId, rawdoc};
use protocol::{Namespace, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use server::{
    auth::Access,
    config::{self, Asked, LogFormat},
    context::{Client, Node, Then},
    dispatch::{self, Answer, Incoming},
    logging::Log,
    parameters::Parameters,
};
use storage::{IndexState, Store, StoreOptions};
use uuid::Uuid;

struct Fixture {
    client: Arc<Client>,
    store: Store,
    _dir: tempfile::TempDir,
}

const COLL: Uuid = Uuid::from_u128(7);
const CAPPED: Uuid = Uuid::from_u128(8);

fn at(inc: u32) -> OpTimeAndWall {
    let op_time = OpTime::new(Timestamp::new(100, inc), 1);
    OpTimeAndWall { op_time, wall: bson::DateTime::from_millis(100_000) }
}

fn entry(inc: u32) -> RawDoc {
    rawdoc! {
        "op": "n", "ns": "", "o": { "n": i64::from(inc) },
        "ts": bson::Timestamp { time: 100, increment: inc }, "t": 1_i64, "v": 2_i64,
        "wall": bson::DateTime::from_millis(100_000),
    }
    .into()
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions { engine: "memory".parse().unwrap(), ..StoreOptions::default() };
        let store = Store::open(dir.path(), options).unwrap();
        store.oplog().append(&[entry(1), entry(2)]).unwrap();
        store.oplog().sync().unwrap();
        let id_index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
        let mut apply = store.begin_apply();
        let ts = at(1).op_time.ts;
        let ns = Namespace::new("test", "a");
        let coll = apply.create(ts, &ns, COLL, &rawdoc! {}, Some(&id_index)).unwrap();
        for n in 0..250 {
            let doc = rawdoc! { "_id": n, "x": n % 5, "tags": ["t", n % 2] };
            apply.put(ts, &coll, doc).unwrap();
        }
        let x_1 = rawdoc! { "v": 2, "key": { "x": 1 }, "name": "x_1" };
        apply.create_index(ts, COLL, &x_1, IndexState::Ready).unwrap();
        let capped = rawdoc! { "capped": true, "size": 4096 };
        let ns = Namespace::new("test", "cap");
        let capped = apply.create(ts, &ns, CAPPED, &capped, Some(&id_index)).unwrap();
        for n in [3, 1, 2] {
            apply.put(ts, &capped, rawdoc! { "_id": n }).unwrap();
        }
        let ns = Namespace::new("test", "system.views");
        let views =
            apply.create(ts, &ns, Uuid::from_u128(9), &rawdoc! {}, Some(&id_index)).unwrap();
        let pipeline = bson::RawArrayBuf::from_iter([rawdoc! { "$match": { "x": 1 } }]);
        let view = rawdoc! { "_id": "test.v", "viewOn": "a", "pipeline": pipeline };
        apply.put(ts, &views, view).unwrap();
        apply.commit(at(1)).unwrap();
        let client = Arc::new(client(&store));
        Self { client, store, _dir: dir }
    }

    async fn answer(&self, command: &RawDocument) -> Answer {
        let incoming = Incoming {
            body: RawDoc::from(command),
            sequences: Vec::new(),
            exhaust_allowed: true,
            by_query: None,
        };
        dispatch::answer(&self.client, incoming).await
    }

    async fn run(&self, command: Document) -> Document {
        let command = bson::RawDocumentBuf::try_from(&command).unwrap();
        let answer = self.answer(&command).await;
        Document::try_from(answer.body.as_ref()).unwrap()
    }

    async fn ok(&self, command: Document) -> Document {
        let reply = self.run(command.clone()).await;
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command}: {reply}");
        reply
    }
}

fn client(store: &Store) -> Client {
    let argv = ["understudy", "--impersonate", "8.2"].map(str::to_owned);
    let Ok(Asked::Run(mut settings)) = config::parse(&argv) else { panic!("settings") };
    settings.log.format = Some(LogFormat::Json);
    let log = Log::open(&settings.log).unwrap();
    let parameters = Arc::new(Parameters::new(&settings, &log).unwrap());
    let store = Some(store.clone());
    let node = Node::new(*settings, log, parameters, Access::off(), ObjectId::new(), None, store);
    let address = "127.0.0.1:1".parse().unwrap();
    Client::new(Arc::new(node), 1, address, address)
}

fn batch<'a>(reply: &'a Document, name: &str) -> (i64, Vec<&'a Document>) {
    let cursor = reply.get_document("cursor").unwrap();
    let docs = cursor.get_array(name).unwrap();
    (cursor.get_i64("id").unwrap(), docs.iter().map(|doc| doc.as_document().unwrap()).collect())
}

#[tokio::test]
async fn a_cursor_gives_every_document_once() {
    let fixture = Fixture::new();
    for command in [
        doc! { "find": "a", "$db": "test" },
        doc! { "find": "a", "batchSize": 7, "$db": "test" },
        doc! { "find": "a", "sort": { "x": -1 }, "batchSize": 100, "$db": "test" },
        doc! { "find": "a", "filter": { "x": { "$gte": 0 } }, "hint": "x_1", "$db": "test" },
        doc! { "find": "a", "hint": { "$natural": 1 }, "$_requestResumeToken": true, "$db": "test" },
    ] {
        let mut ids = Vec::new();
        let reply = fixture.ok(command.clone()).await;
        let (mut cursor, first) = batch(&reply, "firstBatch");
        ids.extend(first.iter().map(|doc| doc.get_i32("_id").unwrap()));
        assert_eq!(
            ids.len(),
            command.get_i32("batchSize").map_or(101, |n| usize::try_from(n).unwrap())
        );
        while cursor != 0 {
            let more =
                doc! { "getMore": cursor, "collection": "a", "batchSize": 60, "$db": "test" };
            let reply = fixture.ok(more).await;
            let (id, next) = batch(&reply, "nextBatch");
            assert!(next.len() <= 60);
            ids.extend(next.iter().map(|doc| doc.get_i32("_id").unwrap()));
            cursor = id;
        }
        ids.sort_unstable();
        assert_eq!(ids, (0..250).collect::<Vec<_>>(), "{command}");
    }
}

#[tokio::test]
async fn a_scan_resumes_by_its_token() {
    let fixture = Fixture::new();
    let mut command = doc! {
        "find": "a", "hint": { "$natural": 1 }, "$_requestResumeToken": true, "batchSize": 100,
        "singleBatch": true, "$db": "test",
    };
    let mut ids = Vec::new();
    loop {
        let reply = fixture.ok(command.clone()).await;
        let (_, docs) = batch(&reply, "firstBatch");
        if docs.is_empty() {
            break;
        }
        ids.extend(docs.iter().map(|doc| doc.get_i32("_id").unwrap()));
        let token = reply.get_document("cursor").unwrap().get_document("postBatchResumeToken");
        command.insert("$_resumeAfter", token.unwrap().clone());
    }
    assert_eq!(ids, (0..250).collect::<Vec<_>>());
}

#[tokio::test]
async fn counts_values_and_lists() {
    let fixture = Fixture::new();
    let count = |query: Document| doc! { "count": "a", "query": query, "$db": "test" };
    assert_eq!(fixture.ok(count(doc! {})).await.get_i32("n").unwrap(), 250);
    assert_eq!(fixture.ok(count(doc! { "x": 2 })).await.get_i32("n").unwrap(), 50);
    let limited = doc! { "count": "a", "skip": 240, "limit": 20, "$db": "test" };
    assert_eq!(fixture.ok(limited).await.get_i32("n").unwrap(), 10);
    let values = fixture.ok(doc! { "distinct": "a", "key": "x", "$db": "test" }).await;
    assert_eq!(values.get_array("values").unwrap().len(), 5);
    let tags = fixture.ok(doc! { "distinct": "a", "key": "tags", "$db": "test" }).await;
    assert_eq!(tags.get_array("values").unwrap().len(), 3);
    let lists = fixture.ok(doc! { "listCollections": 1, "nameOnly": true, "$db": "test" }).await;
    let names: Vec<_> = batch(&lists, "firstBatch")
        .1
        .iter()
        .map(|doc| doc.get_str("name").unwrap().to_owned())
        .collect();
    assert_eq!(names, ["a", "cap", "system.views", "v"]);
    let indexes = fixture.ok(doc! { "listIndexes": "a", "$db": "test" }).await;
    assert_eq!(batch(&indexes, "firstBatch").1.len(), 2);
    let none = fixture.run(doc! { "listIndexes": "nope", "$db": "test" }).await;
    assert_eq!(none.get_i32("code").unwrap(), 26);
    let dbs = fixture.ok(doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" }).await;
    assert_eq!(dbs.get_array("databases").unwrap().len(), 2);
    let stats = fixture.ok(doc! { "collStats": "cap", "$db": "test" }).await;
    assert_eq!((stats.get_i32("count").unwrap(), stats.get_bool("capped").unwrap()), (3, true));
    assert_eq!(
        fixture.ok(doc! { "dbStats": 1, "$db": "test" }).await.get_i64("objects").unwrap(),
        254
    );
}

#[tokio::test]
async fn a_hash_is_the_md5_of_the_documents_in_order() {
    use md5::{Digest, Md5};
    let fixture = Fixture::new();
    let reply = fixture.ok(doc! { "dbHash": 1, "$db": "test" }).await;
    let hashes = reply.get_document("collections").unwrap();
    let hex = |bytes: &[u8]| {
        Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let mut bytes = Vec::new();
    for n in 0..250 {
        bytes.extend_from_slice(rawdoc! { "_id": n, "x": n % 5, "tags": ["t", n % 2] }.as_bytes());
    }
    let mut capped = Vec::new();
    for n in [3, 1, 2] {
        capped.extend_from_slice(rawdoc! { "_id": n }.as_bytes());
    }
    assert_eq!(hashes.get_str("a").unwrap(), hex(&bytes));
    assert_eq!(hashes.get_str("cap").unwrap(), hex(&capped));
    let views = hashes.get_str("system.views").unwrap();
    let both = format!("{}{}{views}", hex(&bytes), hex(&capped));
    assert_eq!(reply.get_str("md5").unwrap(), hex(both.as_bytes()));
}

#[tokio::test]
async fn a_tailing_cursor_waits_for_what_comes() {
    let fixture = Fixture::new();
    let find = doc! {
        "find": "oplog.rs", "filter": { "ts": { "$gte": bson::Timestamp { time: 100, increment: 1 } } },
        "tailable": true, "awaitData": true, "$db": "local",
    };
    let reply = fixture.ok(find).await;
    let (cursor, first) = batch(&reply, "firstBatch");
    // The second entry is written but not applied, so it is invisible.
    assert_eq!(first.len(), 1);
    let more = rawdoc! {
        "getMore": cursor, "collection": "oplog.rs", "maxTimeMS": 20_000, "$db": "local",
    };
    let waiting = fixture.answer(&more);
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("there is nothing to answer with"),
        () = tokio::task::yield_now() => {}
    }
    fixture.store.begin_apply().commit(at(2)).unwrap();
    let answer = waiting.await;
    assert!(matches!(answer.then, Then::Again(_)), "an exhaust stream goes on");
    let reply = Document::try_from(answer.body.as_ref()).unwrap();
    let (id, next) = batch(&reply, "nextBatch");
    assert_eq!((id, next.len()), (cursor, 1));
    assert_eq!(next[0].get_timestamp("ts").unwrap().increment, 2);
    let empty =
        doc! { "getMore": cursor, "collection": "oplog.rs", "maxTimeMS": 10, "$db": "local" };
    let reply = fixture.ok(empty).await;
    assert_eq!(batch(&reply, "nextBatch").1.len(), 0);
}

#[tokio::test]
async fn cursors_belong_to_their_session_and_can_be_killed() {
    let fixture = Fixture::new();
    let lsid = |n: u8| doc! { "id": bson::Uuid::from_bytes([n; 16]) };
    let open = || doc! { "find": "a", "batchSize": 1, "lsid": lsid(1), "$db": "test" };
    let reply = fixture.ok(open()).await;
    let id = batch(&reply, "firstBatch").0;
    let more = |n: Option<u8>| {
        let mut more = doc! { "getMore": id, "collection": "a", "$db": "test" };
        if let Some(n) = n {
            more.insert("lsid", lsid(n));
        }
        more
    };
    assert_eq!(fixture.run(more(None)).await.get_i32("code").unwrap(), 50737);
    assert_eq!(fixture.run(more(Some(2))).await.get_i32("code").unwrap(), 50738);
    let killed = fixture.ok(doc! { "killCursors": "a", "cursors": [id], "$db": "test" }).await;
    assert_eq!(killed.get_array("cursorsKilled").unwrap().len(), 1);
    assert_eq!(fixture.run(more(Some(1))).await.get_i32("code").unwrap(), 43);
    fixture.ok(open()).await;
    fixture.ok(doc! { "endSessions": [lsid(1)], "$db": "admin" }).await;
    assert_eq!(fixture.client.node.cursors.counts().0, 0);
}

#[tokio::test]
async fn read_concerns_choose_the_moment() {
    let fixture = Fixture::new();
    let find =
        |concern: Document| doc! { "find": "a", "limit": 1, "readConcern": concern, "$db": "test" };
    let code = |reply: Document| reply.get_i32("code").unwrap();
    assert_eq!(code(fixture.run(find(doc! { "level": "linearizable" })).await), 10107);
    assert_eq!(code(fixture.run(find(doc! { "level": "foo" })).await), 2);
    let ahead = bson::Timestamp { time: 4_000_000_000, increment: 1 };
    assert_eq!(code(fixture.run(find(doc! { "afterClusterTime": ahead })).await), 72);
    let now = bson::Timestamp { time: 100, increment: 1 };
    let reply = fixture.ok(find(doc! { "level": "snapshot", "atClusterTime": now })).await;
    assert_eq!(reply.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap(), now);
    fixture.ok(find(doc! { "level": "majority" })).await;
}

#[tokio::test]
async fn views_and_pipelines_give_what_they_say() {
    let fixture = Fixture::new();
    let group = doc! { "$group": { "_id": "$x", "n": { "$sum": 1 } } };
    let pipeline = vec![group, doc! { "$sort": { "_id": 1 } }];
    let command =
        doc! { "aggregate": "a", "pipeline": pipeline.clone(), "cursor": {}, "$db": "test" };
    let reply = fixture.ok(command).await;
    let (id, groups) = batch(&reply, "firstBatch");
    assert_eq!((id, groups.len()), (0, 5));
    assert!(groups.iter().all(|group| group.get_i32("n").unwrap() == 50));
    let over_view = doc! { "aggregate": "v", "pipeline": pipeline, "cursor": {}, "$db": "test" };
    let reply = fixture.ok(over_view).await;
    assert_eq!(batch(&reply, "firstBatch").1, [&doc! { "_id": 1, "n": 50 }]);
    let find = doc! {
        "find": "v", "filter": { "_id": { "$gte": 240 } }, "sort": { "_id": -1 },
        "projection": { "x": 1 }, "$db": "test",
    };
    let reply = fixture.ok(find).await;
    let want = [&doc! { "_id": 246, "x": 1 }, &doc! { "_id": 241, "x": 1 }];
    assert_eq!(batch(&reply, "firstBatch").1, want);
    let find = doc! { "find": "a", "filter": { "_id": 7 }, "projection": { "x": 1, "_id": 0 }, "$db": "test" };
    let reply = fixture.ok(find).await;
    assert_eq!(batch(&reply, "firstBatch").1, [&doc! { "x": 2 }]);
    let count = fixture.ok(doc! { "count": "v", "$db": "test" }).await;
    assert_eq!(count.get_i32("n").unwrap(), 50);
}

/// Grows the oplog until its first entries are trimmed.
fn overtake(fixture: &Fixture) {
    let oplog = fixture.store.oplog();
    oplog.resize(1 << 20).unwrap();
    for inc in 3..=400 {
        let mut long = entry(inc).as_raw().to_owned();
        long.append(bson::raw::cstr!("pad"), "x".repeat(10_000));
        oplog.append(&[long.into()]).unwrap();
    }
    oplog.sync().unwrap();
    fixture.store.begin_apply().commit(at(400)).unwrap();
    oplog.sync().unwrap();
    fixture.store.watermarks().set_commit_point(at(399));
    assert!(oplog.trim(bson::DateTime::from_millis(1_000_000_000)).unwrap() > 0);
}

#[tokio::test]
async fn a_cursor_whose_place_in_the_oplog_is_gone_ends() {
    let fixture = Fixture::new();
    fixture.store.begin_apply().commit(at(2)).unwrap();
    let all = doc! { "ts": { "$gte": bson::Timestamp { time: 100, increment: 1 } } };
    let token = doc! { "hint": { "$natural": 1 }, "$_requestResumeToken": true };
    let at_end = doc! { "filter": all.clone(), "tailable": true };
    let waiting = doc! { "filter": all, "tailable": true, "awaitData": true };
    let mut cursors = Vec::new();
    for (options, size) in [
        (at_end, 9),
        (waiting, 9),
        (doc! { "tailable": true }, 1),
        (doc! {}, 1),
        (doc! { "sort": { "$natural": -1 } }, 1),
        (token, 1),
    ] {
        let mut find = doc! { "find": "oplog.rs", "batchSize": size, "$db": "local" };
        find.extend(options);
        cursors.push(batch(&fixture.ok(find).await, "firstBatch").0);
    }
    let pipeline = doc! {
        "aggregate": "oplog.rs", "pipeline": [], "cursor": { "batchSize": 1 }, "$db": "local",
    };
    cursors.push(batch(&fixture.ok(pipeline).await, "firstBatch").0);
    overtake(&fixture);
    for cursor in cursors {
        let more = doc! { "getMore": cursor, "collection": "oplog.rs", "$db": "local" };
        let reply = fixture.run(more.clone()).await;
        assert_eq!(reply.get_i32("code").unwrap(), 136, "{reply}");
        assert_eq!(fixture.run(more).await.get_i32("code").unwrap(), 43, "it is closed");
    }
    let gone = doc! {
        "find": "oplog.rs", "hint": { "$natural": 1 }, "$_requestResumeToken": true,
        "$_resumeAfter": { "$recordId": (100_i64 << 32) + 1 }, "$db": "local",
    };
    assert_eq!(fixture.run(gone).await.get_i32("code").unwrap(), 211);
}

#[tokio::test]
async fn a_tailing_cursor_waits_behind_the_end_of_the_oplog() {
    let fixture = Fixture::new();
    let ts = |increment| bson::Timestamp { time: 100, increment };
    let find = |ts| doc! { "find": "oplog.rs", "filter": { "ts": { "$gte": ts } }, "tailable": true, "$db": "local" };
    let (cursor, first) = {
        let reply = fixture.ok(find(ts(4))).await;
        let (cursor, first) = batch(&reply, "firstBatch");
        (cursor, first.len())
    };
    assert!(cursor != 0 && first == 0);
    fixture.store.oplog().append(&[entry(3), entry(4), entry(5)]).unwrap();
    fixture.store.begin_apply().commit(at(5)).unwrap();
    let more = doc! { "getMore": cursor, "collection": "oplog.rs", "$db": "local" };
    let reply = fixture.ok(more).await;
    let found: Vec<_> = batch(&reply, "nextBatch").1;
    let found: Vec<_> = found.iter().map(|entry| entry.get_timestamp("ts").unwrap()).collect();
    assert_eq!(found, [ts(4), ts(5)]);
}

#[tokio::test]
async fn every_way_of_reading_finds_the_documents_of_local() {
    let fixture = Fixture::new();
    let config = rawdoc! { "_id": "rs", "version": 3 };
    fixture.store.put_meta("local.system.replset", &config).unwrap();
    fixture.store.begin_apply().commit(at(2)).unwrap();
    for (coll, key, n) in [("oplog.rs", "ts", 2), ("system.replset", "_id", 1)] {
        let found = fixture.ok(doc! { "find": coll, "$db": "local" }).await;
        assert_eq!(batch(&found, "firstBatch").1.len(), n, "find {coll}");
        let count = fixture.ok(doc! { "count": coll, "query": {}, "$db": "local" }).await;
        assert_eq!(count.get_i32("n").unwrap(), i32::try_from(n).unwrap(), "count {coll}");
        let values = fixture.ok(doc! { "distinct": coll, "key": key, "$db": "local" }).await;
        assert_eq!(values.get_array("values").unwrap().len(), n, "distinct {coll}");
        let stages = [doc! { "$match": {} }, doc! { "$count": "n" }];
        let count =
            doc! { "aggregate": coll, "pipeline": stages.to_vec(), "cursor": {}, "$db": "local" };
        let reply = fixture.ok(count).await;
        let want = doc! { "n": i32::try_from(n).unwrap() };
        assert_eq!(batch(&reply, "firstBatch").1, [&want], "aggregate {coll}");
        let join = doc! {
            "aggregate": "system.replset",
            "pipeline": [{ "$lookup": { "from": coll, "pipeline": [], "as": "all" } }],
            "cursor": {}, "$db": "local",
        };
        let reply = fixture.ok(join).await;
        let all = batch(&reply, "firstBatch").1[0].get_array("all").unwrap().len();
        assert_eq!(all, n, "$lookup {coll}");
    }
    let newest = doc! { "find": "oplog.rs", "sort": { "ts": -1 }, "skip": 1, "$db": "local" };
    let reply = fixture.ok(newest).await;
    assert_eq!(batch(&reply, "firstBatch").1[0].get_timestamp("ts").unwrap().increment, 1);
}

#[tokio::test]
async fn a_killed_cursor_ends_the_batch_that_it_fills() {
    let fixture = Fixture::new();
    let stages = [
        doc! { "$project": { "n": { "$range": [0, 1_000_000] } } },
        doc! { "$unwind": "$n" },
        doc! { "$match": { "n": -1 } },
    ];
    let open = doc! { "aggregate": "a", "pipeline": stages.to_vec(), "cursor": { "batchSize": 0 }, "$db": "test" };
    let cursor = batch(&fixture.ok(open).await, "firstBatch").0;
    let more = rawdoc! { "getMore": cursor, "collection": "a", "$db": "test" };
    let kill = async {
        let kill = doc! { "killCursors": "a", "cursors": [cursor], "$db": "test" };
        while fixture.client.node.cursors.counts().2 == 0 {
            tokio::task::yield_now().await;
        }
        fixture.ok(kill).await
    };
    let (answer, _) = tokio::join!(fixture.answer(&more), kill);
    let reply = Document::try_from(answer.body.as_ref()).unwrap();
    assert_eq!(reply.get_i32("code").unwrap(), 237, "{reply}");
}

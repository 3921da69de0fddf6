//! Other clients read from our node as a hidden member of a real set: drivers, the shell, the database tools.

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use tests::node::Node;
use tests::repl_set::ReplSet;
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::wait::PATIENCE;
use tests::{mongod, scripts};

/// A set with data of every kind that clients ask about.
fn set(test: &str) -> Result<ReplSet> {
    let set = ReplSet::named(test).ours_hidden(1).start()?;
    let primary = set.primary()?;
    let db = primary.client().database("shop");
    let items: Vec<Document> = (0..1000)
        .map(
            |n| doc! { "_id": n, "kind": n % 7, "price": f64::from(n) / 4.0, "tags": [n % 3, "x"] },
        )
        .collect();
    db.collection("items").insert_many(items).run()?;
    let index = doc! { "key": { "kind": 1, "price": -1 }, "name": "kind_price" };
    primary.run("shop", doc! { "createIndexes": "items", "indexes": [index] })?;
    let pipeline = vec![doc! { "$match": { "kind": 3 } }];
    primary.run("shop", doc! { "create": "threes", "viewOn": "items", "pipeline": pipeline })?;
    let series = doc! { "timeField": "t", "metaField": "m" };
    primary.run("shop", doc! { "create": "series", "timeseries": series })?;
    let points: Vec<Document> = (0..300)
        .map(|n| {
            let at = bson::DateTime::from_millis(1_700_000_000_000 + i64::from(n) * 1000);
            doc! { "t": at, "m": n % 4, "v": n }
        })
        .collect();
    db.collection("series").insert_many(points).run()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    Ok(set)
}

#[test]
fn pymongo_reads() -> Result<()> {
    let set = set("pymongo")?;
    let seen = scripts::python_json(PYMONGO, set.ours()?.port(), &[])?;
    let want = scripts::python_json(PYMONGO, set.primary()?.port(), &[])?;
    ensure!(seen == want, "ours:   {seen}\nmongod: {want}");
    set.finish()
}

const PYMONGO: &str = r#"
import sys, json, pymongo
from pymongo import MongoClient, ReadPreference, ASCENDING, DESCENDING
from pymongo.read_concern import ReadConcern
client = MongoClient("127.0.0.1", int(sys.argv[1]), directConnection=True)
db = client.get_database("shop", read_preference=ReadPreference.SECONDARY_PREFERRED)
items = db.items
out = {}
out["pages"] = [d["_id"] for d in items.find({"kind": 2}, {"_id": 1}).sort("_id", 1).skip(3).limit(40).batch_size(7)]
out["hint"] = [d["_id"] for d in items.find({"kind": 2}).hint("kind_price").sort("price", -1).limit(5)]
out["ends"] = [d["_id"] for d in items.find().hint([("kind", 1), ("price", -1)]).min([("kind", 3), ("price", 200.0)]).max([("kind", 3), ("price", 150.0)])]
out["collation"] = items.count_documents({"tags": "X"}, collation={"locale": "en", "strength": 2})
out["count"] = [items.estimated_document_count(), items.count_documents({"kind": {"$gt": 4}}), db.threes.count_documents({})]
out["distinct"] = sorted(items.distinct("kind")), sorted(db.threes.distinct("kind"))
out["view"] = [d["_id"] for d in db.threes.find({"price": {"$lt": 20}}).sort("_id", 1)]
out["series"] = sorted((d["v"], d["m"]) for d in db.series.find({"m": 1, "v": {"$lt": 50}}))
out["series count"] = db.series.count_documents({"m": 2})
out["groups"] = list(items.aggregate([{"$group": {"_id": "$kind", "n": {"$sum": 1}, "p": {"$avg": "$price"}}}, {"$sort": {"_id": 1}}]))
out["let"] = [d["_id"] for d in items.find({"$expr": {"$eq": ["$kind", "$$k"]}}, let={"k": 5}).sort("_id", 1).limit(3)]
out["join"] = list(items.aggregate([{"$match": {"_id": {"$lt": 3}}}, {"$lookup": {"from": "threes", "localField": "_id", "foreignField": "_id", "as": "j"}}, {"$sort": {"_id": 1}}]))
# No explicit sessions: pymongo takes a hidden member for one that has none, whoever it is.
majority = items.with_options(read_concern=ReadConcern("majority"))
out["majority"] = majority.count_documents({})
plan = items.find({"kind": 2}).explain()
out["plan"] = [plan["queryPlanner"]["winningPlan"]["stage"], plan["queryPlanner"]["winningPlan"]["inputStage"]["indexName"],
               plan["executionStats"]["nReturned"], plan["executionStats"]["totalKeysExamined"], plan["executionStats"]["totalDocsExamined"]]
scan = items.find({"price": 3}).explain()
out["scan"] = [scan["queryPlanner"]["winningPlan"]["stage"], scan["executionStats"]["totalDocsExamined"]]
out["collections"] = sorted(c["name"] + " " + c["type"] for c in db.list_collections())
out["indexes"] = [i["name"] for i in items.list_indexes()]
out["stats"] = list(items.aggregate([{"$collStats": {"count": {}}}, {"$project": {"ns": 1, "count": 1}}]))
out["uses"] = sorted(d["name"] for d in items.aggregate([{"$indexStats": {}}]))
out["valid"] = [db.command("validate", "items")[k] for k in ("valid", "nrecords", "keysPerIndex")]
print(json.dumps(out, default=str))
"#;

#[test]
fn the_node_driver_reads() -> Result<()> {
    let set = set("node-driver")?;
    let (seen, want) =
        (scripts::node(NODE, set.ours()?.port())?, scripts::node(NODE, set.primary()?.port())?);
    ensure!(seen == want, "ours:   {seen}\nmongod: {want}");
    set.finish()
}

const NODE: &str = r#"
const { MongoClient } = require("mongodb");
(async () => {
  const uri = `mongodb://127.0.0.1:${process.argv[1]}/?directConnection=true&readPreference=secondaryPreferred`;
  const client = await MongoClient.connect(uri);
  const items = client.db("shop").collection("items");
  const out = [];
  let n = 0;
  for await (const doc of items.find({ kind: 4 }).batchSize(11)) n += doc._id;
  out.push(n);
  out.push(await items.countDocuments({ tags: "x", kind: { $in: [1, 2] } }));
  out.push(await items.aggregate([{ $sortByCount: "$kind" }, { $sort: { count: 1, _id: 1 } }]).toArray());
  out.push((await items.find({ kind: 1 }).explain("executionStats")).executionStats.nReturned);
  out.push((await client.db("shop").listCollections().toArray()).map(c => c.name).sort());
  await client.withSession(async session => { out.push((await items.findOne({ _id: 5 }, { session })).price); });
  console.log(JSON.stringify(out));
  await client.close();
})().catch(e => { console.error(e); process.exit(1); });
"#;

#[test]
fn mongosh_reads() -> Result<()> {
    let set = set("mongosh")?;
    let (ours, primary) = (set.ours()?, set.primary()?);
    for expression in [
        "db.getSiblingDB('shop').getCollectionNames().sort()",
        "db.getMongo().getDBNames().filter(n => n == 'shop')",
        "show_dbs = db.adminCommand({listDatabases: 1, nameOnly: true}).databases.map(d => d.name).includes('shop')",
        "db.getSiblingDB('shop').items.find({kind: 3}).sort({_id: 1}).limit(3).toArray()",
        "db.getSiblingDB('shop').items.countDocuments()",
        "db.getSiblingDB('shop').threes.find().itcount()",
        "db.getSiblingDB('shop').items.find({kind: 3}).explain('executionStats').executionStats.totalKeysExamined",
        "db.getSiblingDB('shop').items.aggregate([{$match: {kind: 3}}, {$group: {_id: '$kind', n: {$sum: 1}}}]).toArray()",
        "db.getSiblingDB('shop').items.stats().count",
        "db.getSiblingDB('shop').items.getIndexes().map(i => i.name)",
        "db.getSiblingDB('shop').series.find({v: 7}).toArray().length",
        "(() => { const s = db.getMongo().startSession(); const n = s.getDatabase('shop').items.countDocuments({kind: 2}); s.endSession(); return n })()",
        "db.currentOp().ok",
        "db.getSiblingDB('shop').stats().objects > 0",
        "db.getSiblingDB('shop').items.validate().valid",
    ] {
        let seen = scripts::mongosh(expression, ours.port())
            .with_context(|| format!("{expression} on our node"))?;
        let want = scripts::mongosh(expression, primary.port())?;
        ensure!(seen == want, "{expression}\nours:   {seen}\nmongod: {want}");
    }
    set.finish()
}

/// A dump of our node, restored into a fresh mongod, has the primary's hashes.
#[test]
fn mongodump_and_mongorestore() -> Result<()> {
    let set = set("mongodump")?;
    for oplog in [false, true] {
        let mut scratch = Scratch::new(if oplog { "restored-oplog" } else { "restored" })?;
        let fresh = Node::start(mongod::options("fresh", Version::V8_2, None)?, &mut scratch)?;
        let dir = scratch.path().join("dump");
        std::fs::create_dir_all(&dir)?;
        let mut dump = vec!["--out=out", "--readPreference=secondary"];
        let mut restore = vec!["--dir=out", "--nsInclude=shop.*"];
        if oplog {
            dump.push("--oplog");
            // With the oplog, mongorestore does not accept a selection of names.
            restore = vec!["--dir=out", "--oplogReplay"];
        }
        scripts::tool("mongodump", set.ours()?.port(), &dump, &dir)?;
        scripts::tool("mongorestore", fresh.port(), &restore, &dir)?;
        let hashes = |node: &Node| node.run("shop", doc! { "dbHash": 1 });
        let (want, got) = (hashes(set.primary()?)?, hashes(&fresh)?);
        let collections = |reply: &Document| reply.get_document("collections").cloned();
        ensure!(collections(&want)? == collections(&got)?, "primary: {want}\nrestored: {got}");
        scratch.finish();
    }
    set.finish()
}

#[test]
fn mongoexport_mongostat_and_mongotop() -> Result<()> {
    let set = set("tools")?;
    let port = set.ours()?.port();
    let mut scratch = Scratch::new("tools-out")?;
    let dir = scratch.path().to_owned();
    let args = ["--db=shop", "--collection=items", "--sort={_id: 1}", "--out=items.json"];
    scripts::tool("mongoexport", port, &args, &dir)?;
    let exported = std::fs::read_to_string(dir.join("items.json"))?;
    ensure!(exported.lines().count() == 1000, "{} lines", exported.lines().count());
    let first = exported.lines().next().unwrap_or_default();
    ensure!(first == r#"{"_id":0,"kind":0,"price":0.0,"tags":[0,"x"]}"#, "{first}");
    let printed = scripts::tool("mongostat", port, &["--rowcount=2", "--json"], &dir)?;
    ensure!(printed.contains("\"repl\":\"SEC\""), "{printed}");
    let printed = scripts::tool("mongotop", port, &["--rowcount=2", "1"], &dir)?;
    ensure!(printed.contains("shop.items"), "{printed}");
    scratch.finish();
    set.finish()
}

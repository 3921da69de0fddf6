//! `log ns _id`: every version of one document, with time, operation and session.

use anyhow::{Context, Result};
use bson::{Bson, Document, doc};
use protocol::{Timestamp, moment};

use super::{from_json, json, source::Node};

/// Prints the oplog entries of a document, and the document after each of them.
pub fn run(from: &str, ns: &str, id: &str) -> Result<()> {
    let node = Node::connect(from)?;
    let id =
        from_json(id).with_context(|| format!("{id} is not JSON; write strings as '\"x\"'"))?;
    let (db, name) = ns.split_once('.').with_context(|| format!("{ns} is not db.collection"))?;
    let filter = doc! { "$or": [
        { "ns": ns, "op": { "$in": ["i", "d"] }, "o._id": id.clone() },
        { "ns": ns, "op": "u", "o2._id": id.clone() },
        { "o.applyOps": { "$elemMatch": { "ns": ns, "$or": [
            { "o._id": id.clone() }, { "o2._id": id.clone() },
        ] } } },
    ] };
    let mut found = 0;
    for entry in node.oplog(filter)? {
        let entry = entry?;
        let ts: Timestamp = entry.get_timestamp("ts")?.into();
        for operation in operations(&entry, ns, &id) {
            found += 1;
            println!("{}  {ts}  {operation}{}", moment::shown(ts), session(&entry));
        }
        match takes_effect(&node, &entry, ts)? {
            Effect::At(then) => {
                if then != ts {
                    println!("    committed at {}  {then}", moment::shown(then));
                }
                println!("    {}", version(&node, db, name, &id, then)?);
            }
            Effect::Never => println!("    (the transaction was aborted)"),
            Effect::Undecided => println!("    (the transaction is not decided yet)"),
        }
    }
    if found == 0 {
        println!(
            "the oplog of this node tells of no operation on {ns} {}",
            json(&doc! { "_id": id })
        );
    }
    Ok(())
}

/// Compares as the server does: numbers of different types may be equal.
fn alike(a: &Bson, b: &Bson) -> bool {
    let number = |value: &Bson| match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        #[allow(clippy::cast_precision_loss, reason = "what it was found by was compared exactly")]
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    };
    a == b || number(a).is_some_and(|a| number(b) == Some(a))
}

fn operations(entry: &Document, ns: &str, id: &Bson) -> Vec<&'static str> {
    let Some(list) = entry.get_document("o").ok().and_then(|o| o.get_array("applyOps").ok()) else {
        return vec![word(entry)];
    };
    let ours = |op: &&Document| {
        let of = |part: &str| op.get_document(part).ok().and_then(|part| part.get("_id"));
        let is = |part: &str| of(part).is_some_and(|have| alike(have, id));
        op.get_str("ns").is_ok_and(|it| it == ns) && (is("o") || is("o2"))
    };
    list.iter().filter_map(Bson::as_document).filter(ours).map(word).collect()
}

/// When the operations of an entry become visible.
enum Effect {
    At(Timestamp),
    Never,
    Undecided,
}

/// An entry takes effect at once, unless it is part of a transaction or prepares one: then the last entry of the
/// transaction decides.
fn takes_effect(node: &Node, entry: &Document, ts: Timestamp) -> Result<Effect> {
    let says = |entry: &Document, what: &str| {
        entry.get_document("o").is_ok_and(|o| o.get_bool(what).unwrap_or(false))
    };
    if !says(entry, "partialTxn") && !says(entry, "prepare") {
        return Ok(Effect::At(ts));
    }
    let filter = doc! {
        "ts": { "$gt": bson::Timestamp::from(ts) },
        "lsid": entry.get("lsid").cloned().unwrap_or(Bson::Null),
        "txnNumber": entry.get("txnNumber").cloned().unwrap_or(Bson::Null),
        "op": "c",
    };
    for later in node.oplog(filter)? {
        let later = later?;
        let o = later.get_document("o")?;
        if o.contains_key("abortTransaction") {
            return Ok(Effect::Never);
        }
        if o.contains_key("commitTransaction") {
            return Ok(Effect::At(o.get_timestamp("commitTimestamp")?.into()));
        }
        if !says(&later, "partialTxn") && !says(&later, "prepare") {
            return Ok(Effect::At(later.get_timestamp("ts")?.into()));
        }
    }
    Ok(Effect::Undecided)
}

fn word(operation: &Document) -> &'static str {
    match operation.get_str("op") {
        Ok("i") => "insert",
        Ok("u") => "update",
        Ok("d") => "delete",
        _ => "other",
    }
}

fn session(entry: &Document) -> String {
    let Some(lsid) = entry.get_document("lsid").ok().and_then(|lsid| match lsid.get("id") {
        Some(Bson::Binary(id)) => id.to_uuid().ok(),
        _ => None,
    }) else {
        return String::new();
    };
    let number = entry.get_i64("txnNumber").map_or(String::new(), |n| format!(" number {n}"));
    // Since 8.0 a retryable insert of many documents is also a single entry.
    let many = entry.get_i32("multiOpType").is_ok_and(|kind| kind != 0);
    let kind = match entry.get_document("o").is_ok_and(|o| o.contains_key("applyOps")) {
        true if !many => "transaction of session",
        _ => "session",
    };
    format!("  {kind} {lsid}{number}")
}

/// The document right after `ts`.
fn version(node: &Node, db: &str, name: &str, id: &Bson, ts: Timestamp) -> Result<String> {
    if let Err(why) = node.check(ts) {
        return Ok(format!("no longer readable: {why}"));
    }
    let concern = doc! { "level": "snapshot", "atClusterTime": bson::Timestamp::from(ts) };
    let find = doc! { "find": name, "filter": { "_id": id }, "readConcern": concern };
    let reply = node.client.database(db).run_command(find).run()?;
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    Ok(match batch.first().and_then(Bson::as_document) {
        Some(doc) => json(doc),
        None => "(not there)".to_owned(),
    })
}

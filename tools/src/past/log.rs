//! `log ns _id`: shows every version of a document, with time, operation and session.
//!
//! ```text
//!   oldest readable            oplog begins                                       newest
//!   |---- history alone -------|---- oplog: operation and session, history: the document ----|
//! ```
//!
//! Before the oplog begins, versions are found by comparing the document at different timestamps. A change that was
//! undone between two of them is not found.

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, doc};
use protocol::Timestamp;

use super::{from_json, json, source::Node};
use crate::screen::{Paint, Screen};

/// Prints every operation on a document, and the document after each.
pub fn run(screen: &mut Screen, from: &str, ns: &str, id: &str) -> Result<()> {
    let node = Node::connect(from)?;
    let id =
        from_json(id).with_context(|| format!("{id} is not JSON; write strings as '\"x\"'"))?;
    let (db, name) = ns.split_once('.').with_context(|| format!("{ns} is not db.collection"))?;
    let asked = Asked { node: &node, db, name, ns, id };
    let entries = asked.entries()?;
    let oldest = node.oldest();
    let oplog_begin = node.oplog_begin()?.unwrap_or(node.newest());
    let told = entries.first().map(|(ts, _)| *ts);
    let mut printed = 0;
    // The document before the first operation that the oplog contains.
    if told.is_none_or(|told| told > oldest) {
        let first = asked.at(oldest)?;
        if let Some(document) = &first {
            let mut row = asked.row(screen, oldest, "there");
            row.insert("document", document.clone());
            let time = screen.paint(Paint::Bold, screen.time(oldest));
            let since = if told.is_none() && asked.at(node.newest())? == first {
                "unchanged since before the history window began, and to this day"
            } else {
                "as the history window begins"
            };
            screen.row(&row, format_args!("{time}  {oldest}  {since}\n    {}", json(document)))?;
            printed += 1;
        }
        if oldest < oplog_begin {
            for (ts, document) in asked.changes((oldest, first), oplog_begin)? {
                let mut row = asked.row(screen, ts, "before the oplog");
                let shown = document.as_ref().map_or("(not there)".to_owned(), json);
                row.insert("document", document);
                let time = screen.paint(Paint::Bold, screen.time(ts));
                let what = "changed (before the oplog begins)";
                screen.row(&row, format_args!("{time}  {ts}  {what}\n    {shown}"))?;
                printed += 1;
            }
        }
    }
    for (ts, entry) in &entries {
        asked.print(screen, *ts, entry)?;
    }
    if printed == 0 && entries.is_empty() {
        bail!("{}", asked.nothing(screen)?);
    }
    Ok(())
}

/// The document whose versions are shown, and the node that has it.
struct Asked<'a> {
    node: &'a Node,
    db: &'a str,
    name: &'a str,
    ns: &'a str,
    id: Bson,
}

impl Asked<'_> {
    /// The oplog entries about the document, including the drop of its collection.
    fn entries(&self) -> Result<Vec<(Timestamp, Document)>> {
        let (ns, id) = (self.ns, &self.id);
        let filter = doc! { "$or": [
            { "ns": ns, "op": { "$in": ["i", "d"] }, "o._id": id.clone() },
            { "ns": ns, "op": "u", "o2._id": id.clone() },
            { "ns": format!("{}.$cmd", self.db), "op": "c", "o.drop": self.name },
            { "o.applyOps": { "$elemMatch": { "ns": ns, "$or": [
                { "o._id": id.clone() }, { "o2._id": id.clone() },
            ] } } },
        ] };
        let mut entries = Vec::new();
        let mut of_its_own = false;
        for entry in self.node.oplog(filter)? {
            let entry = entry?;
            of_its_own |= !is_drop(&entry);
            entries.push((entry.get_timestamp("ts")?.into(), entry));
        }
        // The collection was dropped, but nothing shows that it contained the document.
        if !of_its_own && self.at(self.node.oldest())?.is_none() {
            entries.clear();
        }
        Ok(entries)
    }

    fn row(&self, screen: &Screen, ts: Timestamp, operation: &str) -> Document {
        doc! {
            "ts": bson::Timestamp::from(ts), "time": screen.time(ts), "ns": self.ns, "_id": self.id.clone(),
            "op": operation,
        }
    }

    /// Prints an entry and the document after it.
    fn print(&self, screen: &mut Screen, ts: Timestamp, entry: &Document) -> Result<()> {
        let effect = takes_effect(self.node, entry, ts)?;
        let (mut lines, mut document) = (Vec::new(), None);
        match effect {
            Effect::At(then) => {
                if then != ts {
                    lines.push(format!("    committed at {}  {then}", screen.time(then)));
                }
                match self.node.check(then) {
                    Ok(()) => {
                        document = self.at(then)?;
                        let shown = document.as_ref().map(json);
                        lines.push(format!("    {}", shown.as_deref().unwrap_or("(not there)")));
                    }
                    Err(why) => lines.push(format!("    no longer readable: {why}")),
                }
            }
            Effect::Never => lines.push("    (the transaction was aborted)".to_owned()),
            Effect::Undecided => lines.push("    (the transaction is not decided yet)".to_owned()),
        }
        for operation in operations(entry, self.ns, &self.id) {
            let mut row = self.row(screen, ts, operation);
            if let Some(by) = session(entry) {
                row.insert("by", by);
            }
            row.insert("document", document.clone());
            let time = screen.paint(Paint::Bold, screen.time(ts));
            let by = session(entry).map_or(String::new(), |by| format!("  {by}"));
            screen.row(&row, format_args!("{time}  {ts}  {operation}{by}"))?;
        }
        lines.iter().try_for_each(|line| screen.say(line))?;
        Ok(())
    }

    /// The document at a timestamp.
    fn at(&self, ts: Timestamp) -> Result<Option<Document>> {
        let find = doc! { "find": self.name, "filter": { "_id": self.id.clone() } };
        Ok(self.node.list_at(self.db, find, ts)?.into_iter().next())
    }

    /// All changes of the document between two timestamps, found by repeated bisection.
    fn changes(
        &self,
        (from, was): (Timestamp, Option<Document>),
        to: Timestamp,
    ) -> Result<Vec<(Timestamp, Option<Document>)>> {
        let is = self.at(to)?;
        let mut found = Vec::new();
        let mut open = vec![(from, was, to, is)];
        while let Some((from, was, to, is)) = open.pop() {
            if was == is {
                continue;
            }
            if to.as_u64() - from.as_u64() <= 1 {
                found.push((to, is));
                continue;
            }
            let middle = Timestamp::from_u64(from.as_u64().midpoint(to.as_u64()));
            let then = self.at(middle)?;
            // The earlier half is pushed last, so that it is examined first.
            open.push((middle, then.clone(), to, is));
            open.push((from, was, middle, then));
        }
        Ok(found)
    }

    /// Explains why there is nothing to show.
    fn nothing(&self, screen: &Screen) -> Result<String> {
        let (oldest, newest) = (self.node.oldest(), self.node.newest());
        let since = screen.time(oldest);
        let list = || doc! { "listCollections": 1, "filter": { "name": self.name } };
        let there =
            |ts| -> Result<bool> { Ok(!self.node.list_at(self.db, list(), ts)?.is_empty()) };
        Ok(match there(newest)? || there(oldest)? {
            true => format!(
                "{} has no document with {}, and had none since {since}; write strings as '\"x\"' and ObjectIds as \
                 '{{\"$oid\": \"...\"}}'",
                self.ns,
                json(&doc! { "_id": self.id.clone() })
            ),
            false => format!("there is no collection {}, and there was none at {since}", self.ns),
        })
    }
}

fn is_drop(entry: &Document) -> bool {
    entry.get_document("o").is_ok_and(|o| o.contains_key("drop"))
        && entry.get_str("op").is_ok_and(|op| op == "c")
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
    if is_drop(entry) {
        return vec!["the collection was dropped"];
    }
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

fn session(entry: &Document) -> Option<String> {
    let lsid = match entry.get_document("lsid").ok()?.get("id") {
        Some(Bson::Binary(id)) => id.to_uuid().ok()?,
        _ => return None,
    };
    let number = entry.get_i64("txnNumber").map_or(String::new(), |n| format!(" number {n}"));
    // Since 8.0 a retryable insert of many documents is also a single entry.
    let many = entry.get_i32("multiOpType").is_ok_and(|kind| kind != 0);
    let kind = match entry.get_document("o").is_ok_and(|o| o.contains_key("applyOps")) {
        true if !many => "transaction of session",
        _ => "session",
    };
    Some(format!("{kind} {lsid}{number}"))
}

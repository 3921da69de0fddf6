//! `find-drop`: when collections and databases were dropped, and how to read them again.

use std::collections::HashMap;

use anyhow::Result;
use bson::{Bson, Document, doc};
use protocol::{Timestamp, moment};

use super::source::Node;

/// Prints every drop that the node's oplog still contains.
pub fn run(from: &str, wanted: Option<&str>) -> Result<()> {
    let node = Node::connect(from)?;
    let exists = doc! { "$exists": true };
    let filter = doc! { "op": "c", "$or": [
        { "o.drop": exists.clone() },
        { "o.dropDatabase": exists.clone() },
        { "o.renameCollection": exists, "o.dropTarget": { "$type": "binData" } },
    ] };
    let mut found = 0;
    let mut groups = Groups::default();
    for entry in node.oplog(filter)? {
        let entry = entry?;
        let Some(drop) = Drop::parse(&entry) else { continue };
        let first = groups.first_of(&node, &drop)?;
        if wanted.is_some_and(|wanted| !drop.concerns(wanted)) {
            continue;
        }
        found += 1;
        println!("{}", drop.line());
        let before = Timestamp::from_u64(first.as_u64() - 1);
        match node.check(before) {
            Ok(()) => println!("    readable --at 'Timestamp({},{})'", before.secs(), before.inc()),
            Err(why) => println!("    no longer readable: {why}"),
        }
    }
    if found == 0 {
        println!(
            "the oplog of this node tells of no drop{}",
            wanted.map_or(String::new(), |ns| format!(" of {ns}"))
        );
    }
    Ok(())
}

/// A dropDatabase first drops each collection, then the database. To read such a database again, one must read before
/// the first of these drops, so consecutive drops are grouped.
#[derive(Default)]
struct Groups {
    /// Per database: first and last drop of the current group. Only drops happened between them.
    running: HashMap<String, (Timestamp, Timestamp)>,
}

impl Groups {
    /// Timestamp of the first drop in this drop's group.
    fn first_of(&mut self, node: &Node, drop: &Drop) -> Result<Timestamp> {
        let db = drop.ns.split_once('.').map_or(drop.ns.as_str(), |(db, _)| db);
        let group = match self.running.get(db).copied() {
            Some((first, last)) if !drop.is_replaced() && !touched(node, db, last, drop.ts)? => {
                (first, drop.ts)
            }
            _ => (drop.ts, drop.ts),
        };
        self.running.insert(db.to_owned(), group);
        Ok(if drop.is_database() { group.0 } else { drop.ts })
    }
}

/// True if anything else happened in a database between two drops.
fn touched(node: &Node, db: &str, after: Timestamp, before: Timestamp) -> Result<bool> {
    let ts = |ts: Timestamp| bson::Timestamp::from(ts);
    // '/' follows '.', so this range covers every name that begins with "db.".
    let filter = doc! {
        "ts": { "$gt": ts(after), "$lt": ts(before) },
        "ns": { "$gte": format!("{db}."), "$lt": format!("{db}/") },
    };
    Ok(node.oplog(filter)?.next().transpose()?.is_some())
}

struct Drop {
    ts: Timestamp,
    what: &'static str,
    ns: String,
    documents: Option<i64>,
}

const REPLACED: &str = "collection replaced by a rename";

impl Drop {
    fn parse(entry: &Document) -> Option<Self> {
        let ts: Timestamp = entry.get_timestamp("ts").ok()?.into();
        let (db, _) = entry.get_str("ns").ok()?.split_once('.')?;
        let o = entry.get_document("o").ok()?;
        let documents = entry.get_document("o2").ok().and_then(|o2| match o2.get("numRecords") {
            Some(Bson::Int32(n)) => Some(i64::from(*n)),
            Some(Bson::Int64(n)) => Some(*n),
            _ => None,
        });
        let (what, ns) = if let Ok(name) = o.get_str("drop") {
            ("collection dropped", format!("{db}.{name}"))
        } else if o.contains_key("dropDatabase") {
            ("database dropped", db.to_owned())
        } else {
            (REPLACED, o.get_str("to").ok()?.to_owned())
        };
        Some(Self { ts, what, ns, documents })
    }

    fn is_database(&self) -> bool {
        !self.ns.contains('.')
    }

    /// True if a rename replaced the collection: another collection now has this name.
    fn is_replaced(&self) -> bool {
        self.what == REPLACED
    }

    fn concerns(&self, wanted: &str) -> bool {
        self.ns == wanted
            || self.ns.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
            || wanted.strip_prefix(self.ns.as_str()).is_some_and(|rest| rest.starts_with('.'))
    }

    fn line(&self) -> String {
        let documents = self.documents.map_or(String::new(), |n| format!(", {n} documents"));
        format!("{}  {}  {}{documents}", moment::shown(self.ts), self.what, self.ns)
    }
}

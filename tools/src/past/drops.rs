//! `find-drop`: when collections and databases were dropped, and how to read them again.

use anyhow::Result;
use bson::{Bson, Document, doc};
use protocol::{Timestamp, moment};

use super::source::Node;

/// Prints every drop that the node's oplog still tells of.
pub fn run(from: &str, wanted: Option<&str>) -> Result<()> {
    let node = Node::connect(from)?;
    let exists = doc! { "$exists": true };
    let filter = doc! { "op": "c", "$or": [
        { "o.drop": exists.clone() },
        { "o.dropDatabase": exists.clone() },
        { "o.renameCollection": exists, "o.dropTarget": { "$type": "binData" } },
    ] };
    let mut found = 0;
    for entry in node.oplog(filter)? {
        let entry = entry?;
        let Some(drop) = Drop::parse(&entry) else { continue };
        if wanted.is_some_and(|wanted| !drop.concerns(wanted)) {
            continue;
        }
        found += 1;
        println!("{}", drop.line());
        let before = Timestamp::from_u64(drop.ts.as_u64() - 1);
        match node.resolve(&format!("Timestamp({},{})", before.secs(), before.inc())) {
            Ok(_) => println!("    readable --at 'Timestamp({},{})'", before.secs(), before.inc()),
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

struct Drop {
    ts: Timestamp,
    what: &'static str,
    ns: String,
    documents: Option<i64>,
}

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
            ("collection replaced by a rename", o.get_str("to").ok()?.to_owned())
        };
        Some(Self { ts, what, ns, documents })
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

//! `find-drop`: shows what was lost, when, and how to restore it.
//!
//! ```text
//!   oldest readable            oplog begins                                              newest
//!   |---- history: earlier.rs -|---- oplog: drops (this file), mass changes (changes.rs) ----|
//! ```

use std::collections::HashMap;

use anyhow::Result;
use bson::{Bson, Document, doc};
use protocol::Timestamp;

use super::{
    changes, earlier,
    source::{Node, long},
};
use crate::screen::{Paint, Screen, count};

/// Prints every drop and mass change that can be found, with the command that restores the state before it.
pub fn run(screen: &mut Screen, from: &str, wanted: Option<&str>, least: u64) -> Result<()> {
    let node = Node::connect(from)?;
    let found = find(&node, wanted, least)?;
    let to = node.primary_uri()?;
    for loss in &found {
        loss.print(screen, &node, to.as_deref())?;
    }
    if found.is_empty() {
        let of = wanted.map_or(String::new(), |ns| format!(" of {ns}"));
        let since = screen.time(earliest(&node)?);
        screen.say(format_args!(
            "no drop{of}, and no change of {} or more at a time, since {since}",
            count(least, "document")
        ))?;
    }
    Ok(())
}

/// The timestamp from which on every loss is found.
fn earliest(node: &Node) -> Result<Timestamp> {
    Ok(node.oplog_begin()?.map_or(node.oldest(), |begin| begin.min(node.oldest())))
}

/// All losses in chronological order.
pub(super) fn find(node: &Node, wanted: Option<&str>, least: u64) -> Result<Vec<Loss>> {
    let mut found = earlier::dropped(node)?;
    found.extend(dropped(node)?);
    found.retain(|loss| wanted.is_none_or(|wanted| loss.concerns(wanted)));
    found.extend(changes::find(node, wanted, least)?);
    found.sort_by_key(|loss| loss.ts);
    Ok(found)
}

/// The drops in the oplog.
fn dropped(node: &Node) -> Result<Vec<Loss>> {
    let exists = doc! { "$exists": true };
    let filter = doc! { "op": "c", "$or": [
        { "o.drop": exists.clone() },
        { "o.dropDatabase": exists.clone() },
        { "o.renameCollection": exists, "o.dropTarget": { "$type": "binData" } },
    ] };
    let mut found = Vec::new();
    let mut groups = Groups::default();
    for entry in node.oplog(filter)? {
        let Some(mut loss) = Loss::parse(&entry?) else { continue };
        let first = groups.first_of(node, &loss)?;
        loss.before = Timestamp::from_u64(first.as_u64() - 1);
        found.push(loss);
    }
    Ok(found)
}

/// Groups the drops of a database: its collections are dropped one by one, then the database itself. The database's
/// content is read before the first of these drops.
#[derive(Default)]
struct Groups {
    /// For each database, the first and the last drop of a run without other operations in between.
    running: HashMap<String, (Timestamp, Timestamp)>,
}

impl Groups {
    /// The timestamp before which the content of the lost database or collection is read: for a database, the first
    /// drop of its run.
    fn first_of(&mut self, node: &Node, loss: &Loss) -> Result<Timestamp> {
        let db = loss.ns.split_once('.').map_or(loss.ns.as_str(), |(db, _)| db);
        let group = match self.running.get(db).copied() {
            Some((first, last))
                if loss.what != What::Replaced && !touched(node, db, last, loss.ts)? =>
            {
                (first, loss.ts)
            }
            _ => (loss.ts, loss.ts),
        };
        self.running.insert(db.to_owned(), group);
        Ok(if loss.what == What::Database { group.0 } else { loss.ts })
    }
}

/// True if the oplog has entries of a database between two drops.
fn touched(node: &Node, db: &str, after: Timestamp, before: Timestamp) -> Result<bool> {
    let ts = |ts: Timestamp| bson::Timestamp::from(ts);
    // '/' is the character after '.', so this matches every namespace that begins with "db.".
    let filter = doc! {
        "ts": { "$gt": ts(after), "$lt": ts(before) },
        "ns": { "$gte": format!("{db}."), "$lt": format!("{db}/") },
    };
    Ok(node.oplog(filter)?.next().transpose()?.is_some())
}

/// A drop or a mass change.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) what: What,
    /// The database or the collection.
    pub(super) ns: String,
    /// The first and the last timestamp of the change.
    pub(super) ts: Timestamp,
    pub(super) until: Timestamp,
    /// The last timestamp before the change.
    pub(super) before: Timestamp,
    /// The number of affected documents, if known, and the number of documents before the change.
    pub(super) documents: Option<u64>,
    pub(super) of: Option<u64>,
}

/// The kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Collection,
    Database,
    /// A rename replaced the collection, so another collection has its name now.
    Replaced,
    Deletes,
    Updates,
}

impl What {
    fn words(self) -> &'static str {
        match self {
            Self::Collection => "collection dropped",
            Self::Database => "database dropped",
            Self::Replaced => "collection replaced by a rename",
            Self::Deletes => "documents deleted",
            Self::Updates => "documents updated",
        }
    }

    /// True if nothing has the name now, so that a restore can use it.
    fn leaves_the_name_free(self) -> bool {
        matches!(self, Self::Collection | Self::Database)
    }
}

impl Loss {
    fn parse(entry: &Document) -> Option<Self> {
        let ts: Timestamp = entry.get_timestamp("ts").ok()?.into();
        let (db, _) = entry.get_str("ns").ok()?.split_once('.')?;
        let o = entry.get_document("o").ok()?;
        let documents = entry.get_document("o2").ok().and_then(|o2| match o2.get("numRecords") {
            Some(Bson::Int32(n)) => u64::try_from(*n).ok(),
            Some(Bson::Int64(n)) => u64::try_from(*n).ok(),
            _ => None,
        });
        let (what, ns) = if let Ok(name) = o.get_str("drop") {
            (What::Collection, format!("{db}.{name}"))
        } else if o.contains_key("dropDatabase") {
            (What::Database, db.to_owned())
        } else {
            (What::Replaced, o.get_str("to").ok()?.to_owned())
        };
        Some(Self { what, ns, ts, until: ts, before: ts, documents, of: None })
    }

    fn concerns(&self, wanted: &str) -> bool {
        self.ns == wanted
            || self.ns.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
            || wanted.strip_prefix(self.ns.as_str()).is_some_and(|rest| rest.starts_with('.'))
    }

    /// One line of text for the user.
    pub(super) fn line(&self, screen: &Screen) -> String {
        let time = screen.paint(Paint::Bold, screen.time(self.ts));
        let until = match self.until.secs() == self.ts.secs() {
            true => String::new(),
            false => format!(" to {}", screen.time(self.until)),
        };
        let documents = match (self.documents, self.of) {
            (Some(n), Some(of)) => format!(", {n} of {}", count(of, "document")),
            (Some(n), None) => format!(", {}", count(n, "document")),
            (None, _) => String::new(),
        };
        format!("{time}{until}  {}  {}{documents}", self.what.words(), self.ns)
    }

    /// True if documents were changed and the collection still exists.
    pub(super) fn is_change(&self) -> bool {
        matches!(self.what, What::Deletes | What::Updates)
    }

    /// The `--ns` and `--rename` arguments of the `restore` command. If the name is taken, the restored collection
    /// gets another one.
    pub(super) fn names(&self) -> (String, Option<String>) {
        let rename =
            (!self.what.leaves_the_name_free()).then(|| format!("{}={}_before", self.ns, self.ns));
        (self.ns.clone(), rename)
    }

    fn print(&self, screen: &mut Screen, node: &Node, to: Option<&str>) -> Result<()> {
        let (ns, rename) = self.names();
        let at = format!("Timestamp({},{})", self.before.secs(), self.before.inc());
        let to = to.unwrap_or("mongodb://PRIMARY");
        let rename = rename.map_or(String::new(), |rename| format!(" --rename {rename}"));
        let from = node.shown_uri();
        let restore = format!(
            "understudy-tools restore --from {from} --at '{at}' --ns {ns}{rename} --to {to}"
        );
        let readable = node.check(self.before);
        let mut row = doc! {
            "ts": bson::Timestamp::from(self.ts), "time": screen.time(self.ts),
            "until": screen.time(self.until), "what": self.what.words(), "ns": &self.ns,
            "before": bson::Timestamp::from(self.before), "readable": readable.is_ok(),
        };
        row.extend(self.documents.map(|n| ("documents".to_owned(), long(n))));
        row.extend(self.of.map(|n| ("of".to_owned(), long(n))));
        if readable.is_ok() {
            row.insert("restore", &restore);
        }
        screen.row(&row, self.line(screen))?;
        match readable {
            Ok(()) => {
                screen.say(format_args!("    readable --at '{at}'"))?;
                screen.say(format_args!("    {restore}"))?;
            }
            Err(why) => screen.say(format_args!("    no longer readable: {why}"))?,
        }
        Ok(())
    }
}

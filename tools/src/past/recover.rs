//! `recover`: finds what was lost, shows it, and restores it after confirmation.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::{
    diff::{self, Form},
    drops::{self, Loss},
    json,
    restore::{self, Restore},
    source::{Node, Order, without_password},
};
use crate::screen::{Screen, count};

/// The options of `recover`.
pub struct Recover {
    /// The node to read from.
    pub from: String,
    /// The cluster to restore to; by default the node's primary.
    pub to: Option<String>,
    /// The database or collection; by default the most recent loss.
    pub ns: Option<String>,
    /// Mass changes of at least this many documents are considered.
    pub least: u64,
    /// The number of the loss to restore; the newest is 1.
    pub pick: usize,
    /// Only show what was lost and what would be done.
    pub dry_run: bool,
    /// Do not ask for confirmation.
    pub yes: bool,
    /// The file that records the progress of the restore.
    pub state: PathBuf,
}

/// The number of lost documents that are shown.
const SHOWN: usize = 3;

/// Finds and shows a loss, asks for confirmation and restores it.
pub fn run(screen: &mut Screen, what: &Recover) -> Result<()> {
    let node = Node::connect(&what.from)?;
    let mut found = drops::find(&node, what.ns.as_deref(), what.least)?;
    found.retain(|loss| node.check(loss.before).is_ok());
    found.reverse();
    let of = what.ns.as_ref().map_or(String::new(), |ns| format!(" of {ns}"));
    if found.is_empty() {
        bail!(
            "nothing{of} was lost since {}, as far as can be read: no drop, and no change of {} or more at a time \
             (--least)",
            screen.time(node.oldest()),
            count(what.least, "document")
        );
    }
    screen.say("found, the newest first:")?;
    for (at, loss) in found.iter().enumerate() {
        screen.say(format_args!("{:>3}. {}", at + 1, loss.line(screen)))?;
    }
    let loss = what.pick.checked_sub(1).and_then(|at| found.get(at));
    let loss = loss.with_context(|| {
        format!("--pick {}: there are {} to choose from", what.pick, found.len())
    })?;
    if found.len() > 1 {
        screen.say(format_args!("number {} is taken; --pick N takes another", what.pick))?;
    }
    show(screen, &node, loss)?;

    let to = match &what.to {
        Some(to) => to.clone(),
        None => {
            node.primary_uri()?.context("the node sees no primary: name the cluster with --to")?
        }
    };
    let (ns, rename) = loss.names();
    let mut restore = Restore {
        from: what.from.clone(),
        at: format!("Timestamp({},{})", loss.before.secs(), loss.before.inc()),
        ns: vec![ns.clone()],
        to: to.clone(),
        rename: rename.into_iter().collect(),
        drop: false,
        dry_run: true,
        yes: what.yes,
        state: what.state.clone(),
    };
    restore::run(screen, &restore)?;
    if what.dry_run {
        return Ok(());
    }
    screen.confirm(&format!("Restore {ns} to {}", without_password(&to)), what.yes)?;
    restore.dry_run = false;
    restore::run(screen, &restore)
}

/// Shows some of the lost documents, or for a mass change the number of differences.
fn show(screen: &mut Screen, node: &Node, loss: &Loss) -> Result<()> {
    let before = node.at(loss.before)?;
    if loss.is_change() {
        let after = node.at(loss.until)?;
        screen.say("what it changed:")?;
        diff::between(screen, &before, &after, std::slice::from_ref(&loss.ns), Form::Summary)?;
        return Ok(());
    }
    for collection in
        before.chosen(std::slice::from_ref(&loss.ns))?.iter().filter(|it| it.has_data())
    {
        let documents = count(before.count(collection)?, "document");
        screen.say(format_args!("{} had {documents}:", collection.ns()))?;
        let order = Order::Natural { skip: 0 };
        for document in before.documents(collection, order)?.take(SHOWN) {
            screen.say(format_args!("    {}", json(&document?)))?;
        }
    }
    Ok(())
}

//! `restore --at TIME`: writes collections as they were at a moment into a live cluster.
//!
//! Everything is checked before anything is written: if a collection would have to be overwritten, the restore is
//! refused and the error says what to do. The progress is saved to a state file after every batch, so the same
//! command resumes where it stopped.

mod plan;
mod state;

use std::{fmt::Write, path::PathBuf};

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::sync::Client;

use super::source::{
    Collection, Node, Order, Past, connect_cluster, long, number, without_password,
};
use crate::screen::{Screen, count};
use plan::{Step, Target};
use state::State;

/// What to restore, and where to.
pub struct Restore {
    /// The node to read.
    pub from: String,
    /// The moment to read.
    pub at: String,
    /// Databases and collections; none means all.
    pub ns: Vec<String>,
    /// The cluster to write to.
    pub to: String,
    /// `from=to`: other names in the cluster.
    pub rename: Vec<String>,
    /// Drop existing collections with the same names.
    pub drop: bool,
    /// Only print what would be done.
    pub dry_run: bool,
    /// Do not ask for confirmation before something is dropped.
    pub yes: bool,
    /// Path of the state file.
    pub state: PathBuf,
}

/// Maximum bytes in one insert.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Maximum documents in one insert.
const BATCH_MAX: usize = 1_000;
const BAR: &str = "  {msg} [{bar:30}] {human_pos} of {human_len}, {rate}, {eta} left";

/// Runs the restore.
pub fn run(screen: &mut Screen, what: &Restore) -> Result<()> {
    let node = Node::connect(&what.from)?;
    let to = connect_cluster(&what.to)?;
    let mut state = State::load(&what.state, &what.shown())?;
    let past = match state.ts() {
        Some(ts) => {
            node.check(ts).context("this restore can no longer be finished")?;
            node.at(ts)?
        }
        None => node.past(screen, &what.at)?,
    };
    let steps = plan::plan(&past, what)?;
    let (time, n) = (screen.time(past.ts), count(steps.len() as u64, "collection"));
    screen.say(format_args!("{n} of {time} ({})", past.ts))?;
    let in_the_way = in_the_way(&to, &steps, &state)?;
    for step in &steps {
        let note = if state.is_done(&step.ns()) {
            "  (done already)"
        } else if in_the_way.contains(&step.ns()) {
            if what.drop { "  (replaces what is there)" } else { "  (in the way)" }
        } else {
            ""
        };
        let row = doc! {
            "from": step.from.ns(), "to": step.ns(), "documents": long(step.documents),
            "note": note.trim(),
        };
        let text = format!("  {} -> {}, {}{note}", step.from.ns(), step.ns(), step.amount());
        screen.row(&row, text)?;
    }
    if !in_the_way.is_empty() && !what.drop {
        bail!(
            "the target has {} already, and nothing was written; use --drop to replace it, or --rename FROM=TO to \
             restore beside it",
            in_the_way.join(", ")
        );
    }
    if what.dry_run {
        screen.say("nothing was written: this was a dry run")?;
        return Ok(());
    }
    if !in_the_way.is_empty() {
        let to = without_password(&what.to);
        let question = format!("Drop {} of {to}, with all documents in it", in_the_way.join(", "));
        screen.confirm(&question, what.yes)?;
    }
    state.begin(past.ts)?;
    for step in &steps {
        if !state.is_done(&step.ns()) {
            restore(screen, &past, &to, step, &mut state, what.drop).with_context(|| {
                format!(
                    "{} is not whole; run the same command again to go on ({} says how far it is)",
                    step.ns(),
                    what.state.display()
                )
            })?;
        }
    }
    state.remove()?;
    let row = doc! { "restored": long(steps.len() as u64), "time": time };
    screen.row(&row, format_args!("restored {n}"))?;
    Ok(())
}

impl Restore {
    /// Identifies the restore, so that a state file is only used by the same restore.
    fn shown(&self) -> String {
        let mut shown = format!("--from {} --at {}", without_password(&self.from), self.at);
        for ns in &self.ns {
            // Writing to a String cannot fail.
            let _ = write!(shown, " --ns {ns}");
        }
        for rename in &self.rename {
            let _ = write!(shown, " --rename {rename}");
        }
        let _ = write!(shown, " --to {}", without_password(&self.to));
        shown
    }
}

/// Existing collections of the cluster under the names to be written, except those that this restore created.
fn in_the_way(to: &Client, steps: &[Step], state: &State) -> Result<Vec<String>> {
    let mut in_the_way = Vec::new();
    for step in steps.iter().filter(|step| !state.is_begun(&step.ns())) {
        let Target { db, name } = &step.to;
        let db = to.database(db);
        let names = db.list_collection_names().filter(doc! { "name": name });
        let names = names.run().context("ask the target")?;
        if !names.is_empty() {
            in_the_way.push(step.ns());
        }
    }
    Ok(in_the_way)
}

fn restore(
    screen: &mut Screen,
    past: &Past,
    to: &Client,
    step: &Step,
    state: &mut State,
    drop: bool,
) -> Result<()> {
    let ns = step.ns();
    let db = to.database(&step.to.db);
    if !state.is_created(&ns) {
        // From here on, a collection with this name is ours or was to be replaced.
        let again = state.is_begun(&ns);
        state.note_begun(&ns)?;
        if drop {
            db.run_command(doc! { "drop": &step.to.name, "writeConcern": durable() })
                .run()
                .or_else(|error| if has_code(&error, NOT_FOUND) { Ok(doc! {}) } else { Err(error) })
                .with_context(|| format!("drop {ns}"))?;
        }
        let mut create = doc! { "create": &step.to.name };
        create.extend(step.options());
        create.insert("writeConcern", durable());
        db.run_command(create)
            .run()
            .or_else(|error| match again && has_code(&error, EXISTS) {
                true => Ok(doc! {}),
                false => Err(error),
            })
            .with_context(|| format!("create {ns}"))?;
        state.note_created(&ns)?;
    }
    if let Some(data) = &step.data {
        copy(screen, past, to, step, data, state)?;
        let specs = step.index_specs();
        if !specs.is_empty() {
            let command = doc! {
                "createIndexes": &step.to.name, "indexes": specs, "writeConcern": durable(),
            };
            db.run_command(command).run().with_context(|| format!("create the indexes of {ns}"))?;
        }
        let count = db.run_command(doc! { "count": step.data_name() }).run()?;
        let count = number(count.get("n"))?;
        if count != step.documents {
            bail!(
                "{ns} has {count} documents where there were {}: somebody else writes there",
                step.documents
            );
        }
    }
    state.note_done(&ns)
}

/// What the state file records as done must survive a failover of the target. Commands do not use the client's write
/// concern, so it is given explicitly.
fn durable() -> Document {
    doc! { "w": "majority", "j": true }
}

const NOT_FOUND: i32 = 26;
const EXISTS: i32 = 48;

fn has_code(error: &mongodb::error::Error, code: i32) -> bool {
    matches!(&*error.kind, mongodb::error::ErrorKind::Command(failed) if failed.code == code)
}

fn copy(
    screen: &mut Screen,
    past: &Past,
    to: &Client,
    step: &Step,
    data: &Collection,
    state: &mut State,
) -> Result<()> {
    let ns = step.ns();
    let (copied, last) = state.progress(&ns);
    let order = match data.is_capped() {
        true => Order::Natural { skip: copied },
        false => Order::ById { after: last.as_ref() },
    };
    let bar = screen.bar(step.documents, BAR).with_message(ns.clone());
    bar.set_position(copied);
    let mut batch: Vec<RawDocumentBuf> = Vec::new();
    let (mut bytes, mut copied) = (0, copied);
    let mut flush = |batch: &mut Vec<RawDocumentBuf>, copied: &mut u64| -> Result<()> {
        let Some(last) = batch.last() else { return Ok(()) };
        let id = last.get("_id")?.map(Bson::try_from).transpose()?;
        let n = batch.len() as u64;
        insert(to, step, batch)?;
        batch.clear();
        *copied += n;
        state.note_copied(&ns, *copied, id)?;
        bar.set_position(*copied);
        Ok(())
    };
    for document in past.documents(data, order)? {
        let document = document?;
        bytes += document.as_bytes().len();
        batch.push(document);
        if batch.len() >= BATCH_MAX || bytes >= BATCH_BYTES_MAX {
            flush(&mut batch, &mut copied)?;
            bytes = 0;
        }
    }
    flush(&mut batch, &mut copied)?;
    bar.finish_and_clear();
    screen.note(format_args!("  {ns}: {}", step.amount()));
    Ok(())
}

/// Inserts a batch. An aborted run may have inserted documents after it last saved its state, so duplicate keys are
/// not an error. An ordered insert stops at the first duplicate and is continued after it.
fn insert(to: &Client, step: &Step, batch: &[RawDocumentBuf]) -> Result<()> {
    let ordered = step.from.is_capped();
    let mut rest = batch;
    while !rest.is_empty() {
        let mut documents = bson::RawArrayBuf::new();
        for document in rest {
            documents.push(document.as_ref());
        }
        let command = bson::rawdoc! {
            "insert": step.data_name(),
            "documents": documents,
            "ordered": ordered,
            "bypassDocumentValidation": true,
            "writeConcern": { "w": "majority", "j": true },
        };
        let reply = to.database(&step.to.db).run_raw_command(command).run()?;
        if let Some(error) = reply.get("writeConcernError") {
            bail!("the target did not keep a batch: {error}");
        }
        let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
        let mut stopped_at = rest.len();
        for error in errors.iter().filter_map(Bson::as_document) {
            let twice = error.get_i32("code").is_ok_and(|code| code == DUPLICATE_KEY);
            if !twice || !is_of_id(error) {
                bail!("the target refused a document: {error}");
            }
            if ordered {
                stopped_at = usize::try_from(number(error.get("index"))?)? + 1;
            }
        }
        rest = rest.get(stopped_at..).unwrap_or_default();
    }
    Ok(())
}

const DUPLICATE_KEY: i32 = 11_000;

fn is_of_id(error: &Document) -> bool {
    error.get_document("keyPattern").is_ok_and(|key| key.len() == 1 && key.contains_key("_id"))
}

//! Prints the content of a store, offline: marks, catalog, counts, history, the versions of one document.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use protocol::Namespace;
use storage::{Collection, ReadAt, Store, StoreOptions, View};

use crate::screen::Screen;

/// What to print.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The dbpath.
    dbpath: PathBuf,
    /// Read at this moment instead of the newest.
    #[arg(long, allow_hyphen_values = true)]
    at: Option<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print positions, node documents, sizes.
    Marks,
    /// Print collections with their indexes and counts.
    Catalog,
    /// Print the old versions per collection.
    History,
    /// Print every version of one document.
    Versions {
        /// db.collection
        ns: String,
        /// The `_id` as extended JSON, such as 5, "x" or {"$oid": "..."}.
        id: String,
    },
    /// Check documents, counts, indexes and history of every collection.
    Validate,
}

/// Prints the content of a dbpath that no server is using.
pub fn run(screen: &mut Screen, args: &Inspect) -> anyhow::Result<()> {
    if screen.is_json() {
        bail!("inspect prints text only; leave --json out");
    }
    if !args.dbpath.join("FORMAT").exists() {
        bail!("{} is not a dbpath of this program: it has no FORMAT file", args.dbpath.display());
    }
    let store = Store::open(&args.dbpath, StoreOptions::default())?;
    let at = match &args.at {
        None => ReadAt::Newest,
        Some(text) => ReadAt::Timestamp(screen.moment(text)?.1),
    };
    let view = store.view(at)?;
    match &args.what {
        What::Marks => marks(screen, &store),
        What::Catalog => catalog(screen, &view),
        What::History => history(screen, &store, &view),
        What::Versions { ns, id } => versions(screen, &store, &view, ns, id),
        What::Validate => validate(screen, &store, &view),
    }
}

fn marks(screen: &mut Screen, store: &Store) -> anyhow::Result<()> {
    let marks = store.watermarks();
    screen.say(format_args!("written   {}", marks.written().op_time))?;
    screen.say(format_args!("applied   {}", marks.applied().op_time))?;
    screen.say(format_args!("oldest    {}", marks.oldest()))?;
    screen.say(format_args!("initial sync unfinished: {}", store.initial_sync_pending()))?;
    if let Some(lost) = store.lost_tail() {
        screen.say(format_args!(
            "LOST: the disk lost entries up to {lost} whose sync was reported"
        ))?;
    }
    for (txn, ts) in store.prepared()? {
        screen.say(format_args!("prepared  {:02x?} at {ts}", txn.0))?;
    }
    let stats = store.stats();
    screen.say(format_args!(
        "oplog     {} entries, {} bytes",
        stats.oplog_entries, stats.oplog_bytes
    ))?;
    for (name, bytes) in &stats.disk {
        screen.say(format_args!("on disk   {name}: {bytes} bytes"))?;
    }
    if let Some(vote) = store.vote()? {
        screen.say(format_args!("vote      {}", json(&vote)?))?;
    }
    for name in store.meta_names()? {
        if let Some(doc) = store.meta(&name)? {
            screen.say(format_args!("{name}  {}", json(&doc)?))?;
        }
    }
    Ok(())
}

fn catalog(screen: &mut Screen, view: &View) -> anyhow::Result<()> {
    for coll in view.catalog().all() {
        let (count, bytes) = (view.count(&coll)?, view.data_size(&coll)?);
        screen.say(format_args!(
            "{}  {}  {count} documents, {bytes} bytes",
            coll.ns(),
            coll.uuid()
        ))?;
        screen.say(format_args!("  options {}", json(coll.options())?))?;
        if let Some(spec) = coll.id_index() {
            screen.say(format_args!("  _id_    {}", json(spec)?))?;
        }
        for index in coll.indexes() {
            screen.say(format_args!(
                "  {:?} multikey {:?} {}",
                index.state(),
                index.multikey_paths(),
                json(index.spec())?
            ))?;
        }
    }
    Ok(())
}

fn history(screen: &mut Screen, store: &Store, view: &View) -> anyhow::Result<()> {
    for (epoch, versions, bytes) in store.stats().history {
        screen.say(format_args!("epoch {epoch}: {versions} versions, {bytes} bytes"))?;
    }
    for coll in view.catalog().all() {
        let (versions, bytes) = store.history_of(&coll);
        screen.say(format_args!("{}: {versions} versions, {bytes} bytes", coll.ns()))?;
    }
    Ok(())
}

fn versions(
    screen: &mut Screen,
    store: &Store,
    view: &View,
    ns: &str,
    id: &str,
) -> anyhow::Result<()> {
    let coll = named(view, ns)?;
    let id: bson::Bson = serde_json::from_str(id)?;
    let holder = bson::RawDocumentBuf::try_from(&bson::doc! { "_id": id })?;
    let id = holder.get("_id")?.context("an _id")?;
    for version in store.versions(&coll, id)? {
        let stop = version.stop.map_or("now".to_owned(), |stop| stop.to_string());
        screen.say(format_args!("{} to {stop}  {}", version.start, json(&version.doc)?))?;
    }
    Ok(())
}

fn validate(screen: &mut Screen, store: &Store, view: &View) -> anyhow::Result<()> {
    let mut broken = 0;
    for coll in view.catalog().all() {
        let report = store.validate(&coll, true)?;
        screen.say(format_args!(
            "{}: {} documents, {}",
            coll.ns(),
            report.nrecords,
            if report.valid() { "valid" } else { "NOT VALID" }
        ))?;
        for error in &report.errors {
            screen.say(format_args!("  {error}"))?;
        }
        broken += u32::from(!report.valid());
    }
    if broken > 0 {
        bail!("{broken} collections are not valid");
    }
    Ok(())
}

fn named(view: &View, ns: &str) -> anyhow::Result<std::sync::Arc<Collection>> {
    let parsed = Namespace::parse(ns).with_context(|| format!("{ns} is not db.collection"))?;
    view.catalog().collection(&parsed).with_context(|| format!("there is no {ns}"))
}

fn json(doc: &bson::RawDocument) -> anyhow::Result<String> {
    let doc = bson::Document::try_from(doc)?;
    Ok(serde_json::to_string(&doc)?)
}

//! `export --at TIME`: writes a mongodump archive of a moment.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, RawDocumentBuf, doc};

use super::{
    archive::{Archive, Crc64, Metadata},
    canonical,
    source::{BUCKETS, Collection, Node, Order, Past},
};
use crate::screen::Screen;

/// Documents in one block of the archive.
const BLOCK: usize = 1_000;
const BAR: &str = "  {msg} [{bar:30}] {human_pos} of {human_len}, {rate}, {eta} left";

/// Writes the archive to `out`; `-` is standard output.
pub fn run(screen: &Screen, from: &str, at: &str, wanted: &[String], out: &Path) -> Result<()> {
    let past = Node::connect(from)?.past(screen, at)?;
    let chosen = past.chosen(wanted)?;
    if out == Path::new("-") {
        return write(screen, &past, &chosen, std::io::stdout().lock()).map(|_| ());
    }
    if out.exists() {
        bail!("{} is there already; name another file, or remove it first", out.display());
    }
    // Written under another name first, so that a file named `out` is always complete.
    let name = out.file_name().with_context(|| format!("{} names no file", out.display()))?;
    let unfinished = out.with_file_name(format!("{}.unfinished", name.to_string_lossy()));
    let file = File::create_new(&unfinished).with_context(|| {
        format!("cannot make {}: remove it if an export failed before", unfinished.display())
    })?;
    let written = write(screen, &past, &chosen, BufWriter::new(file)).and_then(|buffered| {
        buffered.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        std::fs::hard_link(&unfinished, out)
            .with_context(|| format!("{} cannot be made, or is there already", out.display()))
    });
    std::fs::remove_file(&unfinished)?;
    written
}

fn write<W: Write>(screen: &Screen, past: &Past, chosen: &[Collection], out: W) -> Result<W> {
    let version = past.run("admin", doc! { "buildInfo": 1 })?.get_str("version")?.to_owned();
    let mut content = Vec::new();
    for collection in chosen.iter().filter(|it| !it.name.starts_with(BUCKETS)) {
        content.push(Metadata {
            db: collection.db.clone(),
            collection: collection.name.clone(),
            metadata: metadata(past, collection)?,
            kind: collection.kind.clone(),
            size: 0,
        });
    }
    let mut archive = Archive::begin(out, &version, &content)?;
    for collection in chosen {
        match collection.kind.as_str() {
            // The documents of a time series are exported from its buckets collection.
            "timeseries" => {}
            // mongorestore expects an end marker for each namespace, also for those without documents.
            "view" => archive.end(&collection.db, &collection.name, Crc64::new())?,
            _ => copy(screen, past, collection, &mut archive)?,
        }
    }
    archive.finish()
}

fn copy<W: Write>(
    screen: &Screen,
    past: &Past,
    collection: &Collection,
    archive: &mut Archive<W>,
) -> Result<()> {
    let name = &collection.name;
    let bar = screen.bar(past.count(collection)?, BAR).with_message(collection.ns());
    let mut crc = Crc64::new();
    let mut block: Vec<RawDocumentBuf> = Vec::new();
    for document in past.documents(collection, Order::Natural { skip: 0 })? {
        block.push(document?);
        if block.len() >= BLOCK {
            bar.inc(block.len() as u64);
            archive.block(&collection.db, name, block.iter().map(|doc| &**doc), &mut crc)?;
            block.clear();
        }
    }
    if !block.is_empty() {
        archive.block(&collection.db, name, block.iter().map(|doc| &**doc), &mut crc)?;
    }
    archive.end(&collection.db, name, crc)?;
    bar.finish_and_clear();
    Ok(())
}

fn metadata(past: &Past, collection: &Collection) -> Result<String> {
    let indexes = match collection.kind.as_str() {
        "view" => Vec::new(),
        _ => past.indexes(collection)?.into_iter().map(Bson::Document).collect(),
    };
    let mut doc: Document = doc! {
        "options": collection.options.clone(),
        "indexes": indexes,
        "collectionName": &collection.name,
        "type": &collection.kind,
    };
    if let Some(uuid) = collection.uuid {
        doc.insert("uuid", uuid.to_string().replace('-', ""));
    }
    Ok(canonical(doc))
}

//! `diff TIME1 TIME2`: shows which documents were added, removed and changed.
//!
//! Collections with equal hashes are not read. The others are read at both moments in `_id` order, in parallel, so
//! memory holds only two documents, however large the collection.

use std::{cmp::Ordering, collections::BTreeMap};

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use clap::ValueEnum;
use indicatif::ProgressBar;
use query::value::compare;

use super::{
    canonical, json,
    source::{Collection, Node, Order, Past},
};
use crate::screen::{Paint, Screen};

/// How differences are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Counts per collection.
    Summary,
    /// One line of JSON per document.
    Json,
    /// Field by field, with - and +.
    Unified,
}

/// Prints the differences between two moments. True if there are none.
pub fn run(
    screen: &mut Screen,
    from: &str,
    then: &str,
    now: &str,
    wanted: &[String],
    form: Form,
) -> Result<bool> {
    let form = if screen.is_json() { Form::Json } else { form };
    let node = Node::connect(from)?;
    let (then, now) = (node.past(screen, then)?, node.past(screen, now)?);
    between(screen, &then, &now, wanted, form)
}

/// Like [`run`], for two moments that are already open.
pub(super) fn between(
    screen: &mut Screen,
    then: &Past,
    now: &Past,
    wanted: &[String],
    form: Form,
) -> Result<bool> {
    if form != Form::Json {
        for (sign, past) in [("---", then), ("+++", now)] {
            screen.say(format_args!("{sign} {} ({})", screen.time(past.ts), past.ts))?;
        }
    }
    let mut names: BTreeMap<String, [Option<Collection>; 2]> = BTreeMap::new();
    for name in wanted {
        if !then.has(name)? && !now.has(name)? {
            bail!("there was no {name} at either of the two moments");
        }
    }
    for (at, past) in [then, now].into_iter().enumerate() {
        for collection in chosen(past, wanted)? {
            if let Some(slot) = names.entry(collection.ns()).or_default().get_mut(at) {
                *slot = Some(collection);
            }
        }
    }
    let bar = screen.bar(0, "  {msg}: {human_pos} documents compared, {rate}");
    let mut equal = true;
    for (ns, [old, new]) in &names {
        bar.set_message(ns.clone());
        let differ = Differ { form, ns, bar: &bar, added: 0, removed: 0, changed: 0, said: false };
        equal &= differ.run(screen, [(then, old.as_ref()), (now, new.as_ref())])?;
    }
    bar.finish_and_clear();
    if equal && form != Form::Json {
        screen.say("no differences")?;
    }
    Ok(equal)
}

/// A collection may exist at only one of the two moments.
fn chosen(past: &Past, wanted: &[String]) -> Result<Vec<Collection>> {
    if wanted.is_empty() {
        return past.chosen(wanted);
    }
    let mut here = Vec::new();
    for name in wanted {
        if past.has(name)? {
            here.push(name.clone());
        }
    }
    if here.is_empty() { Ok(Vec::new()) } else { past.chosen(&here) }
}

struct Differ<'a> {
    form: Form,
    ns: &'a str,
    bar: &'a ProgressBar,
    added: u64,
    removed: u64,
    changed: u64,
    /// True if something other than documents differs.
    said: bool,
}

impl Differ<'_> {
    /// Compares one collection. True if nothing differs.
    fn run(
        mut self,
        screen: &mut Screen,
        sides: [(&Past, Option<&Collection>); 2],
    ) -> Result<bool> {
        let [old, new] = sides;
        match (old.1, new.1) {
            (None, Some(_)) => self.say(screen, "+ the collection was created")?,
            (Some(_), None) => self.say(screen, "- the collection was dropped or renamed")?,
            (Some(a), Some(b)) if a.uuid != b.uuid => {
                self.say(screen, "! the collection was dropped and made anew")?;
            }
            (Some(a), Some(b)) => {
                if a.options != b.options {
                    self.say(screen, "! its options are not what they were")?;
                }
                if a.has_data() && hash(old.0, a)? == hash(new.0, b)? {
                    return Ok(!self.said);
                }
            }
            (None, None) => {}
        }
        let mut left = documents(old)?;
        let mut right = documents(new)?;
        let (mut a, mut b) = (next(&mut left)?, next(&mut right)?);
        loop {
            let order = match (&a, &b) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => {
                    let (a, b) = (a.get("_id")?.context("_id")?, b.get("_id")?.context("_id")?);
                    compare(a, b)
                }
            };
            match order {
                Ordering::Less => self.differs(screen, a.as_deref(), None)?,
                Ordering::Greater => self.differs(screen, None, b.as_deref())?,
                Ordering::Equal if a != b => self.differs(screen, a.as_deref(), b.as_deref())?,
                Ordering::Equal => {}
            }
            self.bar.inc(1);
            if order != Ordering::Greater {
                a = next(&mut left)?;
            }
            if order != Ordering::Less {
                b = next(&mut right)?;
            }
        }
        let Self { added, removed, changed, ns, .. } = self;
        let documents = added + removed + changed;
        if self.form == Form::Summary && documents > 0 {
            self.line(
                screen,
                format_args!("{ns}: {added} added, {removed} removed, {changed} changed"),
            )?;
        }
        Ok(documents == 0 && !self.said)
    }

    fn say(&mut self, screen: &mut Screen, text: &str) -> Result<()> {
        self.said = true;
        match self.form {
            Form::Json => {
                let row = doc! { "ns": self.ns, "change": text };
                self.bar.suspend(|| writeln!(screen.out(), "{}", json(&row)))?;
            }
            Form::Summary | Form::Unified => {
                self.line(screen, format_args!("{}: {text}", self.ns))?;
            }
        }
        Ok(())
    }

    fn differs(
        &mut self,
        screen: &mut Screen,
        old: Option<&RawDocument>,
        new: Option<&RawDocument>,
    ) -> Result<()> {
        let what = match (old, new) {
            (None, _) => ("added", &mut self.added),
            (_, None) => ("removed", &mut self.removed),
            _ => ("changed", &mut self.changed),
        };
        *what.1 += 1;
        let what = what.0;
        let parse = |doc: Option<&RawDocument>| doc.map(Document::try_from).transpose();
        match self.form {
            Form::Summary => {}
            Form::Json => {
                let mut line = doc! { "ns": self.ns, "change": what };
                let (old, new) = (parse(old)?, parse(new)?);
                let id = new.as_ref().or(old.as_ref()).and_then(|doc| doc.get("_id").cloned());
                line.insert("_id", id.unwrap_or(Bson::Null));
                let alike = old.as_ref().map(json) == new.as_ref().map(json);
                line.extend(old.map(|old| ("before".to_owned(), Bson::Document(old))));
                line.extend(new.map(|new| ("after".to_owned(), Bson::Document(new))));
                // If only the type of a number differs, the canonical form shows it.
                let line = if alike { canonical(line) } else { json(&line) };
                self.bar.suspend(|| writeln!(screen.out(), "{line}"))?;
            }
            Form::Unified => {
                let (old, new) = (parse(old)?.unwrap_or_default(), parse(new)?.unwrap_or_default());
                let id = new.get("_id").or(old.get("_id")).cloned().unwrap_or(Bson::Null);
                let id = json(&doc! { "_id": id });
                self.line(screen, format_args!("@@ {} {id} {what}", self.ns))?;
                self.bar.suspend(|| unified(&old, &new, screen))?;
            }
        }
        Ok(())
    }

    fn line(&self, screen: &mut Screen, text: impl std::fmt::Display) -> Result<()> {
        Ok(self.bar.suspend(|| screen.say(text))?)
    }
}

fn unified(old: &Document, new: &Document, screen: &mut Screen) -> Result<()> {
    let minus = |screen: &mut Screen, text: String| {
        screen.say(screen.paint(Paint::Red, format_args!("- {text}")))
    };
    let plus = |screen: &mut Screen, text: String| {
        screen.say(screen.paint(Paint::Green, format_args!("+ {text}")))
    };
    let mut told = false;
    for (name, was) in old {
        let is = new.get(name);
        if is == Some(was) {
            continue;
        }
        told = true;
        let was = doc! { name: was.clone() };
        let is = is.map(|is| doc! { name: is.clone() });
        // If only the type of a number differs, the canonical form shows it.
        let alike = is.as_ref().is_some_and(|is| json(is) == json(&was));
        let shown = |doc: Document| if alike { canonical(doc) } else { json(&doc) };
        minus(screen, shown(was))?;
        if let Some(is) = is {
            plus(screen, shown(is))?;
        }
    }
    for (name, is) in new.iter().filter(|(name, _)| !old.contains_key(name.as_str())) {
        told = true;
        plus(screen, json(&doc! { name: is.clone() }))?;
    }
    if !told {
        let names = |doc: &Document| doc.keys().cloned().collect::<Vec<_>>().join(", ");
        minus(screen, format!("fields in the order {}", names(old)))?;
        plus(screen, format!("fields in the order {}", names(new)))?;
    }
    Ok(())
}

fn hash(past: &Past, collection: &Collection) -> Result<Option<Bson>> {
    let command = doc! { "dbHash": 1, "collections": [&collection.name] };
    let reply = past.run(&collection.db, command)?;
    Ok(reply.get_document("collections")?.get(&collection.name).cloned())
}

type Documents = Box<dyn Iterator<Item = mongodb::error::Result<RawDocumentBuf>>>;

fn documents((past, collection): (&Past, Option<&Collection>)) -> Result<Documents> {
    match collection.filter(|collection| collection.has_data()) {
        Some(collection) => Ok(Box::new(past.documents(collection, Order::ById { after: None })?)),
        None => Ok(Box::new(std::iter::empty())),
    }
}

fn next(documents: &mut Documents) -> Result<Option<RawDocumentBuf>> {
    Ok(documents.next().transpose()?)
}

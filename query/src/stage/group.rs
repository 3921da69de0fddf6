//! `$group`, `$count` and `$sortByCount`.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use protocol::RawDoc;

use super::{
    Parsed, StageContext,
    accumulator::{Spec, State},
    hash_key,
    plain::one,
    to_doc,
};
use crate::{
    collation::Collator,
    context::Context,
    error::QueryError,
    exec::{Noted, Seen, Sort, SpilledNoted, Stage, Test, Upstream},
    expression::{Bump, DocBuilder, Env, Expr, Scope},
    sort::SortPattern,
    value::{Element, Elements, Fields, Found, OwnedValue, Value},
};

/// Memory limit of the groups (mongod's internalDocumentSourceGroupMaxMemoryBytes).
const MEMORY_MAX: usize = 100 * 1024 * 1024;

/// The stage: the first call reads all documents, later calls return the groups.
///
/// Above the memory limit no new group is created: documents of further groups are spilled, and become the input of
/// another round after the groups of this one were returned.
#[derive(Debug)]
pub(super) struct Group {
    id: Expr,
    /// The name of the only field of `_id`, whose value groups by itself: there what is missing is null.
    only: Option<Box<[u8]>>,
    specs: Vec<Spec>,
    inputs: Inputs,
    collator: Option<Arc<Collator>>,
    memory_max: usize,
    done: Option<std::vec::IntoIter<Entry>>,
    /// Spilled documents, whose groups did not fit into memory.
    left: Option<SpilledNoted>,
}

#[derive(Debug)]
struct Entry {
    id: OwnedValue,
    states: Vec<State>,
}

/// Parses `$group`.
pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            15_947,
            "a group's fields must be specified in an object",
        ));
    };
    let mut scope: Scope = cx.scope.clone();
    let (mut id, mut only, mut specs) = (None, None, Vec::new());
    for field in Elements::of_bytes(doc) {
        if field.key == b"_id" {
            check_id(field.value(), &scope)?;
            only = only_field(field.value(), &mut scope)?;
            let value = only.as_ref().map_or(field.value(), |only| only.value());
            id = Some(Expr::parse(value, &mut scope)?);
        } else {
            let spec = Spec::parse(field.key, field.value(), &mut scope)?;
            let collator = || cx.parse.collator.clone();
            specs.push(if cx.pushed { spec.pushed(collator())? } else { spec });
        }
    }
    let id = id
        .ok_or_else(|| QueryError::location(15_955, "a group specification must include an _id"))?;
    let only = only.map(|field| field.key.into());
    one(Group { only, ..Group::new(id, specs, cx) })
}

/// The field of an `_id` that is a document of one expression.
fn only_field<'v>(id: Value<'v>, scope: &mut Scope) -> Result<Option<Element<'v>>, QueryError> {
    let Value::Document(doc) = id else { return Ok(None) };
    let mut fields = Elements::of_bytes(doc);
    let (Some(field), None) = (fields.next(), fields.next()) else { return Ok(None) };
    if field.key.starts_with(b"$") {
        return Ok(None);
    }
    // The name is checked with the document.
    Expr::parse(id, &mut scope.apart(None))?;
    Ok(Some(field))
}

/// In a document of expressions a number would look like an inclusion, so it is refused.
fn check_id(id: Value<'_>, scope: &Scope) -> Result<(), QueryError> {
    let Value::Document(doc) = id else { return Ok(()) };
    if Elements::of_bytes(doc).next().is_some_and(|field| field.key.starts_with(b"$")) {
        return Ok(());
    }
    let plain = |value: Value<'_>| value.is_number() || matches!(value, Value::Bool(_));
    if !Elements::of_bytes(doc).any(|field| plain(field.value())) {
        return Ok(());
    }
    // Errors in earlier fields are reported first.
    for field in Elements::of_bytes(doc).take_while(|field| !plain(field.value())) {
        Expr::parse(field.value(), &mut scope.apart(None))?;
    }
    Err(QueryError::location(17_390, "$group does not support inclusion-style expressions"))
}

impl Group {
    /// A group stage for an expression.
    pub(super) fn new(id: Expr, specs: Vec<Spec>, cx: &StageContext) -> Self {
        Self {
            inputs: Inputs::new(&id, &specs),
            id,
            only: None,
            specs,
            collator: cx.parse.collator.clone(),
            memory_max: MEMORY_MAX,
            done: None,
            left: None,
        }
    }

    /// Sets the memory limit above which it spills or fails, for tests.
    #[cfg(test)]
    pub(super) fn with_memory(mut self, bytes: usize) -> Self {
        self.memory_max = bytes;
        self
    }

    /// Runs one round: returns the groups, and the spilled documents.
    fn gather(
        &self,
        context: &Context,
        pull: &mut dyn FnMut(Test<'_>) -> Result<Option<Noted>, QueryError>,
    ) -> Result<Round, QueryError> {
        let mut groups =
            Groups { of: self, places: HashMap::default(), entries: Vec::new(), bytes: 0 };
        let mut work = Work { arena: Bump::new(), key: Vec::new() };
        let full = pull(&mut |doc| {
            groups.take(doc, context, &mut work, true)?;
            Ok(groups.bytes > self.memory_max)
        })?;
        if full.is_none() {
            return Ok(Round { entries: groups.entries, left: None });
        }
        let Some(spill) = &context.spill else {
            return Err(QueryError::location(
                292,
                "Exceeded memory limit for $group, but didn't allow external spilling; pass \
                 allowDiskUse:true to opt in",
            ));
        };
        let mut failed = Ok(());
        let mut strangers = std::iter::from_fn(|| {
            let stranger =
                pull(&mut |doc| groups.take(doc, context, &mut work, false).map(|known| !known));
            stranger.unwrap_or_else(|error| {
                failed = Err(error);
                None
            })
        });
        let left = SpilledNoted::write(&**spill, &mut strangers)?;
        failed?;
        Ok(Round { entries: groups.entries, left: Some(left) })
    }

    fn finish(&self, entry: &Entry) -> Result<RawDoc, QueryError> {
        let mut doc = DocBuilder::new();
        match &self.only {
            Some(name) => {
                let mut id = DocBuilder::new();
                id.push(name, entry.id.get());
                doc.push(b"_id", Value::Document(&id.finish()));
            }
            None => doc.push(b"_id", entry.id.get()),
        }
        for (spec, state) in self.specs.iter().zip(&entry.states) {
            doc.push(&spec.name, spec.finish(state).get());
        }
        to_doc(doc.finish())
    }
}

/// The document fields that a group reads, and which of its expressions are just such a field.
#[derive(Debug)]
struct Inputs {
    fields: Fields,
    id: Option<usize>,
    specs: Vec<Option<usize>>,
}

impl Inputs {
    fn new(id: &Expr, specs: &[Spec]) -> Self {
        let mut fields = Fields::default();
        let mut place = |expr: &Expr| fields.place(expr.as_field()?);
        let (id, specs) = (place(id), specs.iter().map(|spec| place(spec.input())).collect());
        Self { fields, id, specs }
    }
}

/// The value of an expression that may be just a field.
fn value_of<'a>(
    expr: &'a Expr,
    place: Option<usize>,
    found: &Found<'a>,
    env: &mut Env<'a>,
) -> Result<Value<'a>, QueryError> {
    place.map_or_else(|| expr.eval(env), |place| Ok(found.at(place)))
}

/// The result of a round.
struct Round {
    entries: Vec<Entry>,
    left: Option<SpilledNoted>,
}

/// Buffers that are reused for each document.
struct Work {
    arena: Bump,
    key: Vec<u8>,
}

/// The groups of a round.
struct Groups<'g> {
    of: &'g Group,
    places: HashMap<Box<[u8]>, usize, RandomState>,
    entries: Vec<Entry>,
    bytes: usize,
}

impl Groups<'_> {
    /// Adds a document to its group, which is created if allowed. False if there is none.
    fn take(
        &mut self,
        row: Seen<'_>,
        context: &Context,
        work: &mut Work,
        may_begin: bool,
    ) -> Result<bool, QueryError> {
        work.arena.reset();
        work.key.clear();
        let doc = row.doc;
        let mut env = Env::over(&work.arena, context, row);
        env.collator = self.of.collator.as_deref();
        let Inputs { fields, id: id_at, specs: specs_at } = &self.of.inputs;
        let found = fields.find(doc);
        let id = match value_of(&self.of.id, *id_at, &found, &mut env)? {
            Value::Missing => Value::Null,
            id => id,
        };
        hash_key::append(id, env.collator, &mut work.key);
        let at = match self.places.get(work.key.as_slice()) {
            Some(at) => *at,
            None if !may_begin => return Ok(false),
            None => self.begin(id, &work.key, context)?,
        };
        if let Some(entry) = self.entries.get_mut(at) {
            let specs = self.of.specs.iter().zip(specs_at);
            for ((spec, at), state) in specs.zip(&mut entry.states) {
                let before = state.bytes();
                let value = value_of(spec.input(), *at, &found, &mut env)?;
                spec.add_value(state, value, env.collator, doc)?;
                self.bytes += state.bytes().saturating_sub(before);
            }
        }
        Ok(true)
    }

    fn begin(&mut self, id: Value<'_>, key: &[u8], context: &Context) -> Result<usize, QueryError> {
        let states: Result<Vec<_>, _> =
            self.of.specs.iter().map(|spec| spec.start(context)).collect();
        let entry = Entry { id: id.into(), states: states? };
        self.bytes += 2 * key.len() + entry.id.size() + size_of::<Entry>();
        self.bytes += self.of.specs.len() * size_of::<State>();
        let at = self.entries.len();
        self.entries.push(entry);
        self.places.insert(key.into(), at);
        Ok(at)
    }
}

impl Stage for Group {
    fn needs(&self) -> Option<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        let inputs = self.specs.iter().map(|spec| spec.plain_input());
        for expr in std::iter::once(Some(&self.id)).chain(inputs) {
            expr?.add_paths(&mut paths)?;
        }
        Some(paths)
    }

    fn values_of(&self) -> Option<Vec<u8>> {
        let plain =
            self.specs.is_empty() && self.only.is_none() && matches!(self.id, Expr::Path(_));
        self.needs().filter(|_| plain)?.pop()
    }

    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        loop {
            if let Some(entry) = self.done.as_mut().and_then(Iterator::next) {
                return Ok(Some(self.finish(&entry)?.into()));
            }
            let context = up.context();
            let round = match (&self.done, self.left.take()) {
                (None, _) => self.gather(context, &mut |test| up.pull_where(test))?,
                (Some(_), Some(mut left)) => self.gather(context, &mut |test| {
                    while let Some(doc) = left.next()? {
                        if test(doc.seen())? {
                            return Ok(Some(doc));
                        }
                    }
                    Ok(None)
                })?,
                (Some(_), None) => return Ok(None),
            };
            self.done = Some(round.entries.into_iter());
            self.left = round.left;
        }
    }
}

/// `{$sum: 1}` under a name.
pub(super) fn counted(name: &[u8]) -> Result<Spec, QueryError> {
    let mut inner = DocBuilder::new();
    inner.push(b"$sum", Value::Int32(1));
    Spec::parse(name, Value::Document(&inner.finish()), &mut Scope::default())
}

/// `$sortByCount`.
pub(super) fn parse_sort_by_count(
    value: Value<'_>,
    cx: &StageContext,
) -> Result<Parsed, QueryError> {
    let is_path = matches!(value, Value::String(text) if text.starts_with(b"$"));
    let is_expression = matches!(value, Value::Document(doc)
        if Elements::of_bytes(doc).next().is_some_and(|f| f.key.starts_with(b"$")));
    if let (Value::String(_), false) = (value, is_path) {
        return Err(QueryError::location(
            40_148,
            "the sortByCount field must be defined as a $-prefixed path or an expression inside an \
             object",
        ));
    }
    if let (Value::Document(_), false) = (value, is_expression) {
        return Err(QueryError::location(
            40_147,
            "the sortByCount field must be defined as a $-prefixed path or an expression inside an \
             object",
        ));
    }
    if !is_path && !is_expression {
        return Err(QueryError::location(
            40_149,
            "the sortByCount field must be specified as a string or as an object",
        ));
    }
    let id = Expr::parse(value, &mut cx.scope.clone())?;
    let group = Group::new(id, vec![counted(b"count")?], cx);
    let by = bson::rawdoc! { "count": -1 };
    let sort = Sort::new(SortPattern::parse(&by, None)?, None);
    Ok(Parsed::Other(vec![Box::new(group), Box::new(sort)]))
}

/// `$count`: returns one document, or none if there was no input.
#[derive(Debug)]
struct Count {
    name: Box<[u8]>,
    done: bool,
}

/// Parses `$count`.
pub(super) fn parse_count(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    let Value::String(name) = value else {
        return Err(QueryError::location(40_156, "the count field must be a non-empty string"));
    };
    if name.is_empty() {
        return Err(QueryError::location(40_157, "the count field must be a non-empty string"));
    }
    if name.starts_with(b"$") {
        return Err(QueryError::location(40_158, "the count field cannot be a $-prefixed path"));
    }
    if name.contains(&0) {
        return Err(QueryError::location(40_159, "the count field cannot contain a null byte"));
    }
    if name.contains(&b'.') {
        return Err(QueryError::location(40_160, "the count field cannot contain '.'"));
    }
    one(Count { name: name.into(), done: false })
}

impl Stage for Count {
    fn needs(&self) -> Option<Vec<Vec<u8>>> {
        Some(Vec::new())
    }

    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.done {
            return Ok(None);
        }
        self.done = true;
        let mut count = 0i64;
        up.pull_where(&mut |_| {
            count += 1;
            Ok(false)
        })?;
        if count == 0 {
            return Ok(None);
        }
        let mut doc = DocBuilder::new();
        doc.push(&self.name, i32::try_from(count).map_or(Value::Int64(count), Value::Int32));
        Ok(Some(to_doc(doc.finish())?.into()))
    }
}

//! `$group`, `$count` and `$sortByCount`.

use std::{collections::HashMap, sync::Arc};

use protocol::RawDoc;

use super::{
    Parsed, StageContext,
    accumulator::{Spec, State},
    hash_key,
    table::one,
    to_doc,
};
use crate::{
    collation::Collator,
    error::QueryError,
    exec::{Sort, Stage, Upstream},
    expression::{Bump, DocBuilder, Env, Expr, Scope},
    sort::SortPattern,
    value::{Elements, OwnedValue, Value},
};

/// Memory that the groups may hold before mongod spills.
const MEMORY_MAX: usize = 100 * 1024 * 1024;

/// The stage: groups are gathered at the first call and given out afterwards.
#[derive(Debug)]
pub(super) struct Group {
    id: Expr,
    specs: Vec<Spec>,
    collator: Option<Arc<Collator>>,
    done: Option<std::vec::IntoIter<RawDoc>>,
}

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
    let (mut id, mut specs) = (None, Vec::new());
    for field in Elements::of_bytes(doc) {
        if field.key == b"_id" {
            id = Some(Expr::parse(field.value(), &mut scope)?);
        } else {
            specs.push(Spec::parse(field.key, field.value(), &mut scope)?);
        }
    }
    let id = id
        .ok_or_else(|| QueryError::location(15_955, "a group specification must include an _id"))?;
    one(Group { id, specs, collator: cx.parse.collator.clone(), done: None })
}

impl Group {
    /// A group of the stage's own making, for stages that are short for one.
    pub(super) fn new(id: Expr, specs: Vec<Spec>, cx: &StageContext) -> Self {
        Self { id, specs, collator: cx.parse.collator.clone(), done: None }
    }

    fn gather(&self, up: &mut Upstream<'_, '_>) -> Result<Vec<RawDoc>, QueryError> {
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut groups: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut arena = Bump::new();
        while let Some(doc) = up.pull()? {
            let mut env = Env::new(&arena, up.context(), doc.as_bytes());
            env.collator = self.collator.as_deref();
            let id = match self.id.eval(&mut env)? {
                Value::Missing => Value::Null,
                id => id,
            };
            let key = hash_key::of(id, env.collator);
            let at = match places.get(&key) {
                Some(at) => *at,
                None => {
                    let states: Result<Vec<_>, _> =
                        self.specs.iter().map(|spec| spec.start(&mut env)).collect();
                    bytes += key.len() + id_size(id);
                    groups.push(Entry { id: id.into(), states: states? });
                    places.insert(key, groups.len() - 1);
                    groups.len() - 1
                }
            };
            if let Some(entry) = groups.get_mut(at) {
                for (spec, state) in self.specs.iter().zip(&mut entry.states) {
                    let before = state.bytes();
                    spec.add(state, &mut env, doc.as_bytes())?;
                    bytes += state.bytes().saturating_sub(before);
                }
            }
            drop(env);
            arena.reset();
            if bytes > MEMORY_MAX {
                return Err(QueryError::location(
                    292,
                    "Exceeded memory limit for $group, but didn't allow external sort. Pass \
                     allowDiskUse:true to opt in.",
                ));
            }
        }
        groups.into_iter().map(|entry| self.finish(&entry)).collect()
    }

    fn finish(&self, entry: &Entry) -> Result<RawDoc, QueryError> {
        let mut doc = DocBuilder::new();
        doc.push(b"_id", entry.id.get());
        for (spec, state) in self.specs.iter().zip(&entry.states) {
            doc.push(&spec.name, spec.finish(state).get());
        }
        to_doc(doc.finish())
    }
}

fn id_size(id: Value<'_>) -> usize {
    OwnedValue::from(id).size()
}

impl Stage for Group {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        if self.done.is_none() {
            self.done = Some(self.gather(up)?.into_iter());
        }
        Ok(self.done.as_mut().and_then(Iterator::next))
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

/// `$count`: one document, or none if none came.
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
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        if self.done {
            return Ok(None);
        }
        self.done = true;
        let mut count = 0i64;
        while up.pull()?.is_some() {
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let mut doc = DocBuilder::new();
        doc.push(&self.name, i32::try_from(count).map_or(Value::Int64(count), Value::Int32));
        to_doc(doc.finish()).map(Some)
    }
}

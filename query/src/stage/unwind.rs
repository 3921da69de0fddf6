//! `$unwind`: one document for each element of an array.

use std::collections::VecDeque;

use protocol::RawDoc;

use super::{
    Parsed, StageContext,
    plain::one,
    spec::{Spec, Takes, field},
    to_doc,
};
use crate::{
    error::QueryError,
    exec::{Noted, Notes, Stage, Upstream},
    expression::DocBuilder,
    field_path,
    value::{Elements, Value},
};

#[derive(Debug)]
struct Unwind {
    path: Vec<Box<[u8]>>,
    index: Option<Vec<Box<[u8]>>>,
    keep_empty: bool,
    pending: VecDeque<RawDoc>,
    /// The notes of the document that is being unwound.
    notes: Notes,
}

fn split(path: &[u8]) -> Vec<Box<[u8]>> {
    path.split(|&b| b == b'.').map(Box::from).collect()
}

static SPEC: Spec = Spec::new(
    "$unwind",
    &[
        field("path", Takes::String)
            .otherwise(28_808, "expected a string as the path for {stage} stage, got {type}"),
        field("preserveNullAndEmptyArrays", Takes::Bool).otherwise(
            28_809,
            "expected a boolean for the {field} option to {stage} stage, got {type}",
        ),
        field("includeArrayIndex", Takes::Any),
    ],
)
.not_object(
    15_981,
    "expected either a string or an object as specification for {stage} stage, got {type}",
)
.unknown(28_811, "unrecognized option to {stage} stage: {field}");

const NO_INDEX: &str =
    "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got ";

/// Parses `$unwind`.
pub(super) fn parse(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    let (mut path, mut index, mut keep_empty) = (None, None, false);
    match value {
        Value::String(text) => path = Some(text),
        _ => SPEC.each(value, |name, value| {
            match (name, value) {
                ("path", Value::String(text)) => path = Some(text),
                ("preserveNullAndEmptyArrays", Value::Bool(keep)) => keep_empty = keep,
                (_, Value::String(text)) if text.starts_with(b"$") => {
                    return Err(QueryError::location(
                        28_822,
                        format!(
                            "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {}",
                            String::from_utf8_lossy(text)
                        ),
                    ));
                }
                (_, Value::String(text)) if !text.is_empty() => index = Some(split(text)),
                _ => {
                    return Err(QueryError::location(
                        28_810,
                        format!("{NO_INDEX}{}", value.type_name()),
                    ));
                }
            }
            Ok(())
        })?,
    }
    let path =
        path.ok_or_else(|| QueryError::location(28_812, "no path specified to $unwind stage"))?;
    let Some(path) = path.strip_prefix(b"$") else {
        return Err(QueryError::location(
            28_818,
            format!(
                "path option to $unwind stage should be prefixed with a '$': {}",
                String::from_utf8_lossy(path)
            ),
        ));
    };
    field_path::check(path)?;
    one(Unwind {
        path: split(path),
        index,
        keep_empty,
        pending: VecDeque::new(),
        notes: Notes::default(),
    })
}

impl Stage for Unwind {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        loop {
            if let Some(doc) = self.pending.pop_front() {
                return Ok(Some(Noted { doc, notes: self.notes.clone() }));
            }
            let Some(row) = up.pull()? else { return Ok(None) };
            self.unwind(&row)?;
            self.notes = row.notes;
        }
    }
}

impl Unwind {
    fn unwind(&mut self, doc: &RawDoc) -> Result<(), QueryError> {
        let value = at(doc.as_bytes(), &self.path);
        let elements: Vec<_> = match value {
            Value::Array(_) => value.elements().map(|e| e.value()).collect(),
            Value::Missing | Value::Null | Value::Undefined => Vec::new(),
            other => {
                return self.push(doc.as_bytes(), other, Value::Null, false);
            }
        };
        if elements.is_empty() {
            if self.keep_empty {
                // An empty array removes the field; null is kept.
                let left = if matches!(value, Value::Array(_)) { Value::Missing } else { value };
                self.push(doc.as_bytes(), left, Value::Null, true)?;
            }
            return Ok(());
        }
        for (index, element) in (0i64..).zip(elements) {
            self.push(doc.as_bytes(), element, Value::Int64(index), true)?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        doc: &[u8],
        value: Value<'_>,
        index: Value<'_>,
        replace: bool,
    ) -> Result<(), QueryError> {
        let mut bytes = if replace { with(doc, &self.path, value) } else { doc.to_vec() };
        if let Some(path) = &self.index {
            bytes = with(&bytes, path, index);
        }
        self.pending.push_back(to_doc(bytes)?);
        Ok(())
    }
}

/// The value at a path that leads only through documents.
pub(super) fn at<'d>(doc: &'d [u8], path: &[Box<[u8]>]) -> Value<'d> {
    let mut value = Value::Document(doc);
    for name in path {
        let Value::Document(inner) = value else { return Value::Missing };
        value = Elements::of_bytes(inner).find(name).map_or(Value::Missing, |e| e.value());
    }
    value
}

/// The document with another value at a path; a missing value removes the field.
pub(super) fn with(doc: &[u8], path: &[Box<[u8]>], value: Value<'_>) -> Vec<u8> {
    let Some((name, rest)) = path.split_first() else { return doc.to_vec() };
    let mut out = DocBuilder::new();
    let mut met = false;
    let below = |old: Value<'_>| {
        let inner = if let Value::Document(inner) = old { inner } else { &[5, 0, 0, 0, 0] };
        with(inner, rest, value)
    };
    for field in Elements::of_bytes(doc) {
        if *field.key != **name || met {
            out.push_raw(field.bytes);
            continue;
        }
        met = true;
        if rest.is_empty() {
            out.push(name, value);
        } else if matches!(value, Value::Missing) && !matches!(field.value(), Value::Document(_)) {
            out.push_raw(field.bytes);
        } else {
            out.push(name, Value::Document(&below(field.value())));
        }
    }
    if !met && !matches!(value, Value::Missing) {
        if rest.is_empty() {
            out.push(name, value);
        } else {
            out.push(name, Value::Document(&below(Value::Missing)));
        }
    }
    out.finish()
}

/// The document with a value at a path, as `$addFields` writes it: for an array on the path, into each element.
pub(super) fn spread(doc: &[u8], path: &[Box<[u8]>], value: Value<'_>) -> Vec<u8> {
    let Some((name, rest)) = path.split_first() else { return doc.to_vec() };
    let old = Elements::of_bytes(doc).find(name).map_or(Value::Missing, |field| field.value());
    match old {
        Value::Array(_) if !rest.is_empty() => {
            let list = spread_in(old, rest, value);
            with(doc, std::slice::from_ref(name), Value::Array(&list))
        }
        Value::Document(inner) if !rest.is_empty() => {
            let inner = spread(inner, rest, value);
            with(doc, std::slice::from_ref(name), Value::Document(&inner))
        }
        _ => with(doc, path, value),
    }
}

fn spread_in(list: Value<'_>, rest: &[Box<[u8]>], value: Value<'_>) -> Vec<u8> {
    let below: Vec<(bool, Vec<u8>)> = list
        .elements()
        .map(|item| match item.value() {
            item @ Value::Array(_) => (true, spread_in(item, rest, value)),
            Value::Document(inner) => (false, spread(inner, rest, value)),
            _ => (false, with(&[5, 0, 0, 0, 0], rest, value)),
        })
        .collect();
    crate::expression::array_bytes(below.iter().map(|(is_list, bytes)| match is_list {
        true => Value::Array(bytes),
        false => Value::Document(bytes),
    }))
}

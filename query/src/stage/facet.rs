//! `$facet`: runs several pipelines over the same documents and returns their results in one document.

use std::collections::VecDeque;

use bson::RawDocumentBuf;
use protocol::RawDoc;

use super::{
    NoSource, Over, Parsed, StageContext, StageRow, check_part, named, over, parse, plain::one,
    raw, unwind,
};
use crate::{
    Release,
    error::QueryError,
    exec::{Input, Noted, SpilledNoted, Stage, Upstream},
    expression::{array_bytes, no_scores},
    value::{Elements, OwnedValue, Shown, Value},
};

/// `$facet`: runs several pipelines over the same documents.
#[derive(Debug)]
pub(super) struct Facet {
    facets: Vec<(Box<[u8]>, OwnedValue)>,
    cx: StageContext,
    bytes_max: usize,
    done: bool,
}

/// Checks the name of a facet, which becomes a field name.
fn check_facet_name(name: &[u8]) -> Result<(), QueryError> {
    let shown = String::from_utf8_lossy(name);
    let (code, why) = match name {
        b"" => (15_998, "be empty strings.".to_owned()),
        [b'$', ..] => (16_410, format!("start with '$', given '{shown}'.")),
        _ if name.contains(&b'.') => (16_412, format!("contain '.', given '{shown}'.")),
        _ => return Ok(()),
    };
    Err(QueryError::location(
        code,
        format!(
            "$facet pipeline names must follow the naming rules of field path expressions. :: \
             caused by :: FieldPath field names may not {why}"
        ),
    ))
}

/// Checks that mongod does before it parses any stage of the pipeline.
pub(super) fn check_inner(value: Value<'_>, release: Release) -> Result<(), QueryError> {
    check_facet(value)?;
    value.elements().try_for_each(|facet| named(facet.value(), release).map(drop))
}

fn check_facet(value: Value<'_>) -> Result<(), QueryError> {
    let empty = || {
        QueryError::location(
            40_169,
            format!(
                "the $facet specification must be a non-empty object, but found: $facet: {}",
                Shown(value)
            ),
        )
    };
    let Value::Document(doc) = value else { return Err(empty()) };
    if Elements::of_bytes(doc).next().is_none() {
        return Err(empty());
    }
    for field in Elements::of_bytes(doc) {
        let name = String::from_utf8_lossy(field.key);
        check_facet_name(field.key)?;
        let Value::Array(_) = field.value() else {
            return Err(QueryError::location(
                40_170,
                format!(
                    "arguments to $facet must be arrays, {name} is type {}",
                    field.value().type_name()
                ),
            ));
        };
        for stage in field.value().elements() {
            if !matches!(stage.value(), Value::Document(_)) {
                return Err(QueryError::location(
                    40_171,
                    format!(
                        "elements of arrays in $facet spec must be non-empty objects, {name} \
                         argument contained an element of type {}: {}: {}",
                        stage.value().type_name(),
                        String::from_utf8_lossy(stage.key),
                        Shown(stage.value())
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Parses `$facet` after its form was checked.
pub(super) fn parse_facet(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    one(facet(value, cx)?)
}

pub(super) fn facet(value: Value<'_>, cx: &StageContext) -> Result<Facet, QueryError> {
    let mut facets: Vec<(Box<[u8]>, OwnedValue)> = Vec::new();
    for field in value.elements() {
        for stage in field.value().elements() {
            let first = stage.value().elements().next();
            let row = first.and_then(|first| StageRow::named(first.key));
            if let Some(row) = row.filter(|row| !row.in_facet) {
                return Err(QueryError::location(
                    40_600,
                    format!("{} is not allowed to be used within a $facet stage", row.name),
                ));
            }
        }
        if field.value().elements().any(|stage| searches_text(stage.value())) {
            return Err(no_scores());
        }
        check_part(field.value(), cx, &Over::Part)?;
        facets.push((field.key.into(), field.value().into()));
    }
    Ok(Facet { facets, cx: cx.clone(), bytes_max: FACET_BYTES_MAX, done: false })
}

/// True for a `$match` with a text search, which a facet must not have.
fn searches_text(stage: Value<'_>) -> bool {
    let first = stage.elements().next().filter(|field| field.key == b"$match");
    first.is_some_and(|field| field.value().elements().any(|part| part.key == b"$text"))
}

/// Memory limit of `$facet`'s input and of its result.
const FACET_BYTES_MAX: usize = 100 << 20;

impl Facet {
    /// Sets the memory limit above which it spills or fails.
    #[cfg(test)]
    pub(super) fn with_memory(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// All input documents, once for each facet. Above the memory limit they are spilled, separately for each facet.
    fn inputs(&self, up: &mut Upstream<'_, '_>) -> Result<Vec<Kept>, QueryError> {
        let mut kept: Vec<Kept> = self.facets.iter().map(|_| Kept::default()).collect();
        let (mut docs, mut bytes) = (Vec::new(), 0);
        while let Some(doc) = up.pull()? {
            bytes += doc.as_bytes().len();
            docs.push(doc);
            if bytes > self.bytes_max {
                let spill = up.context().spill.as_ref().ok_or_else(|| {
                    let text = format!(
                        "$facet exceeded memory limit of {} bytes, but did not opt in to disk use.",
                        self.bytes_max
                    );
                    QueryError::location(292, text)
                })?;
                for kept in &mut kept {
                    kept.runs.push_back(SpilledNoted::write(&**spill, &mut docs.iter().cloned())?);
                }
                (docs, bytes) = (Vec::new(), 0);
            }
        }
        for kept in &mut kept {
            kept.rest = docs.clone().into();
        }
        Ok(kept)
    }
}

impl Stage for Facet {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.done {
            return Ok(None);
        }
        self.done = true;
        let inputs = self.inputs(up)?;
        let mut out = RawDocumentBuf::new().into_bytes();
        for ((name, pipeline), docs) in self.facets.iter().zip(inputs) {
            let mut pipeline = over(docs, parse(pipeline.get(), &self.cx)?);
            let mut input = Input::new(&NoSource, up.context());
            let (mut found, mut bytes) = (Vec::new(), out.len());
            while let Some(doc) = pipeline.next(&mut input)? {
                bytes += doc.as_bytes().len();
                if bytes > self.bytes_max {
                    let text = format!(
                        "document constructed by $facet is {bytes} bytes, which exceeds the limit \
                         of {} bytes",
                        self.bytes_max
                    );
                    return Err(QueryError::location(4_031_700, text));
                }
                found.push(doc);
            }
            let array = array_bytes(found.iter().map(|doc| Value::Document(doc.as_bytes())));
            out = unwind::with(&out, std::slice::from_ref(name), Value::Array(&array));
        }
        raw(&out).map(|doc| Some(RawDoc::from(doc).into()))
    }
}

/// The input of one facet.
#[derive(Debug, Default)]
struct Kept {
    runs: VecDeque<SpilledNoted>,
    rest: VecDeque<Noted>,
    /// Counts documents, to check for interruption now and then.
    given: u8,
}

impl Stage for Kept {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        self.given = self.given.wrapping_add(1);
        if self.given == 0 {
            up.context().check()?;
        }
        while let Some(run) = self.runs.front_mut() {
            if let Some(doc) = run.next()? {
                return Ok(Some(doc));
            }
            self.runs.pop_front();
        }
        Ok(self.rest.pop_front())
    }
}

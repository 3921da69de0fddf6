//! Stages that write their input: `$out` and `$merge`.
//!
//! They are parsed here, and documents are converted to update statements. The caller of the pipeline removes the
//! stage and executes the writes.

use std::collections::HashSet;

use bson::{RawDocumentBuf, oid::ObjectId};
use protocol::RawDoc;

use super::{
    Parsed, StageContext, parse, raw,
    spec::{self, Spec, Takes, field},
};
use crate::{
    context::Context,
    error::QueryError,
    expression::{Bump, DocBuilder, Env, Expr},
    value::{Elements, OwnedValue, Value},
};

/// A stage that writes its input.
#[derive(Debug)]
pub struct Write {
    /// The target database.
    pub database: String,
    /// The target collection.
    pub collection: String,
    /// The kind of write.
    pub kind: WriteKind,
}

/// The kind of write.
#[derive(Debug)]
pub enum WriteKind {
    /// `$out`: the documents replace the collection.
    Out {
        /// Options of a time-series collection.
        timeseries: Option<RawDocumentBuf>,
    },
    /// `$merge`: each document is merged into the collection.
    Merge(Merge),
}

impl Write {
    /// The name of the stage.
    pub fn name(&self) -> &'static str {
        match self.kind {
            WriteKind::Out { .. } => "$out",
            WriteKind::Merge(_) => "$merge",
        }
    }
}

/// What happens to a document that matches an existing one.
#[derive(Debug)]
enum WhenMatched {
    Replace,
    Merge,
    KeepExisting,
    Fail,
    Pipeline(OwnedValue),
}

/// What happens to a document that matches none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenNotMatched {
    Insert,
    Discard,
    Fail,
}

/// Variables with their expressions.
type Variables = Vec<(Box<[u8]>, Expr)>;

/// `$merge`.
#[derive(Debug)]
pub struct Merge {
    on: Option<Vec<String>>,
    variables: Variables,
    matched: WhenMatched,
    not_matched: WhenNotMatched,
}

impl Merge {
    /// The fields by which documents are matched; `_id` by default.
    pub fn on(&self) -> Vec<&str> {
        match &self.on {
            Some(fields) => fields.iter().map(String::as_str).collect(),
            None => vec!["_id"],
        }
    }

    /// True if documents are inserted and an existing one is an error.
    pub fn only_inserts(&self) -> bool {
        matches!(self.matched, WhenMatched::Fail)
    }

    /// True if a document without a match is an error.
    pub fn must_match(&self) -> bool {
        self.not_matched == WhenNotMatched::Fail
    }

    /// Adds an `_id` if documents are matched by it and this one has none.
    pub fn with_id(&self, doc: &RawDoc) -> Result<RawDoc, QueryError> {
        let has_id = Elements::new(doc).find(b"_id").is_some();
        if has_id || !self.on().contains(&"_id") {
            return Ok(doc.clone());
        }
        super::to_doc(prepend_id(doc))
    }

    /// The update statement for a document. `nullish` allows the matched fields to be missing or null.
    pub fn statement(
        &self,
        doc: &RawDoc,
        nullish: bool,
        context: &Context,
    ) -> Result<RawDocumentBuf, QueryError> {
        let arena = Bump::new();
        let mut env = Env::new(&arena, context, doc.as_bytes());
        let whole = Value::Document(doc.as_bytes());
        let wrapped = |operator: &[u8]| {
            let mut update = DocBuilder::new();
            update.push(operator, whole);
            update.finish()
        };
        let mut out = DocBuilder::new();
        out.push(b"q", Value::Document(&self.query(doc, nullish)?));
        match &self.matched {
            // `Fail` inserts, so it has no statement.
            WhenMatched::Replace | WhenMatched::Fail => out.push(b"u", whole),
            WhenMatched::Merge => out.push(b"u", Value::Document(&wrapped(b"$set"))),
            WhenMatched::KeepExisting => {
                out.push(b"u", Value::Document(&wrapped(b"$setOnInsert")));
            }
            WhenMatched::Pipeline(stages) => {
                out.push(b"u", stages.get());
                let mut constants = DocBuilder::new();
                for (name, expr) in &self.variables {
                    constants.push(name, expr.eval(&mut env)?);
                }
                out.push(b"c", Value::Document(&constants.finish()));
            }
        }
        let inserts = self.not_matched == WhenNotMatched::Insert;
        out.push(b"multi", Value::Bool(false));
        out.push(b"upsert", Value::Bool(inserts));
        if inserts && matches!(self.matched, WhenMatched::Pipeline(_)) {
            // A document without a match is inserted as it is, not as the pipeline would change it.
            out.push(b"upsertSupplied", Value::Bool(true));
        }
        raw(&out.finish()).map(ToOwned::to_owned)
    }

    fn query(&self, doc: &RawDoc, nullish: bool) -> Result<Vec<u8>, QueryError> {
        let mut query = DocBuilder::new();
        for field in self.on() {
            let mut value = Value::Document(doc.as_bytes());
            for part in field.split('.') {
                value = match value {
                    Value::Document(inner) => Elements::of_bytes(inner)
                        .find(part.as_bytes())
                        .map_or(Value::Missing, |element| element.value()),
                    other => other,
                };
            }
            match value {
                Value::Array(_) => {
                    let text = format!("$merge write error: 'on' field '{field}' is an array");
                    return Err(QueryError::location(51_185, text));
                }
                Value::Missing | Value::Null | Value::Undefined if !nullish => {
                    let text = format!(
                        "$merge write error: 'on' field '{field}' cannot be missing, null or \
                         undefined if supporting index is sparse"
                    );
                    return Err(QueryError::location(51_132, text));
                }
                Value::Missing | Value::Undefined => query.push(field.as_bytes(), Value::Null),
                found => query.push(field.as_bytes(), found),
            }
        }
        Ok(query.finish())
    }
}

/// A document with a new `_id` as its first field.
pub fn prepend_id(doc: &RawDoc) -> Vec<u8> {
    const OBJECT_ID: u8 = 0x07;
    let mut out = DocBuilder::new();
    out.push_bytes(b"_id", OBJECT_ID, &ObjectId::new().bytes());
    for element in Elements::new(doc) {
        out.push_raw(element.bytes);
    }
    out.finish()
}

/// Databases of the servers themselves.
fn is_internal(database: &str) -> bool {
    matches!(database, "admin" | "config" | "local")
}

static OUT: Spec = Spec::new(
    "$out",
    &[field("db", Takes::String), field("coll", Takes::String), field("timeseries", Takes::Object)],
)
.not_object(16_990, "{stage} only supports a string or object argument, but found {type}")
.once();

static MERGE: Spec = Spec::new(
    "$merge",
    &[
        field("into", Takes::ObjectOrString).otherwise(
            51_178,
            "$merge 'into' field  must be either a string or an object, but found {type}",
        ),
        field("on", Takes::Any),
        field("let", Takes::Object),
        field("whenMatched", Takes::Any),
        field("whenNotMatched", Takes::String),
    ],
)
.not_object(14, "{stage} requires a string or object argument, but found {type}")
.once();

static INTO: Spec =
    Spec::new("$merge.into", &[field("db", Takes::String), field("coll", Takes::String)]).once();

pub(super) fn parse_out(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let (database, collection, timeseries) = match value {
        Value::String(name) => (None, Some(text(name)), None),
        _ => {
            let [db, coll, timeseries] = OUT.read(value)?;
            let timeseries = spec::object(timeseries).map(|spec| raw(spec).map(ToOwned::to_owned));
            let named = |name| spec::string(name).map(text);
            (named(db), named(coll), timeseries.transpose()?)
        }
    };
    let collection = collection.ok_or_else(|| OUT.missing("coll"))?;
    let database = database.unwrap_or_else(|| cx.database.clone());
    if collection.is_empty() {
        let text = format!("Invalid $out target namespace, {database}");
        return Err(QueryError::new(protocol::ErrorCode::InvalidNamespace, text));
    }
    if collection.starts_with("system.") {
        let text = format!("Can't $out to special collection: {collection}");
        return Err(QueryError::location(17_385, text));
    }
    if is_internal(&database) {
        let text = format!("Can't $out to internal database: {database}");
        return Err(QueryError::location(31_321, text));
    }
    Ok(Parsed::Write(Box::new(Write { database, collection, kind: WriteKind::Out { timeseries } })))
}

pub(super) fn parse_merge(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let (mut target, mut on, mut given, mut matched) = (None, None, None, None);
    let mut not_matched = WhenNotMatched::Insert;
    match value {
        Value::String(name) => target = Some((None, text(name))),
        _ => MERGE.each(value, |name, value| {
            match name {
                "into" => target = Some(into(value)?),
                "on" => on = Some(join_fields(value)?),
                "let" => given = spec::object(Some(value)),
                "whenMatched" => matched = Some(value),
                _ => not_matched = when_not_matched(value)?,
            }
            Ok(())
        })?,
    }
    let (database, collection) = target.ok_or_else(|| MERGE.missing("into"))?;
    let database = database.unwrap_or_else(|| cx.database.clone());
    let matched = matched.map_or(Ok(WhenMatched::Merge), when_matched)?;
    check_modes(&matched, not_matched)?;
    let inserts = not_matched == WhenNotMatched::Insert;
    let variables = variables(given, &matched, inserts, cx)?;
    if collection.is_empty() {
        let text = format!("Invalid $merge target namespace: '{database}'");
        return Err(QueryError::new(protocol::ErrorCode::InvalidNamespace, text));
    }
    if collection.starts_with("system.") {
        let text = format!("Cannot $merge to special collection: {collection}");
        return Err(QueryError::location(31_319, text));
    }
    if is_internal(&database) {
        let text = format!("Cannot $merge to internal database: {database}");
        return Err(QueryError::location(31_320, text));
    }
    let kind = WriteKind::Merge(Merge { on, variables, matched, not_matched });
    Ok(Parsed::Write(Box::new(Write { database, collection, kind })))
}

fn into(value: Value<'_>) -> Result<(Option<String>, String), QueryError> {
    if let Value::String(name) = value {
        return Ok((None, text(name)));
    }
    let [db, coll] = INTO.read(value)?.map(|name| spec::string(name).map(text));
    Ok((db, coll.ok_or_else(|| INTO.missing("coll"))?))
}

fn join_fields(value: Value<'_>) -> Result<Vec<String>, QueryError> {
    let fields: Option<Vec<String>> = match value {
        Value::String(name) => Some(vec![text(name)]),
        Value::Array(_) => value
            .elements()
            .map(|element| match element.value() {
                Value::String(name) => Some(text(name)),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    let Some(fields) = fields else {
        return Err(QueryError::location(
            51_186,
            format!(
                "$merge 'on' field  must be either a string or an array of strings, but found {}",
                value.type_name()
            ),
        ));
    };
    if fields.is_empty() {
        let text = "If explicitly specifying $merge 'on', must include at least one field";
        return Err(QueryError::location(51_187, text));
    }
    let mut seen = HashSet::new();
    match fields.iter().find(|field| !seen.insert(field.as_str())) {
        Some(twice) => {
            Err(QueryError::location(31_465, format!("Found a duplicate field '{twice}'")))
        }
        None => Ok(fields),
    }
}

fn when_matched(value: Value<'_>) -> Result<WhenMatched, QueryError> {
    Ok(match value {
        Value::Array(_) => WhenMatched::Pipeline(value.into()),
        Value::String(b"replace") => WhenMatched::Replace,
        Value::String(b"merge") => WhenMatched::Merge,
        Value::String(b"keepExisting") => WhenMatched::KeepExisting,
        Value::String(b"fail") => WhenMatched::Fail,
        Value::String(mode) => return Err(not_a_mode("whenMatched", mode)),
        other => {
            return Err(QueryError::location(
                51_191,
                format!(
                    "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                    other.type_name()
                ),
            ));
        }
    })
}

fn when_not_matched(value: Value<'_>) -> Result<WhenNotMatched, QueryError> {
    match spec::string(Some(value)).unwrap_or_default() {
        b"insert" => Ok(WhenNotMatched::Insert),
        b"discard" => Ok(WhenNotMatched::Discard),
        b"fail" => Ok(WhenNotMatched::Fail),
        mode => Err(not_a_mode("$merge.whenNotMatched", mode)),
    }
}

fn not_a_mode(field: &str, mode: &[u8]) -> QueryError {
    QueryError::bad_value(format!(
        "Enumeration value '{}' for field '{field}' is not a valid value.",
        String::from_utf8_lossy(mode)
    ))
}

fn check_modes(matched: &WhenMatched, not_matched: WhenNotMatched) -> Result<(), QueryError> {
    let name = match matched {
        WhenMatched::KeepExisting => "keepExisting",
        WhenMatched::Fail => "fail",
        WhenMatched::Replace | WhenMatched::Merge | WhenMatched::Pipeline(_) => return Ok(()),
    };
    let other = match not_matched {
        WhenNotMatched::Insert => return Ok(()),
        WhenNotMatched::Discard => "discard",
        WhenNotMatched::Fail => "fail",
    };
    Err(QueryError::location(
        51_181,
        format!(
            "Combination of $merge modes 'whenMatched: {name}' and 'whenNotMatched: {other}' is not \
             supported"
        ),
    ))
}

/// The variables of `let`, and `new`, the document itself. The pipeline is parsed with them, to report its errors
/// now.
fn variables(
    given: Option<&[u8]>,
    matched: &WhenMatched,
    inserts: bool,
    cx: &StageContext,
) -> Result<Variables, QueryError> {
    const ROOT: &[u8] = b"$$ROOT";
    let WhenMatched::Pipeline(pipeline) = matched else {
        if given.is_none() {
            return Ok(Vec::new());
        }
        let mode = match matched {
            WhenMatched::Replace => "replace",
            WhenMatched::Merge => "merge",
            WhenMatched::KeepExisting => "keepExisting",
            WhenMatched::Fail => "fail",
            WhenMatched::Pipeline(_) => "pipeline",
        };
        let text = format!("Cannot use 'let' variables with 'whenMatched: {mode}' mode");
        return Err(QueryError::location(51_199, text));
    };
    let new = Expr::parse(Value::String(ROOT), &mut cx.scope.clone())?;
    let mut variables: Variables = Vec::new();
    // Without `let` there is `new`; it is also needed if documents without a match are inserted.
    if given.is_none_or(|given| Elements::of_bytes(given).find(b"new").is_some()) || inserts {
        variables.push((Box::from(&b"new"[..]), new));
    }
    for variable in given.into_iter().flat_map(Elements::of_bytes) {
        if variable.key == b"new" {
            if matches!(variable.value(), Value::String(ROOT)) {
                continue;
            }
            return Err(QueryError::location(
                51_273,
                "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'",
            ));
        }
        let expr = Expr::parse(variable.value(), &mut cx.scope.clone())?;
        variables.push((variable.key.into(), expr));
    }
    let mut inner = cx.clone();
    // The primary refuses a variable that the pipeline uses but `let` does not define.
    inner.scope.declare(b"new");
    for (name, _) in &variables {
        inner.scope.declare(name);
    }
    parse(pipeline.get(), &inner)?;
    Ok(variables)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    fn merge(spec: Document) -> Result<Merge, QueryError> {
        let spec = bson::serialize_to_raw_document_buf(&spec).unwrap();
        let cx = StageContext { database: "d".to_owned(), ..StageContext::default() };
        match parse_merge(Value::Document(spec.as_bytes()), &cx)? {
            Parsed::Write(write) => match write.kind {
                WriteKind::Merge(merge) => Ok(merge),
                WriteKind::Out { .. } => panic!("no $merge"),
            },
            _ => panic!("no write"),
        }
    }

    fn statement(spec: Document, doc: Document) -> Document {
        let doc = RawDoc::from(bson::serialize_to_raw_document_buf(&doc).unwrap());
        let statement = merge(spec).unwrap().statement(&doc, true, &Context::default()).unwrap();
        Document::try_from(statement).unwrap()
    }

    #[test]
    fn each_mode_has_its_statement() {
        let given = || doc! { "_id": 1, "a": 2 };
        let modes = [
            ("replace", given()),
            ("merge", doc! { "$set": given() }),
            ("keepExisting", doc! { "$setOnInsert": given() }),
        ];
        for (mode, update) in modes {
            let got = statement(doc! { "into": "t", "whenMatched": mode }, given());
            let want = doc! { "q": { "_id": 1 }, "u": update, "multi": false, "upsert": true };
            assert_eq!(got, want);
        }
        let pipeline = vec![doc! { "$set": { "b": "$$x" } }];
        let spec = doc! {
            "into": "t", "on": ["a", "c"], "let": { "x": "$a" }, "whenMatched": &pipeline,
            "whenNotMatched": "insert",
        };
        let want = doc! {
            "q": { "a": 2, "c": null }, "u": pipeline, "c": { "new": given(), "x": 2 },
            "multi": false, "upsert": true, "upsertSupplied": true,
        };
        assert_eq!(statement(spec, given()), want);
    }

    #[test]
    fn modes_that_make_no_sense_are_refused() {
        let code = |spec| merge(spec).unwrap_err().code.code();
        let both = |a: &str, b: &str| doc! { "into": "t", "whenMatched": a, "whenNotMatched": b };
        assert_eq!(code(both("keepExisting", "discard")), 51_181);
        assert_eq!(code(both("fail", "fail")), 51_181);
        assert_eq!(code(both("pipeline", "insert")), 2);
        assert_eq!(code(doc! { "into": "t", "let": { "x": 1 } }), 51_199);
        assert_eq!(code(doc! { "into": "t", "on": ["a", "a"] }), 31_465);
        assert_eq!(code(doc! { "into": { "db": "admin", "coll": "t" } }), 31_320);
    }

    #[test]
    fn what_a_document_is_found_by_is_there_and_no_array() {
        let doc = |doc: Document| RawDoc::from(bson::serialize_to_raw_document_buf(&doc).unwrap());
        let on_a = merge(doc! { "into": "t", "on": "a.b" }).unwrap();
        let code = |doc: &RawDoc, nullish| {
            on_a.statement(doc, nullish, &Context::default()).map_err(|error| error.code.code())
        };
        assert_eq!(code(&doc(doc! { "a": { "b": [1] } }), true).unwrap_err(), 51_185);
        assert_eq!(code(&doc(doc! { "a": { "b": null } }), false).unwrap_err(), 51_132);
        assert!(code(&doc(doc! { "x": 1 }), true).is_ok());
        let plain = merge(doc! { "into": "t" }).unwrap();
        assert!(plain.with_id(&doc(doc! { "a": 1 })).unwrap().get_object_id("_id").is_ok());
    }
}

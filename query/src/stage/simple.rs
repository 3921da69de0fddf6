//! Stages that process one document at a time, and `$sample`.

use protocol::RawDoc;

use super::{
    Parsed, StageContext,
    plain::one,
    raw,
    spec::{Spec, Takes, field},
    to_doc,
};
use crate::{
    Release,
    context::Context,
    error::QueryError,
    exec::{Noted, Stage, Upstream},
    expression::{Bump, CURRENT, DocBuilder, Env, Expr},
    value::{Element, Elements, Shown, Spelled, Value},
};

/// `$documents`: the pipeline provides its own documents.
pub(super) fn parse_documents(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let list = Expr::parse(value, &mut cx.scope.clone())?;
    Ok(Parsed::Documents(Box::new(Documents { list, given: None })))
}

/// The error of releases in which `$documents` was internal.
pub(super) fn no_documents(_: &str, release: Release) -> QueryError {
    if release < Release::V5_0 {
        let text = "Must set 'enableSearchMeta' to true to use '$documents'";
        return QueryError::location(5_858_204, text);
    }
    QueryError::location(5_491_300, "$documents' is not allowed in user requests")
}

/// The documents of `$documents`, evaluated when the first is requested, since they may use variables.
#[derive(Debug)]
struct Documents {
    list: Expr,
    given: Option<std::vec::IntoIter<RawDoc>>,
}

impl Documents {
    fn all(&self, context: &Context) -> Result<Vec<RawDoc>, QueryError> {
        let arena = Bump::new();
        let mut env = Env::new(&arena, context, &[5, 0, 0, 0, 0]);
        let list = self.list.eval(&mut env)?;
        let Value::Array(_) = list else {
            return Err(QueryError::location(5_858_203, "an array is expected"));
        };
        let one = |element: Element<'_>| match element.value() {
            Value::Document(doc) => Ok(RawDoc::from(raw(doc)?)),
            other => Err(QueryError::location(
                40_228,
                format!(
                    "'newRoot' expression must evaluate to an object, but resulting value was: \
                     {}. Type of resulting value: '{}'.",
                    Shown(other),
                    other.type_name()
                ),
            )),
        };
        list.elements().map(one).collect()
    }
}

impl Stage for Documents {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.given.is_none() {
            self.given = Some(self.all(up.context())?.into_iter());
        }
        Ok(self.given.as_mut().and_then(Iterator::next).map(Noted::from))
    }
}

#[derive(Debug)]
struct ReplaceRoot {
    root: Expr,
    name: &'static str,
}

pub(super) fn parse_replace_root(
    value: Value<'_>,
    cx: &StageContext,
) -> Result<Parsed, QueryError> {
    static SPEC: Spec = Spec::new("$replaceRoot", &[field("newRoot", Takes::Any)])
        .not_object(40_229, "expected an object as specification for {stage} stage, got {type}");
    let mut root = None;
    SPEC.each(value, |_, value| {
        root = Some(Expr::parse(value, &mut cx.scope.clone())?);
        Ok(())
    })?;
    let root = root.ok_or_else(|| SPEC.missing("newRoot"))?;
    one(ReplaceRoot { root, name: "'newRoot' expression " })
}

pub(super) fn parse_replace_with(
    value: Value<'_>,
    cx: &StageContext,
) -> Result<Parsed, QueryError> {
    let root = Expr::parse(value, &mut cx.scope.clone())?;
    one(ReplaceRoot { root, name: "'replacement document' " })
}

impl Stage for ReplaceRoot {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let Some(doc) = up.pull()? else { return Ok(None) };
        let arena = Bump::new();
        let mut env = Env::over(&arena, up.context(), doc.seen());
        match self.root.eval(&mut env)? {
            Value::Document(new) => Ok(Some(doc.with(RawDoc::from(raw(new)?)))),
            other => {
                let value = if matches!(other, Value::Missing) {
                    "MISSING".into()
                } else {
                    Shown(other).to_string()
                };
                Err(QueryError::location(
                    40_228,
                    format!(
                        "{} must evaluate to an object, but resulting value was: {value}. Type of resulting value: '{}'. Input document: {}",
                        self.name,
                        other.type_name(),
                        Shown(Value::from(doc.as_raw()))
                    ),
                ))
            }
        }
    }
}

/// `$sample`: random documents.
#[derive(Debug)]
struct Sample {
    size: usize,
    chosen: Option<std::vec::IntoIter<Noted>>,
}

pub(super) fn parse_sample(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    static SPEC: Spec = Spec::new(
        "$sample",
        &[field("size", Takes::Number)
            .otherwise(28_746, "size argument to {stage} must be a number")],
    )
    .not_object(28_745, "the {stage} stage specification must be an object")
    .unknown(28_748, "unrecognized option to {stage}: {field}");
    let mut size = None;
    SPEC.each(value, |_, value| {
        size = crate::matcher::operands::integer("size", value).ok().filter(|n| *n > 0);
        size.map(drop).ok_or_else(|| {
            QueryError::location(28_747, "size argument to $sample must be a positive integer")
        })
    })?;
    let size =
        size.ok_or_else(|| QueryError::location(28_749, "$sample stage must specify a size"))?;
    one(Sample { size: usize::try_from(size).unwrap_or(usize::MAX), chosen: None })
}

impl Stage for Sample {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.chosen.is_none() {
            // Each document gets a random number; the lowest numbers win and determine the order.
            let mut kept: Vec<(f64, Noted)> = Vec::new();
            while let Some(doc) = up.pull()? {
                let lot = up.context().random();
                let at = kept.partition_point(|(known, _)| *known < lot);
                if at < self.size {
                    kept.insert(at, (lot, doc));
                    kept.truncate(self.size);
                }
            }
            let docs: Vec<_> = kept.into_iter().map(|(_, doc)| doc).collect();
            self.chosen = Some(docs.into_iter());
        }
        Ok(self.chosen.as_mut().and_then(Iterator::next))
    }
}

/// `$redact`: keeps, prunes or descends into each document and sub-document.
#[derive(Debug)]
struct Redact {
    expr: Expr,
    slots: [usize; 3],
    /// The slot of CURRENT: the document or sub-document that is looked at.
    current: usize,
}

const WORDS: [&str; 3] = ["DESCEND", "PRUNE", "KEEP"];

pub(super) fn parse_redact(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let mut scope = cx.scope.clone();
    if scope.has_scores() {
        scope = scope.ignoring_scores();
    }
    let slots = WORDS.map(|word| scope.declare(word.as_bytes()));
    let current = scope.declare(CURRENT);
    one(Redact { expr: Expr::parse(value, &mut scope)?, slots, current })
}

impl Redact {
    /// What is left of a document within `root`, which may be that document itself.
    fn redact(
        &self,
        root: &[u8],
        doc: &[u8],
        up: &Upstream<'_, '_>,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        let arena = Bump::new();
        let mut env = Env::new(&arena, up.context(), root);
        env.set(self.current, Value::Document(doc));
        for (slot, word) in self.slots.iter().zip(WORDS) {
            env.set(*slot, Value::String(word.as_bytes()));
        }
        match self.expr.eval(&mut env)? {
            Value::String(b"KEEP") => Ok(Some(doc.to_vec())),
            Value::String(b"PRUNE") => Ok(None),
            Value::String(b"DESCEND") => {
                let mut out = DocBuilder::new();
                for field in Elements::of_bytes(doc) {
                    match self.descend(root, field.value(), up)? {
                        Descended::Same => out.push_raw(field.bytes),
                        Descended::Document(Some(bytes)) => {
                            out.push(field.key, Value::Document(&bytes))
                        }
                        Descended::Array(bytes) => out.push(field.key, Value::Array(&bytes)),
                        Descended::Document(None) => {}
                    }
                }
                Ok(Some(out.finish()))
            }
            other => Err(QueryError::location(
                17_053,
                format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, but returned {}",
                    Spelled(other)
                ),
            )),
        }
    }

    fn descend(
        &self,
        root: &[u8],
        value: Value<'_>,
        up: &Upstream<'_, '_>,
    ) -> Result<Descended, QueryError> {
        match value {
            Value::Document(doc) => self.redact(root, doc, up).map(Descended::Document),
            Value::Array(_) => {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                let mut types = Vec::new();
                for element in value.elements() {
                    let (byte, bytes) = match self.descend(root, element.value(), up)? {
                        Descended::Same => (element.type_byte, element.value_bytes.to_vec()),
                        Descended::Document(Some(bytes)) => (0x03, bytes),
                        Descended::Array(bytes) => (0x04, bytes),
                        Descended::Document(None) => continue,
                    };
                    types.push(byte);
                    kept.push(bytes);
                }
                let mut out = DocBuilder::new();
                for (at, (byte, bytes)) in types.iter().zip(&kept).enumerate() {
                    out.push_bytes(at.to_string().as_bytes(), *byte, bytes);
                }
                Ok(Descended::Array(out.finish()))
            }
            _ => Ok(Descended::Same),
        }
    }
}

enum Descended {
    Same,
    Document(Option<Vec<u8>>),
    Array(Vec<u8>),
}

impl Stage for Redact {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        while let Some(doc) = up.pull()? {
            if let Some(bytes) = self.redact(doc.as_bytes(), doc.as_bytes(), up)? {
                return Ok(Some(doc.with(to_doc(bytes)?)));
            }
        }
        Ok(None)
    }
}

//! Projection: which fields of a document are included, excluded or computed.
//!
//! ```text
//!   { a: 1, "b.c": 1, n: {$add: [...]} }      inclusion: kept fields in the document's order, computed
//!                                             ones after them in the order of the projection
//!   { a: 0, "b.c": 0 }                        exclusion: the document without them
//!   $addFields { a: expr }                    computed fields over the document, in place or at the end
//! ```
//! All three use one tree of names; they differ in what happens to a field that the tree does not contain.

mod find;
mod tree;

use bson::{RawDocument, RawDocumentBuf};

use crate::{
    context::Context,
    error::QueryError,
    expression::{Bump, Env, Scope},
    matcher::{Matcher, ParseContext},
    value::{Elements, Shown, Value},
};
use find::FindSpec;
use tree::{Parser, Style, Tree};

/// A parsed projection.
#[derive(Debug, Clone)]
pub struct Projection {
    kind: Kind,
    find: FindSpec,
}

#[derive(Debug, Clone)]
enum Kind {
    Include(Tree),
    Exclude(Tree),
    Add(Tree),
}

impl Projection {
    /// Parses the projection of a find; the positional operator uses `filter` to find the matching element.
    pub fn parse_find(
        spec: &RawDocument,
        filter: Option<&Matcher>,
        cx: &ParseContext,
    ) -> Result<Self, QueryError> {
        Self::parse_find_scoped(spec, filter, cx, &Scope::default())
    }

    /// Like [`Self::parse_find`], with expressions that may use the variables of `scope`.
    pub fn parse_find_scoped(
        spec: &RawDocument,
        filter: Option<&Matcher>,
        cx: &ParseContext,
        scope: &Scope,
    ) -> Result<Self, QueryError> {
        let mut scope = scope.apart(cx.collator.as_ref()).with_notes();
        if let Some(text) = filter.and_then(Matcher::text) {
            scope = scope.with_scores(text);
        }
        let parsed = find::parse(spec, filter, cx, &scope)?;
        scope.settle()?;
        Ok(parsed)
    }

    /// `$project`.
    pub(crate) fn parse_project(spec: &RawDocument, scope: &Scope) -> Result<Self, QueryError> {
        if spec.is_empty() {
            return Err(QueryError::location(
                51_272,
                "projection specification must have at least one field",
            ));
        }
        let mut scope = scope.clone();
        let mut parser = Parser::new(Style::Project, &mut scope);
        parser.stage_fields(Value::from(spec))?;
        let parsed = Self::of_parser(parser, FindSpec::default());
        Ok(parsed)
    }

    /// Parses `$addFields` and `$set`.
    pub(crate) fn parse_add_fields(spec: &RawDocument, scope: &Scope) -> Result<Self, QueryError> {
        check_conflicts(spec, b"", Value::from(spec), &mut Vec::new())?;
        let mut scope = scope.clone();
        let mut parser = Parser::new(Style::AddFields, &mut scope);
        parser.stage_fields(Value::from(spec))?;
        let kind = Kind::Add(parser.tree);
        Ok(Self { kind, find: FindSpec::default() })
    }

    /// Parses `$unset`: names of fields to remove.
    pub(crate) fn parse_unset(names: &[&[u8]]) -> Result<Self, QueryError> {
        let mut tree = Tree::default();
        for name in names {
            tree.insert(name, tree::Item::Exclude)?;
        }
        Ok(Self { kind: Kind::Exclude(tree), find: FindSpec::default() })
    }

    fn of_parser(parser: Parser<'_>, find: FindSpec) -> Self {
        let kind = if parser.is_inclusion() {
            Kind::Include(parser.tree)
        } else {
            Kind::Exclude(parser.tree)
        };
        Self { kind, find }
    }

    /// The projected document.
    pub fn apply(&self, doc: &RawDocument, cx: &Context) -> Result<RawDocumentBuf, QueryError> {
        self.apply_noted(doc, &[], cx)
    }

    /// Like [`Self::apply`], with metadata for `$meta`.
    pub(crate) fn apply_noted(
        &self,
        doc: &RawDocument,
        notes: &[u8],
        cx: &Context,
    ) -> Result<RawDocumentBuf, QueryError> {
        let arena = Bump::new();
        let mut env = Env::new(&arena, cx, doc.as_bytes());
        env.notes = notes;
        let bytes = match &self.kind {
            Kind::Include(tree) => tree.include(doc.as_bytes(), &mut env)?,
            Kind::Exclude(tree) => tree.exclude(doc.as_bytes()),
            Kind::Add(tree) => tree.add(doc.as_bytes(), &mut env)?,
        };
        let bytes = self.find.apply(doc.as_bytes(), bytes, cx)?;
        let bytes = self.find.append_metas(bytes, &mut env)?;
        RawDocumentBuf::from_bytes(bytes)
            .map_err(|_| QueryError::new(protocol::ErrorCode::InvalidBSON, "malformed document"))
    }

    /// The paths that an inclusion keeps, if it computes nothing: a covered plan must provide them.
    pub fn included_paths(&self) -> Option<Vec<Vec<u8>>> {
        match &self.kind {
            Kind::Include(tree) if self.find.is_empty() => tree.included_paths(),
            _ => None,
        }
    }
}

/// Checks that no path of `$addFields` equals or contains another one, before any expression is parsed.
fn check_conflicts(
    spec: &RawDocument,
    above: &[u8],
    fields: Value<'_>,
    seen: &mut Vec<Vec<u8>>,
) -> Result<(), QueryError> {
    for field in fields.elements() {
        let path = [above, field.key].concat();
        let first = match field.value() {
            Value::Document(inner) => Elements::of_bytes(inner).next(),
            _ => None,
        };
        if first.is_some_and(|first| !first.key.starts_with(b"$")) {
            let above = [path.as_slice(), b"."].concat();
            check_conflicts(spec, &above, field.value(), seen)?;
            continue;
        }
        let leads = |a: &[u8], b: &[u8]| {
            b.strip_prefix(a).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        if let Some(other) = seen.iter().find(|other| leads(other, &path) || leads(&path, other)) {
            let (path, other) = (String::from_utf8_lossy(&path), String::from_utf8_lossy(other));
            return Err(QueryError::location(
                40_176,
                format!(
                    "specification contains two conflicting paths. Cannot specify both '{path}' and \
                     '{other}': {}",
                    Shown(Value::from(spec))
                ),
            ));
        }
        seen.push(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests;

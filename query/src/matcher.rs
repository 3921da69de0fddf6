//! The match language: parses and evaluates filters.
//!
//! ```text
//!   { a: {$gt: 1}, $or: [...] } --parse--> Node tree --eval--> does this document match?
//!                                          paths split, operands owned, regexes compiled: once
//! ```
//! M1 Evaluation reads the document's bytes in place; simple predicates allocate nothing.
//! M2 A filter that parses can be evaluated on any document. Only `$expr` can fail at run time.

mod bits;
pub(crate) mod equalities;
mod eval;
mod json_schema;
pub(crate) mod operands;
mod parse;
mod predicate;
mod regex;
mod rewrite;

pub use json_schema::Schema;
pub(crate) use predicate::TypeSet;
pub(crate) use predicate::truncate;
pub use predicate::{CompareOp, InList, Predicate};
pub use regex::{Regex, RegexFault};

use std::sync::Arc;

use bson::RawDocument;

use crate::{
    collation::Collator,
    context::Context,
    error::QueryError,
    exec::Seen,
    expression::{Expr, Scope},
    geo::NearBy,
    text::TextNode,
    value::path::Path,
};

/// mongod's error code for `$where` when server-side JavaScript is disabled.
pub(crate) const NO_JAVASCRIPT: i32 = 6_108_304;

/// What parsing needs besides the filter.
#[derive(Debug, Clone, Default)]
pub struct ParseContext {
    /// The collation, unless it is the simple one.
    pub collator: Option<Arc<Collator>>,
}

/// A parsed filter.
#[derive(Debug, Clone)]
pub struct Matcher {
    root: Node,
    /// An equivalent tree that is faster to evaluate, if there is one.
    quick: Option<Arc<Node>>,
}

impl Matcher {
    /// Parses a filter; errors have mongod's codes and texts.
    pub fn parse(filter: &RawDocument, cx: &ParseContext) -> Result<Self, QueryError> {
        Self::parse_scoped(filter, cx, &Scope::default())
    }

    /// Parses a filter whose `$expr` may use the variables of `scope`.
    pub fn parse_scoped(
        filter: &RawDocument,
        cx: &ParseContext,
        scope: &Scope,
    ) -> Result<Self, QueryError> {
        let scope = scope.apart(cx.collator.as_ref()).ignoring_scores();
        let parsed = Self::parse_within(filter, cx, &scope)?;
        scope.settle()?;
        Ok(parsed)
    }

    /// Parses a filter that is part of something larger: if a constant in `$expr` fails, the error is recorded in the
    /// scope.
    pub(crate) fn parse_within(
        filter: &RawDocument,
        cx: &ParseContext,
        scope: &Scope,
    ) -> Result<Self, QueryError> {
        parse::filter(filter.as_bytes(), cx, scope).map(Self::from_root)
    }

    /// The filter that every document matches.
    pub(crate) fn everything() -> Self {
        Self::from_root(Node::And(Vec::new()))
    }

    /// A filter made from a tree.
    pub(crate) fn from_root(root: Node) -> Self {
        let quick = equalities::for_checking(&root).map(Arc::new);
        Self { root, quick }
    }

    /// True if the document matches. For filters that cannot fail, such as partial index filters, which have no
    /// `$expr` or `$sampleRate`; a failure counts as no match.
    pub fn matches(&self, doc: &RawDocument) -> bool {
        self.check(doc, &Context::default()).unwrap_or(false)
    }

    /// Whether the document matches.
    pub fn check(&self, doc: &RawDocument, cx: &Context) -> Result<bool, QueryError> {
        self.check_bytes(doc.as_bytes(), cx)
    }

    /// Like [`Self::check`], for the bytes of a document.
    pub(crate) fn check_bytes(&self, doc: &[u8], cx: &Context) -> Result<bool, QueryError> {
        self.check_seen(Seen::plain(doc), cx)
    }

    /// Like [`Self::check`], for a document with its notes.
    pub(crate) fn check_seen(&self, row: Seen<'_>, cx: &Context) -> Result<bool, QueryError> {
        eval::document(self.quick.as_deref().unwrap_or(&self.root), row, cx)
    }

    /// The index of the array element that made the document match, for the positional operator.
    pub(crate) fn matched_index(&self, doc: &[u8], cx: &Context) -> Option<usize> {
        eval::matched_index(&self.root, doc, cx)
    }

    /// The tree, for the planner.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The `$near` of the filter, which orders documents by distance.
    pub fn near(&self) -> Option<&Arc<NearBy>> {
        fn of(node: &Node) -> Option<&Arc<NearBy>> {
            match node {
                Node::Near(by) => Some(by),
                Node::And(children) => children.iter().find_map(of),
                _ => None,
            }
        }
        of(&self.root)
    }

    /// The text search of the filter, at any depth.
    pub fn text(&self) -> Option<&TextNode> {
        text_nodes(&self.root).into_iter().next()
    }

    /// True if the filter contains an expression, at any depth.
    pub(crate) fn has_expression(&self) -> bool {
        fn has(node: &Node) -> bool {
            match node {
                Node::Expr(_) => true,
                Node::And(children) | Node::Or(children) | Node::Nor(children) => {
                    children.iter().any(has)
                }
                Node::Not(child) => has(child),
                _ => false,
            }
        }
        has(&self.root)
    }

    /// True for a filter that every document matches.
    pub(crate) fn is_trivial(&self) -> bool {
        matches!(&self.root, Node::And(children) if children.is_empty())
    }
}

/// A node of a parsed filter.
#[derive(Debug, Clone)]
pub enum Node {
    /// All children match; true if there are none.
    And(Vec<Node>),
    /// Some child matches.
    Or(Vec<Node>),
    /// No child matches.
    Nor(Vec<Node>),
    /// The child does not match.
    Not(Box<Node>),
    /// Always true or always false.
    Constant(bool),
    /// Some value at the path, including array elements, satisfies the predicate.
    Leaf(Leaf),
    /// The value at the path is an array that satisfies the predicate.
    Array(ArrayLeaf),
    /// `$expr`: an expression over the document is true.
    Expr(Arc<Expr>),
    /// `$jsonSchema`.
    Schema(Arc<Schema>),
    /// `$sampleRate`: a document matches with this probability.
    SampleRate(f64),
    /// `$near`: a place is near enough. Results are ordered by distance.
    Near(Arc<NearBy>),
    /// `$text`: a text search.
    Text(Box<TextNode>),
}

/// All text searches below a node.
pub(crate) fn text_nodes(node: &Node) -> Vec<&TextNode> {
    match node {
        Node::Text(text) => vec![text],
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter().flat_map(text_nodes).collect()
        }
        Node::Not(child) => text_nodes(child),
        _ => Vec::new(),
    }
}

/// A predicate over the values at a path.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The path; `None` inside a value `$elemMatch`, where the element itself is tested.
    pub path: Option<Path>,
    /// The predicate.
    pub predicate: Predicate,
}

/// A predicate over the array at a path.
#[derive(Debug, Clone)]
pub struct ArrayLeaf {
    /// The path; `None` inside a value `$elemMatch`.
    pub path: Option<Path>,
    /// The predicate.
    pub predicate: ArrayPredicate,
}

/// A predicate on an array as a whole.
#[derive(Debug, Clone)]
pub enum ArrayPredicate {
    /// It has this many elements.
    Size(i64),
    /// Some element is a document that matches.
    ElemMatchObject(Box<Node>),
    /// Some element satisfies all of these.
    ElemMatchValue(Vec<Node>),
}

#[cfg(test)]
mod tests;

//! The plan of a text search: one scan per term, over the keys that begin with the term.
//!
//! ```text
//!   index {p: 1, _fts: "text", _ftsx: 1}      filter {p: 5, $text: {$search: "dogs cats"}}
//!   scans: [5, "cat"] [5, "dog"]              every field before the terms needs an equality
//!
//!   {$or: [{$text: ...}, {n: 1}]}             the other branches need indexes of their own
//! ```

use std::sync::Arc;

use protocol::ErrorCode;

use super::{
    Candidate, Request, bounds::conjuncts, candidates::by_branch, candidates::operands_fit,
    partial, refused::refused_text,
};
use crate::{
    error::QueryError,
    exec::{Access, IndexScan, TextScan},
    matcher::{CompareOp, Leaf, Matcher, Node, Predicate, text_nodes},
    source::{Direction, IndexInfo, IndexKind, KeyRange, Source},
    text::{TextNode, TextQuery, TextSpec, key_term},
    value::{Elements, OwnedValue, Value},
};

/// Checks the use of `$text` in a filter.
pub fn check(filter: &Matcher) -> Result<(), QueryError> {
    if text_nodes(filter.root()).len() > 1 {
        return Err(QueryError::bad_value("Too many text expressions"));
    }
    if below_nor(filter.root(), false) {
        return Err(QueryError::bad_value("text expression not allowed in nor"));
    }
    Ok(())
}

/// Checks what a query with `$text` must not contain.
pub fn check_request(
    filter: &Matcher,
    natural_sort: bool,
    hinted: bool,
    tailable: bool,
) -> Result<(), QueryError> {
    if filter.text().is_none() {
        return Ok(());
    }
    check(filter)?;
    let refused = |what| Err(QueryError::bad_value(what));
    if natural_sort {
        return refused("text expression not allowed with $natural sort order");
    }
    if hinted {
        return refused("text and hint not allowed in same query");
    }
    if tailable {
        return refused("text and tailable cursor not allowed in same query");
    }
    Ok(())
}

fn below_nor(node: &Node, within: bool) -> bool {
    match node {
        Node::Text(_) => within,
        Node::And(children) | Node::Or(children) => {
            children.iter().any(|child| below_nor(child, within))
        }
        Node::Nor(children) => children.iter().any(|child| below_nor(child, true)),
        Node::Not(child) => below_nor(child, true),
        _ => false,
    }
}

/// The only possible plan of a text search.
pub(super) fn candidate(
    request: &Request,
    search: &TextNode,
    source: &dyn Source,
) -> Result<Candidate, QueryError> {
    check_request(&request.filter, request.natural.is_some(), request.hint.is_some(), false)?;
    let planning = Planning::new(request, search, source)?;
    let root = request.filter.root();
    let found = match planning.conjunction(root)? {
        Some(found) => found,
        None => planning.disjunction(root)?,
    };
    let scored = search.wants_score();
    let Found { prefix, terms, others, filter, branch } = found;
    let own = (planning.at, prefix);
    let mut text = TextScan::new(planning.query, own, (terms, others), scored, filter);
    text.branch = branch;
    Ok(Candidate::of(Access::Text(Box::new(text)), false))
}

/// The parts of the plan.
struct Found {
    prefix: Vec<OwnedValue>,
    terms: Vec<IndexScan>,
    others: Vec<IndexScan>,
    filter: Matcher,
    /// In an `$or`: the branch with the search.
    branch: Option<Matcher>,
}

struct Planning<'a> {
    request: &'a Request,
    source: &'a dyn Source,
    search: &'a TextNode,
    query: Arc<TextQuery>,
    at: usize,
    index: &'a IndexInfo,
}

/// mongod's errors for a filter that cannot use the text index.
const NOT_USABLE: &str = "failed to use text index to satisfy $text query (if text index is compound, are \
                          equality predicates given for all prefix fields?)";
const OR_NOT_INDEXED: &str = "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR \
                              have to be indexed as well.";

impl<'a> Planning<'a> {
    /// Finds the index and resolves the search with it.
    fn new(
        request: &'a Request,
        search: &'a TextNode,
        source: &'a dyn Source,
    ) -> Result<Self, QueryError> {
        let mut all = source.indexes().iter().enumerate().filter(|(_, index)| is_text(index));
        let (at, index) = all.next().ok_or_else(|| not_found(""))?;
        let spec = match (index.kind, TextSpec::of(&index.spec)) {
            (IndexKind::Text, Some(spec)) => Arc::new(spec),
            _ => return Err(without_keys(index)),
        };
        let query = Arc::new(TextQuery::new(&search.search, spec)?);
        let planning = Self { request, source, search, query, at, index };
        if index.hidden {
            return Err(planning.refused("need exactly one text index for $text query"));
        }
        Ok(planning)
    }

    fn refused(&self, why: &str) -> QueryError {
        let language = self.search.search.language.as_deref().filter(|name| !name.is_empty());
        let language = language.unwrap_or(self.query.spec().language().name());
        refused_text(self.request, &self.source.namespace(), language, why)
    }

    /// A search that is a conjunct of the filter.
    fn conjunction(&self, root: &Node) -> Result<Option<Found>, QueryError> {
        let parts = conjuncts(root);
        if !parts.iter().any(|part| matches!(part, Node::Text(_))) {
            return Ok(None);
        }
        let prefix = self.prefix(&parts).ok_or_else(|| self.refused(NOT_USABLE))?;
        let by_index = self.search.settled(Arc::clone(&self.query), true);
        // Cheap tests come first.
        let others = parts.iter().filter(|part| !matches!(part, Node::Text(_)));
        let mut filter: Vec<Node> = others.map(|part| (*part).clone()).collect();
        filter.push(Node::Text(Box::new(by_index)));
        let filter = match filter.len() {
            1 => filter.remove(0),
            _ => Node::And(filter),
        };
        Ok(Some(Found {
            terms: self.terms(&prefix),
            prefix,
            others: Vec::new(),
            filter: Matcher::from_root(filter),
            branch: None,
        }))
    }

    /// A search in a branch of an `$or`: the whole filter is checked on every document that is found.
    fn disjunction(&self, root: &Node) -> Result<Found, QueryError> {
        let mut found = Found {
            prefix: Vec::new(),
            terms: Vec::new(),
            others: Vec::new(),
            filter: Matcher::from_root(self.settled(root)),
            branch: None,
        };
        let or = conjuncts(root).into_iter().find(|part| !text_nodes(part).is_empty());
        self.branches(or.unwrap_or(root), &mut found)?;
        Ok(found)
    }

    fn branches(&self, node: &Node, found: &mut Found) -> Result<(), QueryError> {
        let Node::Or(branches) = node else {
            return Err(self.refused(NOT_USABLE));
        };
        for branch in branches {
            if text_nodes(branch).is_empty() {
                let scan = by_branch(branch, self.request, self.source.indexes());
                found.others.push(scan.ok_or_else(|| self.refused(OR_NOT_INDEXED))?);
                continue;
            }
            match self.conjunction(branch)? {
                Some(text) => {
                    found.prefix = text.prefix;
                    found.terms = text.terms;
                    found.branch = Some(text.filter);
                }
                None => self.branches(branch, found)?,
            }
        }
        Ok(())
    }

    /// The filter with the resolved search.
    fn settled(&self, node: &Node) -> Node {
        let all = |children: &[Node]| children.iter().map(|child| self.settled(child)).collect();
        match node {
            Node::Text(text) => Node::Text(Box::new(text.settled(Arc::clone(&self.query), false))),
            Node::And(children) => Node::And(all(children)),
            Node::Or(children) => Node::Or(all(children)),
            other => other.clone(),
        }
    }

    /// The values of the fields before the terms. `None` if one has no equality, or if the index may lack documents.
    fn prefix(&self, parts: &[&Node]) -> Option<Vec<OwnedValue>> {
        let whole = Node::And(parts.iter().map(|part| (*part).clone()).collect());
        if self.index.partial.as_ref().is_some_and(|filter| !partial::implies(&whole, filter)) {
            return None;
        }
        let before = self.index.fields.iter().take_while(|field| field.path.dotted() != b"_fts");
        before
            .map(|field| {
                let on_field = |node: &&&Node| matches!(node, Node::Leaf(Leaf { path: Some(path), .. }) if *path == field.path);
                let fitting = parts.iter().filter(on_field).filter(|part| operands_fit(self.index, part));
                fitting.into_iter().find_map(|part| equality(part))
            })
            .collect()
    }

    fn terms(&self, prefix: &[OwnedValue]) -> Vec<IndexScan> {
        let version = self.query.spec().version();
        let range = |term: &str| {
            let term = OwnedValue::from(Value::String(&key_term(term, version)));
            let prefix = prefix.iter().cloned().chain([term]).collect();
            KeyRange { prefix, ..KeyRange::default() }
        };
        let scan = |term| IndexScan {
            direction: Direction::Backward,
            ..IndexScan::new(self.at, self.index.spec.clone(), vec![range(term)])
        };
        self.query.bounds().map(scan).collect()
    }
}

pub(super) fn equality(node: &Node) -> Option<OwnedValue> {
    let Node::Leaf(Leaf { predicate, .. }) = node else { return None };
    match predicate {
        Predicate::Compare { op: CompareOp::Eq, operand, .. } => Some(operand.clone()),
        Predicate::In(list) if list.regexes.is_empty() => match list.values.as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// True for a text index, judged by its key pattern: it may have no keys here.
fn is_text(index: &IndexInfo) -> bool {
    let pattern = index.spec.get_document("key").ok();
    pattern
        .into_iter()
        .flat_map(Elements::new)
        .any(|part| matches!(part.value(), Value::String(b"text")))
}

/// The error for a missing text index; `why` is appended.
pub fn not_found(why: &str) -> QueryError {
    QueryError::new(ErrorCode::IndexNotFound, format!("text index required for $text query{why}"))
}

fn without_keys(index: &IndexInfo) -> QueryError {
    let name = &index.name;
    QueryError::location(
        115,
        format!(
            "the text index {name:?} has no keys on this server: it has textIndexVersion 1, or was made by an \
             older version of this server; drop it and create it again to search by it"
        ),
    )
}

//! Turns an `$or` of equalities on one path into a list: one binary search instead of a test per branch.

use std::collections::HashMap;

use super::{CompareOp, InList, Leaf, Node, Predicate};
use crate::value::OwnedValue;

/// Joins the branches of an `$or` that are equalities on the same path, at the position of the first.
pub(crate) fn joined(branches: Vec<Node>) -> Vec<Node> {
    let mut kept: Vec<Node> = Vec::with_capacity(branches.len());
    // By path: the position of the first equality.
    let mut first: HashMap<Box<[u8]>, usize> = HashMap::new();
    let mut lists: HashMap<usize, Vec<OwnedValue>> = HashMap::new();
    for branch in branches {
        let Some((path, operand)) = equality(&branch) else {
            kept.push(branch);
            continue;
        };
        let at = *first.entry(path.into()).or_insert(kept.len());
        match kept.get(at) {
            Some(other) if collates_alike(other, &branch) => {
                lists.entry(at).or_default().push(operand.clone());
            }
            _ => kept.push(branch),
        }
    }
    for (at, more) in lists {
        if let Some(Node::Leaf(leaf)) = kept.get_mut(at)
            && let Predicate::Compare { operand, collator, .. } = &leaf.predicate
        {
            let values = std::iter::once(operand.clone()).chain(more).collect();
            leaf.predicate = Predicate::In(InList::new(values, Vec::new(), collator.clone()));
        }
    }
    kept
}

/// A version of the filter that is faster to evaluate, if it has an `$or` of many equalities.
pub(super) fn for_checking(root: &Node) -> Option<Node> {
    /// From this number of branches on a search is cheaper.
    const MANY: usize = 8;
    match root {
        Node::Or(children) => {
            let many = children.iter().filter_map(equality).nth(MANY).is_some();
            let below = all_for_checking(children);
            (many || below.is_some())
                .then(|| Node::Or(joined(below.unwrap_or_else(|| children.clone()))))
        }
        Node::And(children) => all_for_checking(children).map(Node::And),
        _ => None,
    }
}

fn all_for_checking(children: &[Node]) -> Option<Vec<Node>> {
    let below: Vec<_> = children.iter().map(for_checking).collect();
    below.iter().any(Option::is_some).then(|| {
        let pairs = children.iter().zip(below);
        pairs.map(|(child, joined)| joined.unwrap_or_else(|| child.clone())).collect()
    })
}

fn equality(node: &Node) -> Option<(&[u8], &OwnedValue)> {
    match node {
        Node::Leaf(Leaf {
            path: Some(path),
            predicate: Predicate::Compare { op: CompareOp::Eq, operand, .. },
        }) => Some((path.dotted(), operand)),
        _ => None,
    }
}

fn collates_alike(a: &Node, b: &Node) -> bool {
    let spec = |node: &Node| match node {
        Node::Leaf(Leaf { predicate: Predicate::Compare { collator, .. }, .. }) => {
            collator.as_ref().map(|collator| collator.spec().clone())
        }
        _ => None,
    };
    spec(a) == spec(b)
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;
    use crate::{
        context::Context,
        matcher::{Matcher, ParseContext, eval},
    };

    #[test]
    fn a_joined_or_matches_what_its_branches_match() {
        let branches: Vec<RawDocumentBuf> = vec![
            rawdoc! { "a": 1 },
            rawdoc! { "b": "x" },
            rawdoc! { "a": null },
            rawdoc! { "a": [1, 2] },
            rawdoc! { "c": { "$gt": 7 } },
            rawdoc! { "a": 2.5 },
            rawdoc! { "b": { "$eq": { "x": 1 } } },
            rawdoc! { "a": "text", "b": 9 },
        ];
        let mut list = bson::RawArrayBuf::new();
        branches.iter().for_each(|branch| list.push(branch.clone()));
        let filter = rawdoc! { "$or": list };
        let matcher = Matcher::parse(&filter, &ParseContext::default()).unwrap();
        let Node::Or(children) = matcher.root() else { panic!("{matcher:?}") };
        let joined = joined(children.clone());
        assert_eq!(joined.len(), 4, "{joined:?}");
        let docs = [
            rawdoc! { "a": 1_i64, "b": 0, "c": 0 },
            rawdoc! { "a": [0, 1], "b": 0 },
            rawdoc! { "a": [1, 2], "b": 0 },
            rawdoc! { "a": [[1, 2]], "b": 0 },
            rawdoc! { "b": 0 },
            rawdoc! { "a": 3, "b": "x" },
            rawdoc! { "a": 3, "b": { "x": 1 } },
            rawdoc! { "a": 3, "b": { "x": 2 }, "c": 8 },
            rawdoc! { "a": "text", "b": 9 },
            rawdoc! { "a": "text", "b": 8 },
            rawdoc! { "a": 4, "b": 0 },
        ];
        let cx = Context::default();
        for doc in docs {
            let want =
                eval::document(matcher.root(), crate::exec::Seen::plain(doc.as_bytes()), &cx)
                    .unwrap();
            let got = eval::document(
                &Node::Or(joined.clone()),
                crate::exec::Seen::plain(doc.as_bytes()),
                &cx,
            )
            .unwrap();
            assert_eq!(want, got, "{doc:?}");
        }
    }
}

//! How completely the intervals of a predicate express it.

use super::bounds::is_prefix;
use crate::{
    matcher::{InList, Leaf, Node, Predicate, TypeSet},
    value::{OwnedValue, Value},
};

/// What remains to be checked of a predicate after an index scan of its intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tightness {
    /// Nothing: the intervals contain exactly the matching values.
    Exact,
    /// The predicate can be checked on the key.
    ByKey,
    /// The predicate must be checked on the document.
    ByDocument,
}

/// How completely the intervals express a node.
pub(super) fn tightness(part: &Node) -> Tightness {
    match part {
        Node::Leaf(Leaf { path: Some(_), predicate }) => of_predicate(predicate),
        Node::Not(child) => match &**child {
            Node::Leaf(Leaf { path: Some(_), predicate }) => of_negation(predicate),
            _ => Tightness::ByDocument,
        },
        _ => Tightness::ByDocument,
    }
}

/// True if the intervals contain exactly the matching values.
pub(super) fn is_exact(part: &Node) -> bool {
    tightness(part) == Tightness::Exact
}

fn of_predicate(predicate: &Predicate) -> Tightness {
    match predicate {
        Predicate::Compare { operand, .. } => exact_if(is_plain(operand)),
        Predicate::In(list) if list.has_null || !list.values.iter().all(is_plain) => {
            Tightness::ByDocument
        }
        Predicate::In(list) if list.collator.is_some() && !list.regexes.is_empty() => {
            Tightness::ByDocument
        }
        Predicate::In(InList { regexes, .. }) => {
            match regexes.iter().all(|regex| is_prefix(regex.pattern(), regex.options())) {
                true => Tightness::Exact,
                false => Tightness::ByKey,
            }
        }
        Predicate::Regex(regex) if is_prefix(regex.pattern(), regex.options()) => Tightness::Exact,
        Predicate::Regex(_) | Predicate::Mod { .. } => Tightness::ByKey,
        Predicate::Type(types) => of_types(types),
        Predicate::Exists | Predicate::Bits(_) | Predicate::Geo(_) => Tightness::ByDocument,
    }
}

/// For negated predicates. A missing field counts as null, and so does its key, so a negated null is exact.
fn of_negation(predicate: &Predicate) -> Tightness {
    let plain = |value: &OwnedValue| is_plain(value) || matches!(value.get(), Value::Null);
    match predicate {
        Predicate::Compare { operand, .. } => exact_if(plain(operand)),
        Predicate::In(list) => exact_if(list.regexes.is_empty() && list.values.iter().all(plain)),
        _ => Tightness::ByDocument,
    }
}

fn exact_if(exact: bool) -> Tightness {
    if exact { Tightness::Exact } else { Tightness::ByDocument }
}

/// Null has the same key as a missing field, an array has the keys of its elements, and a regex also equals what it
/// matches.
fn is_plain(value: &OwnedValue) -> bool {
    !matches!(value.get(), Value::Null | Value::Array(_) | Value::Undefined | Value::Regex { .. })
}

/// Types that share one order with others.
const NUMBERS: [i32; 4] = [1, 16, 18, 19];
const TEXTS: [i32; 2] = [2, 14];
/// Array, undefined and null, which keys do not distinguish.
const UNTOLD: [i32; 3] = [4, 6, 10];

fn of_types(types: &TypeSet) -> Tightness {
    let has = |code: &i32| types.codes().any(|own| own == *code);
    let some = |of: &[i32]| of.iter().any(has) && !of.iter().all(has);
    match () {
        () if UNTOLD.iter().any(has) => Tightness::ByDocument,
        () if some(&NUMBERS) || some(&TEXTS) => Tightness::ByKey,
        () => Tightness::Exact,
    }
}

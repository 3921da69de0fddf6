//! How much of a predicate the intervals of its values say.

use super::bounds::is_prefix;
use crate::{
    matcher::{InList, Leaf, Node, Predicate, TypeSet},
    value::{OwnedValue, Value},
};

/// What is left to be checked of a predicate by whose intervals an index is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tightness {
    /// Nothing: they hold what matches, and nothing else.
    Exact,
    /// The key tells.
    ByKey,
    /// The document must be looked at.
    ByDocument,
}

/// How much the intervals of a node say.
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

/// Whether the intervals of a predicate hold what matches and nothing else.
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

/// What is missing is not equal to null, nor is a key for it.
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

/// Null has the key of what is missing, an array those of its elements; a regex is also equal to what it matches.
fn is_plain(value: &OwnedValue) -> bool {
    !matches!(value.get(), Value::Null | Value::Array(_) | Value::Undefined | Value::Regex { .. })
}

/// The types that share their order with others, each among them.
const NUMBERS: [i32; 4] = [1, 16, 18, 19];
const TEXTS: [i32; 2] = [2, 14];
/// Array, undefined and null are not told by keys.
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

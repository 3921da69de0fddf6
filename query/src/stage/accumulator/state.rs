//! The state of an accumulator.

use std::{cmp::Ordering, collections::HashSet};

use crate::{
    collation::Collator,
    error::QueryError,
    expression::{Spread, Sum, merge},
    sort::{SortKey, SortPattern},
    stage::hash_key,
    value::{OwnedValue, Shown, Spelled, Value, compare_values},
};

/// The state of one accumulator in a group.
#[derive(Debug, Default)]
pub(in crate::stage) struct State {
    pub(super) n: usize,
    /// Of equal values keep the newest, for sliding windows.
    pub(in crate::stage) newest: bool,
    pub(super) count: i64,
    pub(super) sum: Sum,
    pub(super) values: Vec<OwnedValue>,
    pub(super) bytes: usize,
    /// State that most accumulators never need.
    pub(super) rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) spread: Spread,
    pub(super) set: HashSet<Vec<u8>>,
    pub(super) keyed: Vec<(SortKey, OwnedValue)>,
    pub(super) numbers: Vec<f64>,
}

impl State {
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Memory used, for limits.
    pub(in crate::stage) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, value: Value<'_>) {
        let owned = OwnedValue::from(value);
        self.bytes += owned.size();
        self.values.push(owned);
    }

    /// Adds the elements of an array; each only once for a set.
    pub(super) fn extend(
        &mut self,
        value: Value<'_>,
        is_set: bool,
        collator: Option<&Collator>,
    ) -> Result<(), QueryError> {
        match value {
            Value::Missing => return Ok(()),
            Value::Array(_) => {}
            other => {
                return Err(QueryError::type_mismatch(format!(
                    "{} requires array inputs, but input {} is of type {}",
                    if is_set { "$setUnion" } else { "$concatArrays" },
                    Shown(other),
                    other.type_name()
                )));
            }
        }
        for element in value.elements() {
            if !is_set || self.rare().set.insert(hash_key::of(element.value(), collator)) {
                self.push(element.value());
            }
        }
        Ok(())
    }

    pub(super) fn keep_extreme(
        &mut self,
        value: Value<'_>,
        collator: Option<&Collator>,
        better: Ordering,
    ) {
        if value.is_nullish() {
            return;
        }
        let replace = self
            .values
            .first()
            .is_none_or(|best| compare_values(value, best.get(), collator) == better);
        if replace {
            self.values.clear();
            self.push(value);
        }
    }

    pub(super) fn merge(&mut self, value: Value<'_>, pushed: bool) -> Result<(), QueryError> {
        match value {
            Value::Document(doc) => {
                let merged = match self.values.first().map(OwnedValue::get) {
                    Some(Value::Document(base)) => merge(base, doc),
                    _ => doc.to_vec(),
                };
                self.values.clear();
                self.push(Value::Document(&merged));
                Ok(())
            }
            _ if value.is_nullish() => Ok(()),
            _ if pushed => {
                Err(QueryError::location(5_911_200, "$mergeObjects only supports objects"))
            }
            _ => Err(QueryError::location(
                40_400,
                format!(
                    "$mergeObjects requires object inputs, but input {} is of type {}",
                    Spelled(value),
                    value.type_name()
                ),
            )),
        }
    }

    pub(super) fn insert_extreme(
        &mut self,
        value: Value<'_>,
        collator: Option<&Collator>,
        descending: bool,
        pushed: bool,
    ) {
        if pushed {
            self.insert_heaped(value, collator, descending);
        } else {
            self.insert_sorted(value, collator, descending);
        }
    }

    fn insert_sorted(&mut self, value: Value<'_>, collator: Option<&Collator>, descending: bool) {
        let order = |known: &OwnedValue| compare_values(known.get(), value, collator);
        // Of equal values the first ones are kept; among the greatest the newest comes first.
        let full = self.values.len() >= self.n;
        let newest = self.newest && descending;
        if full && !newest && self.values.last().is_some_and(|last| order(last).is_eq()) {
            return;
        }
        let at = self.values.partition_point(|known| {
            if descending { order(known).is_gt() } else { order(known).is_le() }
        });
        if at < self.n {
            self.values.insert(at, value.into());
            self.values.truncate(self.n);
        }
    }

    /// Like SBE, keeps values in a heap whose root is dropped first. Which of equal values are kept (text may be
    /// equal under a collation) depends on their positions in the heap.
    fn insert_heaped(&mut self, value: Value<'_>, collator: Option<&Collator>, descending: bool) {
        let before = |a: &OwnedValue, b: &OwnedValue| {
            let order = compare_values(a.get(), b.get(), collator);
            if descending { order.is_gt() } else { order.is_lt() }
        };
        let value = OwnedValue::from(value);
        if self.values.len() >= self.n {
            match self.values.first() {
                Some(root) if before(&value, root) => drop_root(&mut self.values, &before),
                _ => return,
            }
        }
        self.values.push(value);
        let last = self.values.len() - 1;
        rise(&mut self.values, last, &before);
    }

    /// The values of a heap, sorted.
    pub(super) fn sorted(&self, collator: Option<&Collator>, descending: bool) -> Vec<OwnedValue> {
        let mut values = self.values.clone();
        values.sort_by(|a, b| {
            let order = compare_values(a.get(), b.get(), collator);
            if descending { order.reverse() } else { order }
        });
        values
    }

    pub(super) fn insert_by_key(
        &mut self,
        pattern: &SortPattern,
        doc: &[u8],
        value: Value<'_>,
        bottom: bool,
    ) -> Result<(), QueryError> {
        let key = pattern.key(doc)?;
        let (n, newest) = (self.n, self.newest);
        let keyed = &mut self.rare().keyed;
        if bottom && !newest && keyed.len() >= n {
            let least = keyed.first().map(|(known, _)| pattern.compare(&key, known));
            if least.is_some_and(|order| order.is_le()) {
                return Ok(());
            }
        }
        let at = keyed.partition_point(|(known, _)| pattern.compare(known, &key).is_le());
        keyed.insert(at, (key, value.into()));
        if keyed.len() > n {
            if bottom {
                keyed.remove(0);
            } else {
                keyed.pop();
            }
        }
        Ok(())
    }
}

type Before<'a> = dyn Fn(&OwnedValue, &OwnedValue) -> bool + 'a;

/// Moves the value at a position up the heap.
fn rise(heap: &mut [OwnedValue], mut at: usize, before: &Before<'_>) {
    while at > 0 {
        let parent = (at - 1) / 2;
        match (heap.get(parent), heap.get(at)) {
            (Some(above), Some(value)) if before(above, value) => heap.swap(parent, at),
            _ => return,
        }
        at = parent;
    }
}

/// Removes the root: the hole moves down along the children that come later, and the last value fills it.
fn drop_root(heap: &mut Vec<OwnedValue>, before: &Before<'_>) {
    let Some(last) = heap.pop() else { return };
    let mut hole = 0;
    loop {
        let (left, right) = (2 * hole + 1, 2 * hole + 2);
        let child = match (heap.get(left), heap.get(right)) {
            (Some(l), Some(r)) => {
                if before(r, l) {
                    left
                } else {
                    right
                }
            }
            (Some(_), None) => left,
            _ => break,
        };
        heap.swap(hole, child);
        hole = child;
    }
    if let Some(place) = heap.get_mut(hole) {
        *place = last;
        rise(heap, hole, before);
    }
}

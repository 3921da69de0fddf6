//! What a group has gathered.

use std::{cmp::Ordering, collections::HashSet};

use crate::{
    collation::Collator,
    error::QueryError,
    expression::{Spread, Sum, merge},
    sort::{SortKey, SortPattern},
    stage::hash_key,
    value::{OwnedValue, Shown, Value, compare_values},
};

/// What a group has gathered for one accumulator.
#[derive(Debug, Default)]
pub(in crate::stage) struct State {
    pub(super) n: usize,
    pub(super) count: i64,
    pub(super) sum: Sum,
    pub(super) values: Vec<OwnedValue>,
    pub(super) bytes: usize,
    /// What most accumulators never need.
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

    /// Memory held, for limits.
    pub(in crate::stage) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, value: Value<'_>) {
        let owned = OwnedValue::from(value);
        self.bytes += owned.size();
        self.values.push(owned);
    }

    /// The elements of an array, each once for a set.
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

    pub(super) fn merge(&mut self, value: Value<'_>) -> Result<(), QueryError> {
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
            _ => Err(QueryError::location(5_911_200, "$mergeObjects only supports objects")),
        }
    }

    pub(super) fn insert_sorted(
        &mut self,
        value: Value<'_>,
        collator: Option<&Collator>,
        descending: bool,
    ) {
        let at = self.values.partition_point(|known| {
            let order = compare_values(known.get(), value, collator);
            if descending { order.is_ge() } else { order.is_le() }
        });
        if at < self.n {
            self.values.insert(at, value.into());
            self.values.truncate(self.n);
        }
    }

    pub(super) fn insert_by_key(
        &mut self,
        pattern: &SortPattern,
        doc: &[u8],
        value: Value<'_>,
        bottom: bool,
    ) -> Result<(), QueryError> {
        let key = pattern.key(doc)?;
        let n = self.n;
        let keyed = &mut self.rare().keyed;
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

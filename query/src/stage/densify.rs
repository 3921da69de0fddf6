//! `$densify`: adds documents for missing values of a series.
//!
//! ```text
//!   [sort by partition and field, or by field alone] -> [densify]
//!     1 . . 4 . 6      step 1, full         ->  1 2 3 4 5 6
//! ```
//! For each partition the last value on the grid of steps is kept. A document further than a step from it waits while
//! the values between are generated.

mod parse;

pub(super) use parse::parse;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{hash_key, to_doc, unwind};
use crate::{
    collation::Collator,
    error::QueryError,
    exec::{Noted, Stage, Upstream},
    expression::{Bump, DocBuilder, Env, Expr, Unit, add, moved_in_utc, subtract},
    matcher::operands::integer,
    value::{OwnedValue, Value, compare_values},
};

const NAME: &str = "$densify";

/// mongod's internalQueryMaxAllowedDensifyDocs.
const GENERATED_MAX: u64 = 500_000;

/// The distance between values.
#[derive(Debug, Clone)]
struct Step {
    by: OwnedValue,
    unit: Option<Unit>,
}

impl Step {
    fn moved(&self, from: Value<'_>, back: bool) -> Result<OwnedValue, QueryError> {
        match (from, self.unit) {
            (Value::Date(ms), Some(unit)) => {
                let n = integer("", self.by.get()).unwrap_or(0);
                let n = if back { n.checked_neg() } else { Some(n) };
                let moved = n.and_then(|n| moved_in_utc(ms, unit, n));
                moved.map(|ms| Value::Date(ms).into()).ok_or_else(|| {
                    QueryError::new(protocol::ErrorCode::Overflow, "date overflow in $densify")
                })
            }
            _ if back => Ok(subtract(from, self.by.get()).into()),
            _ => Ok(add(from, self.by.get()).into()),
        }
    }

    fn after(&self, from: Value<'_>) -> Result<OwnedValue, QueryError> {
        self.moved(from, false)
    }

    fn before(&self, from: Value<'_>) -> Result<OwnedValue, QueryError> {
        self.moved(from, true)
    }
}

/// The range in which documents are generated.
#[derive(Debug, Clone)]
enum Within {
    /// From the minimum to the maximum of all documents.
    Full,
    /// From the minimum to the maximum of the partition.
    Partition,
    /// From the first to the second value (exclusive).
    Explicit(OwnedValue, OwnedValue),
}

#[derive(Debug)]
struct Densify {
    field: Vec<Box<[u8]>>,
    /// The partition expression `{a: "$a"}`; `None` without partitions.
    partition: Option<Expr>,
    /// The collation that distinguishes partitions.
    collator: Option<Arc<Collator>>,
    step: Step,
    within: Within,
    begun: bool,
    /// By the partition's key: the key as a value, and the last value on the grid.
    seen: HashMap<Vec<u8>, (OwnedValue, OwnedValue)>,
    /// Partitions in the order of their first document.
    order: Vec<Vec<u8>>,
    least: Option<OwnedValue>,
    greatest: Option<OwnedValue>,
    making: Option<Maker>,
    /// Partitions that are still to be completed after the input has ended.
    rest: Option<VecDeque<Vec<u8>>>,
    made: u64,
}

/// Documents that are being generated.
#[derive(Debug)]
struct Maker {
    key: Vec<u8>,
    next: OwnedValue,
    end: OwnedValue,
    end_included: bool,
    /// The document returned after them.
    last: Option<Noted>,
}

impl Stage for Densify {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        loop {
            if self.made > GENERATED_MAX {
                return Err(QueryError::location(
                    5_897_900,
                    format!(
                        "Generated {} documents in $densify, which is over the limit of \
                         {GENERATED_MAX}. Increase the 'internalQueryMaxAllowedDensifyDocs' \
                         parameter to allow more generated documents",
                        self.made
                    ),
                ));
            }
            if let Some(maker) = self.making.take() {
                return self.make(maker).map(Some);
            }
            if let Some(rest) = &mut self.rest {
                let Some(key) = rest.pop_front() else { return Ok(None) };
                self.finish(key)?;
                continue;
            }
            self.begin()?;
            let Some(doc) = up.pull()? else {
                self.rest = Some(match self.within {
                    Within::Partition => VecDeque::new(),
                    _ => self.order.drain(..).collect(),
                });
                continue;
            };
            if let Some(doc) = self.take(doc, up)? {
                return Ok(Some(doc));
            }
        }
    }
}

impl Densify {
    /// Without partitions an explicit range is filled even if there are no documents.
    fn begin(&mut self) -> Result<(), QueryError> {
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        if let (Within::Explicit(low, _), None) = (&self.within, &self.partition) {
            let before = self.step.before(low.get())?;
            self.set(&Vec::new(), Value::Null, before);
        }
        Ok(())
    }

    fn set(&mut self, key: &Vec<u8>, partition: Value<'_>, value: OwnedValue) {
        match self.seen.get_mut(key) {
            Some(place) => place.1 = value,
            None => {
                self.order.push(key.clone());
                self.seen.insert(key.clone(), (partition.into(), value));
            }
        }
    }

    fn check_type(&self, value: Value<'_>) -> Result<(), QueryError> {
        let (is_date, has_unit) = (matches!(value, Value::Date(_)), self.step.unit.is_some());
        if !is_date && !value.is_number() {
            return Err(QueryError::location(
                5_733_201,
                "Densify field type must be numeric or a date",
            ));
        }
        if is_date && !has_unit {
            return Err(QueryError::location(
                6_053_600,
                "Encountered date densify value in collection when step does not have a date unit.",
            ));
        }
        if !is_date && has_unit {
            return Err(QueryError::location(
                6_053_600,
                "Encountered numeric densify value in collection when step has a date unit.",
            ));
        }
        Ok(())
    }

    /// Processes an input document: it is returned at once, or after the generated ones that precede it.
    fn take(&mut self, doc: Noted, up: &Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        let arena = Bump::new();
        let value = unwind::at(doc.as_bytes(), &self.field);
        if value.is_nullish() {
            return Ok(Some(doc));
        }
        self.check_type(value)?;
        let value = OwnedValue::from(value);
        let partition: OwnedValue = match &self.partition {
            None => Value::Null.into(),
            Some(expr) => {
                let mut env = Env::over(&arena, up.context(), doc.seen());
                expr.eval(&mut env)?.into()
            }
        };
        let key = match &self.partition {
            None => Vec::new(),
            Some(_) => hash_key::of(partition.get(), self.collator.as_deref()),
        };
        if let Within::Full = self.within {
            self.greatest = Some(value.clone());
            if self.least.is_none() {
                self.least = Some(value.clone());
            }
        }
        let Some((_, last)) = self.seen.get(&key) else {
            return self.first_of(doc, &key, partition.get(), &value);
        };
        let mut last = last.clone();
        if let Within::Explicit(low, high) = &self.within {
            if at_least(&last, high) {
                return Ok(Some(doc));
            }
            if above(low, &last) {
                last = self.step.before(low.get())?;
            }
        }
        if above(&last, &value) {
            return Ok(Some(doc));
        }
        self.between(doc, &last, &value, &key, partition.get())
    }

    fn first_of(
        &mut self,
        doc: Noted,
        key: &Vec<u8>,
        partition: Value<'_>,
        value: &OwnedValue,
    ) -> Result<Option<Noted>, QueryError> {
        match (&self.within, &self.least) {
            (Within::Explicit(low, _), _) if above(value, low) => {
                let low = low.clone();
                let before = self.step.before(low.get())?;
                self.set(key, partition, low);
                return self.between(doc, &before, value, key, partition);
            }
            (Within::Full, Some(least)) if above(value, least) => {
                let before = self.step.before(least.get())?;
                let after = self.step.after(least.get())?;
                if above(value, &after) {
                    return self.between(doc, &before, value, key, partition);
                }
                self.set(key, partition, before);
                return Ok(Some(doc));
            }
            _ => {}
        }
        self.set(key, partition, value.clone());
        Ok(Some(doc))
    }

    fn between(
        &mut self,
        doc: Noted,
        last: &OwnedValue,
        value: &OwnedValue,
        key: &Vec<u8>,
        partition: Value<'_>,
    ) -> Result<Option<Noted>, QueryError> {
        let mut next = self.step.after(last.get())?;
        let mut end = value.clone();
        let mut past_end = false;
        if let Within::Explicit(low, high) = &self.within {
            // Months differ in length: a step back and one forward may miss the start.
            if above(low, &next) {
                next = low.clone();
            }
            past_end = at_least(&next, high);
            if at_least(value, high) {
                end = high.clone();
            }
        }
        if past_end || at_least(&next, value) {
            if compare_values(next.get(), value.get(), None).is_eq() {
                self.set(key, partition, value.clone());
            }
            return Ok(Some(doc));
        }
        self.set(key, partition, next.clone());
        self.making =
            Some(Maker { key: key.clone(), next, end, end_included: false, last: Some(doc) });
        Ok(None)
    }

    /// Generates what a partition lacks after the input has ended.
    fn finish(&mut self, key: Vec<u8>) -> Result<(), QueryError> {
        let Some((_, last)) = self.seen.get(&key) else { return Ok(()) };
        let (low, high, included) = match (&self.within, &self.least, &self.greatest) {
            (Within::Explicit(low, high), ..) => (low, high, false),
            (Within::Full, Some(least), Some(greatest)) => (least, greatest, true),
            _ => return Ok(()),
        };
        let next = if above(low, last) { low.clone() } else { self.step.after(last.get())? };
        if above(&next, high) || (!included && at_least(&next, high)) {
            return Ok(());
        }
        let end = high.clone();
        self.making = Some(Maker { key, next, end, end_included: included, last: None });
        Ok(())
    }

    /// Generates one document.
    fn make(&mut self, mut maker: Maker) -> Result<Noted, QueryError> {
        let beyond = |maker: &Maker| {
            above(&maker.next, &maker.end)
                || (!maker.end_included && at_least(&maker.next, &maker.end))
        };
        if beyond(&maker)
            && let Some(doc) = maker.last.take()
        {
            // The document itself may lie on the grid.
            let value = OwnedValue::from(unwind::at(doc.as_bytes(), &self.field));
            if let Some((_, last)) = self.seen.get_mut(&maker.key)
                && compare_values(self.step.after(last.get())?.get(), value.get(), None).is_eq()
            {
                *last = value;
            }
            return Ok(doc);
        }
        let made = maker.next.clone();
        maker.next = self.step.after(made.get())?;
        self.made += 1;
        let base = match self.seen.get(&maker.key) {
            Some((partition, _)) => match partition.get() {
                Value::Document(doc) => doc.to_vec(),
                _ => DocBuilder::new().finish(),
            },
            None => DocBuilder::new().finish(),
        };
        let doc = Noted::from(to_doc(unwind::with(&base, &self.field, made.get()))?);
        if beyond(&maker) {
            if let Some((_, last)) = self.seen.get_mut(&maker.key) {
                *last = made;
            }
            if maker.last.is_none() {
                return Ok(doc);
            }
        }
        self.making = Some(maker);
        Ok(doc)
    }
}

fn above(a: &OwnedValue, b: &OwnedValue) -> bool {
    compare_values(a.get(), b.get(), None).is_gt()
}

fn at_least(a: &OwnedValue, b: &OwnedValue) -> bool {
    compare_values(a.get(), b.get(), None).is_ge()
}

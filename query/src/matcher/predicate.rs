//! Predicates on a single value.

use std::{cmp::Ordering, sync::Arc};

use super::{bits::BitTest, regex::Regex};
use crate::{
    collation::Collator,
    geo::GeoQuery,
    value::{OwnedValue, Value, compare_values},
};

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the operators' own names")]
pub enum CompareOp {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
}

impl CompareOp {
    /// Its name in a filter.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Eq => "$eq",
            Self::Lt => "$lt",
            Self::Lte => "$lte",
            Self::Gt => "$gt",
            Self::Gte => "$gte",
        }
    }
}

/// A predicate on a value.
#[derive(Debug, Clone)]
pub enum Predicate {
    /// `$eq`, `$lt`, `$lte`, `$gt`, `$gte`.
    Compare {
        /// The operator.
        op: CompareOp,
        /// The operand.
        operand: OwnedValue,
        /// The collation.
        collator: Option<Arc<Collator>>,
    },
    /// `$in`.
    In(InList),
    /// `$regex`.
    Regex(Regex),
    /// `$exists: true`.
    Exists,
    /// `$type`.
    Type(TypeSet),
    /// `$mod`.
    Mod {
        /// Never 0.
        divisor: i64,
        /// The required remainder.
        remainder: i64,
    },
    /// `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.
    Bits(BitTest),
    /// `$geoWithin`, `$geoIntersects`.
    Geo(Arc<GeoQuery>),
}

impl Predicate {
    /// Whether the value satisfies the predicate.
    pub fn test(&self, value: Value<'_>) -> bool {
        match self {
            Self::Compare { op, operand, collator } => {
                compare(*op, value, operand.get(), collator.as_deref())
            }
            Self::In(list) => list.contains(value),
            Self::Regex(regex) => regex.matches_value(value),
            Self::Exists => !matches!(value, Value::Missing),
            Self::Type(types) => types.contains(value),
            Self::Mod { divisor, remainder } => {
                as_dividend(value).is_some_and(|n| n.wrapping_rem(*divisor) == *remainder)
            }
            Self::Bits(test) => test.test(value),
            Self::Geo(query) => query.test(value),
        }
    }
}

fn compare(op: CompareOp, value: Value<'_>, operand: Value<'_>, c: Option<&Collator>) -> bool {
    let includes_equal = matches!(op, CompareOp::Eq | CompareOp::Lte | CompareOp::Gte);
    if value.type_rank() != operand.type_rank() {
        return match (value, operand) {
            // A missing field is equal to null.
            (Value::Missing, Value::Null) => includes_equal,
            // MinKey and MaxKey compare with every type.
            (_, Value::MinKey) => matches!(op, CompareOp::Gt | CompareOp::Gte),
            (_, Value::MaxKey) => matches!(op, CompareOp::Lt | CompareOp::Lte),
            _ => false,
        };
    }
    let (value_nan, operand_nan) = (is_nan(value), is_nan(operand));
    if value_nan || operand_nan {
        return includes_equal && value_nan && operand_nan;
    }
    let order = compare_values(value, operand, c);
    match op {
        CompareOp::Eq => order == Ordering::Equal,
        CompareOp::Lt => order == Ordering::Less,
        CompareOp::Lte => order != Ordering::Greater,
        CompareOp::Gt => order == Ordering::Greater,
        CompareOp::Gte => order != Ordering::Less,
    }
}

pub(super) fn is_nan(value: Value<'_>) -> bool {
    match value {
        Value::Double(n) => n.is_nan(),
        Value::Decimal(n) => n.is_nan(),
        _ => false,
    }
}

/// The operand of `$in`: sorted values, and regexes separately.
#[derive(Debug, Clone, Default)]
pub struct InList {
    /// Sorted, without duplicates.
    pub values: Vec<OwnedValue>,
    /// The regexes among the operands.
    pub regexes: Vec<Regex>,
    /// Null is among the values, so a missing field matches.
    pub has_null: bool,
    /// The collation.
    pub collator: Option<Arc<Collator>>,
}

impl InList {
    /// Sorts the values once, so that each test is a binary search.
    pub fn new(
        mut values: Vec<OwnedValue>,
        regexes: Vec<Regex>,
        collator: Option<Arc<Collator>>,
    ) -> Self {
        let order =
            |a: &OwnedValue, b: &OwnedValue| compare_values(a.get(), b.get(), collator.as_deref());
        values.sort_by(order);
        values.dedup_by(|a, b| order(a, b) == Ordering::Equal);
        let has_null = values.iter().any(|v| matches!(v.get(), Value::Null));
        Self { values, regexes, has_null, collator }
    }

    fn contains(&self, value: Value<'_>) -> bool {
        if matches!(value, Value::Missing) {
            return self.has_null;
        }
        let collator = self.collator.as_deref();
        self.values.binary_search_by(|v| compare_values(v.get(), value, collator)).is_ok()
            || self.regexes.iter().any(|regex| regex.matches_value(value))
    }
}

/// The types that `$type` names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TypeSet {
    /// One bit for each type byte up to 127; `MinKey` (255) is separate.
    bits: u128,
    min_key: bool,
}

impl TypeSet {
    /// Adds the type with this byte.
    pub fn insert(&mut self, type_byte: u8) {
        if type_byte == 0xff {
            self.min_key = true;
        } else if type_byte < 128 {
            self.bits |= 1 << type_byte;
        }
    }

    /// Adds the four number types.
    pub(crate) fn insert_numbers(&mut self) {
        for type_byte in [0x01, 0x10, 0x12, 0x13] {
            self.insert(type_byte);
        }
    }

    /// The type numbers, as in `$type`.
    pub fn codes(&self) -> impl Iterator<Item = i32> {
        let bits = self.bits;
        let min_key = self.min_key.then_some(-1);
        min_key.into_iter().chain((0..128).filter(move |bit| bits >> bit & 1 == 1))
    }

    /// True if the value has one of the types. A missing value has none.
    pub fn contains(&self, value: Value<'_>) -> bool {
        match value.type_byte() {
            0 => false,
            0xff => self.min_key,
            byte => byte < 128 && self.bits & (1 << byte) != 0,
        }
    }
}

/// The number truncated to an integer, if it fits in 64 bits.
fn as_dividend(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) => truncate(n),
        Value::Decimal(n) => n.truncate_to_i64(),
        _ => None,
    }
}

/// A double truncated to an integer, if it fits in 64 bits.
#[allow(clippy::cast_possible_truncation, reason = "in range: checked first")]
pub(crate) fn truncate(n: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (-LIMIT..LIMIT).contains(&n).then_some(n as i64)
}

//! What mongod's second execution engine (SBE) supports: there some errors have different codes and texts.

use super::accumulator::Accumulator;
use crate::{
    expression::Operator,
    value::{Elements, Value},
};

/// True if a projection only includes fields and computes none.
pub(super) fn is_plain_projection(spec: Value<'_>) -> bool {
    spec.elements().all(|field| {
        let shown = crate::matcher::operands::is_true(field.value());
        let plain = field.value().is_number() || matches!(field.value(), Value::Bool(_));
        plain && (shown || field.key == b"_id")
    })
}

/// True if a join has no pipeline.
pub(super) fn is_plain_join(spec: Value<'_>) -> bool {
    !spec.elements().any(|field| matches!(field.key, b"pipeline" | b"let"))
}

/// True if SBE supports all operators of an expression.
pub(super) fn takes_expression(value: Value<'_>) -> bool {
    match value {
        Value::Array(_) => value.elements().all(|item| takes_expression(item.value())),
        Value::Document(doc) => Elements::of_bytes(doc).all(|field| {
            Operator::named(field.key).is_none_or(|operator| operator.pushed)
                && takes_expression(field.value())
        }),
        _ => true,
    }
}

/// True if SBE supports the accumulators of a group.
pub(super) fn takes_accumulator(value: Value<'_>) -> bool {
    value.elements().all(|field| {
        Accumulator::named(field.key).is_none_or(|accumulator| accumulator.pushed)
            && takes_expression(field.value())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn an_operator_that_is_missing_anywhere_keeps_the_expression_out() {
        let takes = |doc: bson::RawDocumentBuf| takes_expression(Value::Document(doc.as_bytes()));
        assert!(takes(rawdoc! { "$cond": ["$a", { "$add": ["$b", 1] }, null] }));
        assert!(!takes(rawdoc! { "$cond": ["$a", { "$toInt": "$b" }, null] }));
        assert!(takes_accumulator(Value::Document(rawdoc! { "$sum": "$a" }.as_bytes())));
    }
}

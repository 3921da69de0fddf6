//! What mongod's second executor takes: there some failures have codes and words of their own.

use super::accumulator::Accumulator;
use crate::{
    expression::Operator,
    value::{Elements, Value},
};

/// Whether a projection shows fields and computes none.
pub(super) fn is_plain_projection(spec: Value<'_>) -> bool {
    spec.elements().all(|field| {
        let shown = crate::matcher::operands::is_true(field.value());
        let plain = field.value().is_number() || matches!(field.value(), Value::Bool(_));
        plain && (shown || field.key == b"_id")
    })
}

/// Whether a join has no pipeline.
pub(super) fn is_plain_join(spec: Value<'_>) -> bool {
    !spec.elements().any(|field| matches!(field.key, b"pipeline" | b"let"))
}

/// Whether it takes an expression: none of its operators is missing there.
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

/// Whether it takes what a group gathers: an accumulator is not an operator of the same name.
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

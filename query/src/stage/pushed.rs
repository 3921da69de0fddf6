//! What mongod's second executor takes: there some failures have codes and words of their own.

use crate::{
    expression::Operator,
    value::{Element, Elements, Value},
};

/// Whether it takes a stage, and so may take the group after it; `above` what was grouped or joined it takes nothing
/// but the like.
pub(super) fn takes_stage(stage: &Element<'_>, above: bool) -> bool {
    let value = stage.value();
    match stage.key {
        b"$group" => true,
        b"$match" | b"$sort" | b"$limit" | b"$skip" => !above,
        b"$project" if !above => value.elements().all(|field| {
            let shown = crate::matcher::operands::is_true(field.value());
            let plain = field.value().is_number() || matches!(field.value(), Value::Bool(_));
            plain && (shown || field.key == b"_id")
        }),
        b"$lookup" => !value.elements().any(|field| matches!(field.key, b"pipeline" | b"let")),
        _ => false,
    }
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
        !matches!(field.key, b"$median" | b"$percentile") && takes_expression(field.value())
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

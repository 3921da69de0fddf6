//! Argument counts of operators.

use crate::error::QueryError;

/// Refuses a wrong number of arguments.
pub(super) fn check_count(
    name: &str,
    given: usize,
    min: usize,
    max: usize,
) -> Result<(), QueryError> {
    if (min..=max).contains(&given) { Ok(()) } else { Err(miscounted(name, given, min, max)) }
}

pub(super) fn miscounted(name: &str, given: usize, min: usize, max: usize) -> QueryError {
    let (code, many) = match max {
        _ if min == max => (16_020, format!("exactly {min} arguments. {given} were passed in.")),
        usize::MAX => (16_020, format!("at least {min} arguments. {given} were passed in.")),
        _ => (
            28_667,
            format!("at least {min} arguments, and at most {max}, but {given} were passed in."),
        ),
    };
    QueryError::location(code, format!("Expression {name} takes {many}"))
}

/// `$substr` is an alias of `$substrBytes`, which the error names.
pub(super) fn miscounted_substr(_: &str, given: usize, min: usize, max: usize) -> QueryError {
    miscounted("$substrBytes", given, min, max)
}

pub(super) fn miscounted_conversion(name: &str, given: usize, _: usize, _: usize) -> QueryError {
    QueryError::location(50_723, format!("{name} requires a single argument, got {given}"))
}

pub(super) fn miscounted_set_equals(name: &str, given: usize, _: usize, _: usize) -> QueryError {
    QueryError::location(17_045, format!("{name} needs at least two arguments had: {given}"))
}

//! Rules for field names in sorts, projections and expressions.

use protocol::ErrorCode;

use crate::error::QueryError;

/// Checks a dotted path; errors are mongod's.
pub(crate) fn check(path: &[u8]) -> Result<(), QueryError> {
    if path.is_empty() {
        return Err(QueryError::location(
            40_352,
            "FieldPath cannot be constructed with empty string",
        ));
    }
    if path.ends_with(b".") {
        return Err(QueryError::location(40_353, "FieldPath must not end with a '.'."));
    }
    check_length(path, PARTS_MAX)?;
    path.split(|&b| b == b'.').try_for_each(check_name)
}

/// Maximum number of names in a path, equal to the maximum nesting of documents.
const PARTS_MAX: usize = 200;

/// Checks a path relative to the root document, which counts as the first name.
pub(crate) fn check_below_root(path: &[u8]) -> Result<(), QueryError> {
    if !path.ends_with(b".") {
        check_length(path, PARTS_MAX - 1)?;
    }
    check(path)
}

fn check_length(path: &[u8], max: usize) -> Result<(), QueryError> {
    if parts(path) <= max {
        return Ok(());
    }
    Err(QueryError::new(ErrorCode::Overflow, "FieldPath is too long"))
}

/// Maximum number of names in a filter path.
const FILTER_PARTS_MAX: usize = 180;

/// Checks a filter path: any names are allowed, but their number is limited.
pub(crate) fn check_of_filter(path: &[u8]) -> Result<(), QueryError> {
    if parts(path) <= FILTER_PARTS_MAX {
        return Ok(());
    }
    Err(QueryError::location(5_729_100, "FieldPath is too long"))
}

fn parts(path: &[u8]) -> usize {
    path.iter().filter(|&&b| b == b'.').count() + 1
}

/// Checks one component of a path.
pub(crate) fn check_name(name: &[u8]) -> Result<(), QueryError> {
    let hint =
        "Consider using $getField or $setField for a field path with '.' or '$'. :: caused by :: ";
    if name.is_empty() {
        return Err(QueryError::location(
            15_998,
            format!("{hint}FieldPath field names may not be empty strings."),
        ));
    }
    if name.starts_with(b"$") {
        return Err(QueryError::location(
            16_410,
            format!(
                "{hint}FieldPath field names may not start with '$', given '{}'.",
                String::from_utf8_lossy(name)
            ),
        ));
    }
    if name.contains(&0) {
        return Err(QueryError::location(
            16_411,
            format!("{hint}FieldPath field names may not contain '\0'."),
        ));
    }
    Ok(())
}

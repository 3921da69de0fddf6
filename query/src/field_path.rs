//! The rules for names in sorts, projections and expressions.

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
    path.split(|&b| b == b'.').try_for_each(check_name)
}

/// Checks one name between dots.
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

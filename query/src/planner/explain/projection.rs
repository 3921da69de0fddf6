//! Shows projections in mongod's format.

use bson::RawDocumentBuf;

use crate::{
    matcher::operands::is_true,
    value::{Elements, Value},
};

/// mongod's stage name for a projection: a simple one only names top-level fields.
pub(super) fn projection_stage(projection: &RawDocumentBuf) -> &'static str {
    let simple = Elements::new(projection).all(|field| {
        let plain =
            !matches!(field.value(), Value::Document(_) | Value::Array(_) | Value::String(_));
        plain && !field.key.contains(&b'.')
    });
    if simple { "PROJECTION_SIMPLE" } else { "PROJECTION_DEFAULT" }
}

/// True if a projection without computed fields keeps the path.
pub(super) fn keeps(projection: &RawDocumentBuf, path: &[u8]) -> bool {
    let Some(flags) = flags(Value::from(&**projection), &[]) else { return false };
    let id = |named: &[u8]| named == b"_id";
    let mut others = flags.iter().filter(|(named, _)| !id(named)).peekable();
    let includes = match others.peek() {
        Some((_, kept)) => *kept,
        None => flags.iter().any(|(_, kept)| *kept),
    };
    let named = flags.iter().filter(|(named, kept)| *kept == includes || id(named));
    let below = |path: &[u8], of: &[u8]| {
        path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    };
    if id(path) {
        return flags.iter().find(|(named, _)| id(named)).is_none_or(|(_, kept)| *kept);
    }
    match includes {
        true => named.into_iter().any(|(named, _)| !id(named) && below(path, named)),
        false => !flags.iter().any(|(named, _)| below(path, named) || below(named, path)),
    }
}

/// The paths in a projection with whether it keeps them; `None` if it computes anything.
fn flags(projection: Value<'_>, below: &[u8]) -> Option<Vec<(Vec<u8>, bool)>> {
    let mut found = Vec::new();
    for field in projection.elements() {
        let path = match below {
            [] => field.key.to_vec(),
            below => [below, b".", field.key].concat(),
        };
        match field.value() {
            _ if field.key.starts_with(b"$") => return None,
            value @ Value::Document(_) => found.extend(flags(value, &path)?),
            value if value.is_number() || matches!(value, Value::Bool(_)) => {
                found.push((path, is_true(value)));
            }
            _ => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn what_a_projection_keeps() {
        let (some, none) = (rawdoc! { "z": 1, "n.x": 1 }, rawdoc! { "z": 0, "n.x": false });
        for (path, kept) in [("z", true), ("z.a", true), ("n.x", true), ("n", false), ("_id", true)]
        {
            assert_eq!(keeps(&some, path.as_bytes()), kept, "{path}");
        }
        for (path, kept) in [("z", false), ("n", false), ("n.x", false), ("a", true), ("_id", true)]
        {
            assert_eq!(keeps(&none, path.as_bytes()), kept, "{path}");
        }
        assert!(!keeps(&rawdoc! { "_id": 0, "a": 1 }, b"_id"));
        assert!(keeps(&rawdoc! { "_id": true, "n": { "x": true } }, b"n.x"));
        assert!(!keeps(&rawdoc! { "a": 1, "k": { "$add": ["$a", 1] } }, b"a"));
        assert!(!keeps(&rawdoc! { "_id": 1 }, b"a"));
    }
}

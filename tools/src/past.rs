//! Tools that read the past of a running node, through the official driver.
//!
//! ```text
//!   node --- a connection pinned to a moment by its appName ---> at, diff, log, restore, export
//!        --- its oplog ----------------------------------------> log, find-drop
//!        --- hashes of the same moment as the primary's -------> verify
//! ```

mod archive;
pub mod at;
mod changes;
pub mod diff;
pub mod drops;
mod earlier;
pub mod export;
pub mod log;
mod reach;
pub mod recover;
pub mod restore;
pub mod serve;
mod source;
pub mod verify;

pub use source::{Node, Past};
pub(crate) use source::{long, number};

use bson::{Bson, doc};

/// A value as one line of extended JSON.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

/// A value as one line of canonical extended JSON, which preserves the types of numbers.
fn canonical(value: impl Into<Bson>) -> String {
    json(&spelled(value.into()))
}

/// Replaces numbers by documents that name their types.
fn spelled(value: Bson) -> Bson {
    let number = |kind: &str, text: String| Bson::Document(doc! { kind: text });
    match value {
        Bson::Int32(n) => number("$numberInt", n.to_string()),
        Bson::Int64(n) => number("$numberLong", n.to_string()),
        Bson::Double(n) if n.is_infinite() => {
            number("$numberDouble", if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned())
        }
        Bson::Double(n) => number("$numberDouble", format!("{n:?}")),
        Bson::Array(values) => Bson::Array(values.into_iter().map(spelled).collect()),
        Bson::Document(doc) => {
            Bson::Document(doc.into_iter().map(|(name, value)| (name, spelled(value))).collect())
        }
        other => other,
    }
}

/// Parses extended JSON.
fn from_json(text: &str) -> anyhow::Result<Bson> {
    Ok(serde_json::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_json_keeps_the_types_of_numbers_and_the_order_of_fields() {
        let doc = doc! { "b": 1, "a": [1_i64, 1.0, -0.5], "n": f64::NAN, "i": f64::NEG_INFINITY };
        let text = canonical(doc.clone());
        let start = r#"{"b":{"$numberInt":"1"},"a":[{"$numberLong":"1"},{"$numberDouble":"1.0"}"#;
        assert!(text.starts_with(start), "{text}");
        let back = from_json(&text).unwrap();
        assert_eq!(canonical(back), text);
    }
}

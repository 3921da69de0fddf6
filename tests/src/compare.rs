//! Compares two replies.
//!
//! The real mongod is the oracle: our reply must equal its reply, except for values that always differ (clocks, ids,
//! addresses). Every other accepted difference is listed in `known_differences.toml` with its reason. A listed
//! difference that no longer occurs also fails, so that the list stays true.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use bson::{Bson, Document};
use serde::Deserialize;

/// One place where two replies differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Dotted path of the field; array elements by index.
    pub path: String,
    /// mongod's value, if it has the field.
    pub want: Option<Bson>,
    /// Our value.
    pub got: Option<Bson>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Bson>| match value {
            Some(value) => format!("{value:?}"),
            None => "nothing".to_owned(),
        };
        write!(f, "{}: expected {}, got {}", self.path, show(&self.want), show(&self.got))
    }
}

/// All differences except those of volatile fields. Types matter: 1 and 1.0 are different.
pub fn differences(want: &Document, got: &Document) -> Vec<Difference> {
    let mut found = Vec::new();
    compare_documents("", want, got, true, &mut found);
    found
}

/// All differences of two values, including volatile fields.
pub fn exact_differences(want: &Bson, got: &Bson) -> Vec<Difference> {
    let mut found = Vec::new();
    compare_values("", want, got, false, &mut found);
    found
}

/// Accepted differences by test case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownDifferences {
    #[serde(default, rename = "difference")]
    entries: Vec<Known>,
    /// Read by [`crate::differential::accepted`].
    #[serde(default, rename = "generated")]
    _generated: Vec<serde::de::IgnoredAny>,
    #[serde(default, rename = "generated_case")]
    _generated_case: Vec<serde::de::IgnoredAny>,
}

/// One accepted difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    case: String,
    path: String,
    reason: String,
}

impl KnownDifferences {
    /// Reads the list of this crate.
    pub fn load() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("known_differences.toml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads a list. An entry without a reason is refused.
    pub fn parse(text: &str) -> Result<Self> {
        let known: Self = toml::from_str(text)?;
        for entry in &known.entries {
            if entry.reason.trim().is_empty() {
                bail!("{} {}: a known difference needs a reason", entry.case, entry.path);
            }
        }
        Ok(known)
    }

    /// Fails on a difference that is not listed for this case, and on a listed one that is gone.
    pub fn check(&self, case: &str, want: &Document, got: &Document) -> Result<()> {
        let found = differences(want, got);
        let listed: BTreeSet<&str> = self
            .entries
            .iter()
            .filter(|entry| entry.case == case)
            .map(|entry| entry.path.as_str())
            .collect();
        let mut complaints: Vec<String> = found
            .iter()
            .filter(|difference| !listed.contains(difference.path.as_str()))
            .map(ToString::to_string)
            .collect();
        let gone = listed.iter().filter(|path| !found.iter().any(|d| d.path == **path));
        complaints.extend(gone.map(|path| format!("{path}: is equal now: strike it off the list")));
        if complaints.is_empty() {
            return Ok(());
        }
        bail!("{case}:\n  {}", complaints.join("\n  "))
    }
}

fn compare_documents(
    path: &str,
    want: &Document,
    got: &Document,
    lenient: bool,
    found: &mut Vec<Difference>,
) {
    let counts = |name: &str| !(lenient && is_volatile(name));
    for (name, want) in want.iter().filter(|(name, _)| counts(name)) {
        let path = join(path, name);
        match got.get(name) {
            Some(got) => compare_values(&path, want, got, lenient, found),
            None => found.push(Difference { path, want: Some(want.clone()), got: None }),
        }
    }
    let extra = got.iter().filter(|(name, _)| counts(name) && !want.contains_key(name));
    for (name, got) in extra {
        found.push(Difference { path: join(path, name), want: None, got: Some(got.clone()) });
    }
}

fn compare_values(path: &str, want: &Bson, got: &Bson, lenient: bool, found: &mut Vec<Difference>) {
    match (want, got) {
        (Bson::Document(want), Bson::Document(got)) => {
            compare_documents(path, want, got, lenient, found);
        }
        (Bson::Array(want), Bson::Array(got)) if want.len() == got.len() => {
            for (i, (want, got)) in want.iter().zip(got).enumerate() {
                compare_values(&join(path, &i.to_string()), want, got, lenient, found);
            }
        }
        _ if want == got => {}
        _ => found.push(Difference {
            path: path.to_owned(),
            want: Some(want.clone()),
            got: Some(got.clone()),
        }),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// True for fields whose values differ between any two servers.
fn is_volatile(name: &str) -> bool {
    VOLATILE.contains(&name)
}

const VOLATILE: [&str; 13] = [
    "$clusterTime",
    "operationTime",
    "topologyVersion",
    "connectionId",
    "localTime",
    "host",
    "me",
    "lastWrite",
    "timeMillis",
    "pid",
    "uptime",
    "uptimeMillis",
    "uuid",
];

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn paths(want: &Document, got: &Document) -> Vec<String> {
        differences(want, got).into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn values_types_missing_and_extra_fields_count_volatile_ones_do_not() {
        let want = doc! { "ok": 1.0, "a": { "b": [1, 2] }, "gone": 1, "localTime": 1 };
        let got = doc! { "ok": 1, "a": { "b": [1, 3] }, "more": 1, "localTime": 2 };
        assert_eq!(paths(&want, &got), ["ok", "a.b.1", "gone", "more"]);
        assert!(paths(&want, &want).is_empty());
    }

    #[test]
    fn arrays_of_different_length_differ_as_a_whole() {
        assert_eq!(paths(&doc! { "a": [1] }, &doc! { "a": [1, 2] }), ["a"]);
    }

    #[test]
    fn a_listed_difference_is_accepted_and_must_exist() {
        let known = KnownDifferences::parse(
            "[[difference]]\ncase = \"hello\"\npath = \"a\"\nreason = \"we count otherwise\"\n",
        )
        .unwrap();
        known.check("hello", &doc! { "a": 1 }, &doc! { "a": 2 }).unwrap();
        let unlisted = known.check("ping", &doc! { "a": 1 }, &doc! { "a": 2 }).unwrap_err();
        assert!(unlisted.to_string().contains("a: expected"), "{unlisted}");
        let gone = known.check("hello", &doc! { "a": 1 }, &doc! { "a": 1 }).unwrap_err();
        assert!(gone.to_string().contains("strike it off"), "{gone}");
    }

    #[test]
    fn a_reason_is_required() {
        let text = "[[difference]]\ncase = \"hello\"\npath = \"a\"\nreason = \" \"\n";
        assert!(KnownDifferences::parse(text).is_err());
    }

    #[test]
    fn the_list_of_this_crate_can_be_read() {
        KnownDifferences::load().unwrap();
    }
}

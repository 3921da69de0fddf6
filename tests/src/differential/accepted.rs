//! Accepted differences, each with its reason.
//!
//! A `[[generated]]` entry of `known_differences.toml` has an `example`, which shows the difference on the
//! collections of [`super::data`], and patterns that other cases share with it: words of the command, words of
//! mongod's answer. If the answers to an example agree, the run fails and the entry must be removed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bson::Document;
use serde::Deserialize;

use super::judge::Answer;
use super::{Case, Order};

#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    generated: Vec<Accepted>,
    #[serde(default)]
    generated_case: Vec<AcceptedCases>,
}

/// Accepted single cases of one seed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedCases {
    seed: u64,
    cases: Vec<u64>,
    reason: String,
}

impl AcceptedCases {
    /// The numbers of this seed's cases that may differ.
    pub fn load(seed: u64) -> Result<BTreeSet<u64>> {
        let lists = File::load()?.generated_case;
        for list in &lists {
            ensure!(!list.reason.trim().is_empty(), "{:?}: a gap needs a reason", list.cases);
        }
        Ok(lists.into_iter().filter(|list| list.seed == seed).flat_map(|list| list.cases).collect())
    }
}

impl File {
    fn load() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("known_differences.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }
}

/// One accepted difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// A command in JSON that shows the difference.
    pub example: String,
    /// Words that must all occur in the command of such a case.
    #[serde(default)]
    command_has: Vec<String>,
    /// The answers differ only in the last digits of decimals.
    #[serde(default)]
    last_digits: bool,
    /// Words that must occur in one of the answers, if it is an error.
    #[serde(default)]
    answer_has: Vec<String>,
    /// Why the difference is accepted.
    pub reason: String,
}

impl Accepted {
    /// Loads the list of this crate.
    pub fn load() -> Result<Vec<Self>> {
        let generated = File::load()?.generated;
        for entry in &generated {
            ensure!(!entry.reason.trim().is_empty(), "{}: a gap needs a reason", entry.example);
            let some = !entry.command_has.is_empty() || !entry.answer_has.is_empty();
            ensure!(some, "{}: say what such cases have in common", entry.example);
        }
        Ok(generated)
    }

    /// The example as a case.
    pub fn case(&self) -> Result<Case> {
        let json: serde_json::Value =
            serde_json::from_str(&self.example).with_context(|| self.example.clone())?;
        let command = bson::serialize_to_document(&json)?;
        Ok(Case { command, order: Order::Exact })
    }

    /// True if this entry covers the case.
    pub fn covers(&self, command: &Document, want: &Answer, got: &Answer) -> bool {
        let command = command.to_string();
        let text = |answer: &Answer| match answer {
            Answer::Refused { text, .. } => text.clone(),
            Answer::Documents(_) | Answer::Unreadable => String::new(),
        };
        let answers = format!("{}\n{}", text(want), text(got));
        let alike = || {
            let order = Order::Set;
            want.without_last_digits().agrees(&got.without_last_digits(), order)
        };
        (!self.last_digits || alike())
            && self.command_has.iter().all(|word| command.contains(word.as_str()))
            && self.answer_has.iter().all(|word| answers.contains(word.as_str()))
    }
}

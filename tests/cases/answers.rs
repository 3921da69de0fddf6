//! Runs commands whose replies once differed from mongod's (`tests/answers/*.json`) on a primary and on our node.
//!
//! A file contains, in extended JSON, the commands that prepare the data on the primary and the commands to compare.
//! `{"set": command}` marks a command whose results may come in any order.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use bson::{Bson, Document};
use tests::differential::judge::{Answer, parting};
use tests::differential::{Case, Order};
use tests::repl_set::ReplSet;

const DATABASE: &str = "answers";

#[test]
fn files_of_commands_are_answered_as_by_the_primary() -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("answers");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
        files.push(entry?.path());
    }
    files.sort();
    ensure!(!files.is_empty(), "no files in {}", dir.display());
    let set = ReplSet::named("answers").ours_hidden(1).start()?;
    let (primary, ours) = (set.primary()?, set.ours()?);
    let mut differing = Vec::new();
    for file in &files {
        let about = || format!("{}", file.display());
        let (setup, asked) = read(file).with_context(about)?;
        for command in setup {
            primary.run(DATABASE, command).with_context(about)?;
        }
        set.await_caught_up()?;
        for case in asked {
            let want = Answer::of(primary.client(), DATABASE, &case).with_context(about)?;
            let got = Answer::of(ours.client(), DATABASE, &case).with_context(about)?;
            if !want.agrees(&got, case.order) {
                let parting = parting(&want, &got, case.order);
                differing.push(format!("{}\n    {}\n{parting}", file.display(), case.command));
            }
        }
    }
    ensure!(differing.is_empty(), "{} differ\n{}", differing.len(), differing.join("\n"));
    set.finish()
}

/// Reads a file: the commands for the primary and the cases to compare.
fn read(file: &Path) -> Result<(Vec<Document>, Vec<Case>)> {
    let text = std::fs::read_to_string(file)?;
    let Bson::Document(whole) = serde_json::from_str(&text)? else {
        return Err(anyhow!("not an object"));
    };
    let list = |name: &str| -> Result<Vec<Document>> {
        let items = whole.get_array(name)?.iter();
        items.map(|item| item.as_document().cloned().context("not a command")).collect()
    };
    let asked = list("ask")?.into_iter().map(|command| match command.get_document("set") {
        Ok(inner) => Case { command: inner.clone(), order: Order::Set },
        Err(_) => Case { command, order: Order::Exact },
    });
    Ok((list("setup")?, asked.collect()))
}

//! Compares the output of a tool with a golden file. `UPDATE=1` rewrites the files.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// Compares the output with `tests/golden/NAME.txt`, ignoring values that differ from run to run.
pub fn check(name: &str, printed: &str) -> Result<()> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.txt"));
    let got = steady(printed);
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(&path, got).with_context(|| format!("write {}", path.display()));
    }
    let want = std::fs::read_to_string(&path)
        .with_context(|| format!("read {}; UPDATE=1 makes it", path.display()))?;
    ensure!(got == want, "{name}: expected\n{want}\ngot\n{got}\nUPDATE=1 takes this as right");
    Ok(())
}

/// Replaces times, timestamps and ports by placeholders.
fn steady(printed: &str) -> String {
    let mut steady = String::new();
    let mut rest = printed;
    while let Some(next) = rest.chars().next() {
        let found = MARKS.iter().find_map(|(mark, name)| Some((matches(rest, mark)?, name)));
        let (len, text) = match found {
            Some((len, name)) => (len, (*name).to_owned()),
            None => (next.len_utf8(), next.to_string()),
        };
        steady.push_str(&text);
        rest = rest.get(len..).unwrap_or_default();
    }
    // A short operation may begin in one second and end in the next.
    steady.replace("TIME to TIME", "TIME")
}

/// Patterns and their placeholders. `#` is a digit, `*` is one or more digits.
const MARKS: [(&str, &str); 5] = [
    ("20##-##-##T##:##:##Z", "TIME"),
    ("Timestamp(*,*)", "Timestamp(T)"),
    ("Timestamp(*, *)", "Timestamp(T)"),
    ("127.0.0.1:*", "127.0.0.1:PORT"),
    ("{\"t\":*,\"i\":*}", "{T}"),
];

/// The length of the text's beginning that matches the pattern.
fn matches(text: &str, mark: &str) -> Option<usize> {
    let mut rest = text;
    for wanted in mark.chars() {
        let is_digit = |c: char| c.is_ascii_digit();
        rest = match wanted {
            '#' => rest.strip_prefix(is_digit)?,
            '*' => rest.strip_prefix(is_digit)?.trim_start_matches(is_digit),
            other => rest.strip_prefix(other)?,
        };
    }
    Some(text.len() - rest.len())
}

//! What a tool prints, beside the file that says what it should print. `UPDATE=1` writes the files anew.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// Compares what was printed, without what differs from run to run, with `tests/golden/NAME.txt`.
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

/// Times, positions and ports by their kind.
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
    // What takes a moment may begin in one second and end in the next.
    steady.replace("TIME to TIME", "TIME")
}

/// `#` is a digit, `*` any number of digits; everything else is itself.
const MARKS: [(&str, &str); 5] = [
    ("20##-##-##T##:##:##Z", "TIME"),
    ("Timestamp(*,*)", "Timestamp(T)"),
    ("Timestamp(*, *)", "Timestamp(T)"),
    ("127.0.0.1:*", "127.0.0.1:PORT"),
    ("{\"t\":*,\"i\":*}", "{T}"),
];

/// How much of the text's beginning looks like this.
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

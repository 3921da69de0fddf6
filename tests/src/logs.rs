//! Reads servers' logs.
//!
//! When a test fails, the tail of each log is printed. At the end of a successful test our own log is checked: an
//! unexpected line of severity error or fatal, or a panic, fails the test.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The last lines of a log, each truncated to a readable length.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) => return format!("(no log at {}: {e})", path.display()),
    };
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    let shown: Vec<String> = all.iter().skip(from).map(|line| shorten(line)).collect();
    shown.join("\n")
}

/// Fails if our log has an error that contains none of the `expected` texts.
pub fn assert_no_unexpected_line(path: &Path, expected: &[String]) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let bad: Vec<String> = text
        .lines()
        .filter(|line| is_error(line) && !expected.iter().any(|e| line.contains(e.as_str())))
        .map(shorten)
        .collect();
    if bad.is_empty() {
        return Ok(());
    }
    bail!("unexpected lines in {}:\n{}", path.display(), bad.join("\n"))
}

/// True for a JSON line of severity E or F in mongod's format, or a Rust panic message.
fn is_error(line: &str) -> bool {
    if line.contains("panicked at") {
        return true;
    }
    let Ok(Value::Object(entry)) = serde_json::from_str::<Value>(line) else { return false };
    matches!(entry.get("s").and_then(Value::as_str), Some("E" | "F"))
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(LINE_MAX) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or(line)),
        None => line.to_owned(),
    }
}

const LINE_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_panics_count_unless_expected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let lines = [
            r#"{"t":{},"s":"I","c":"REPL","msg":"fine"}"#,
            r#"{"t":{},"s":"E","c":"REPL","msg":"source is gone"}"#,
            "thread 'main' panicked at src/main.rs:1:1:",
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let error = assert_no_unexpected_line(&path, &[]).unwrap_err().to_string();
        assert!(error.contains("source is gone") && error.contains("panicked"), "{error}");
        assert!(!error.contains("fine"), "{error}");
        let expected = ["source is gone".to_owned(), "panicked".to_owned()];
        assert_no_unexpected_line(&path, &expected).unwrap();
    }

    #[test]
    fn the_tail_is_cut_in_both_directions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, format!("one\ntwo\n{}\n", "x".repeat(2 * LINE_MAX))).unwrap();
        let tail = tail(&path, 2);
        assert!(tail.starts_with("two\nx") && tail.ends_with('…'), "{tail}");
    }
}

//! The house rules that no compiler checks: the code map is true, crates depend on each other as drawn, pure code stays
//! pure, nothing public is dead, no dependency is unused or under an unknown licence, lines and files are short.
//!
//! Each rule prints every place that breaks it, with what to do.

mod code_map;
mod dependencies;
mod sources;
mod style;

/// Fails with all places at once.
#[track_caller]
fn none(broken: Vec<String>, remedy: &str) {
    assert!(broken.is_empty(), "{remedy}:\n  {}\n", broken.join("\n  "));
}

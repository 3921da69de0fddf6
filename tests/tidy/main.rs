//! House rules that the compiler does not check: the code map is true, crates depend on each other as drawn, pure
//! code stays pure, no public item is dead, no dependency is unused or under an unknown licence, lines and files are
//! short.
//!
//! Each rule prints every violation and what to do about it.

mod code_map;
mod dependencies;
mod sources;
mod style;

/// Fails with all violations at once.
#[track_caller]
fn none(broken: Vec<String>, remedy: &str) {
    assert!(broken.is_empty(), "{remedy}:\n  {}\n", broken.join("\n  "));
}

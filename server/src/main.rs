//! The `understudy` server.
fn main() {}

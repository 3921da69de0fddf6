//! `understudy`: see the library for everything.

use std::process::ExitCode;

fn main() -> ExitCode {
    server::run(&std::env::args().collect::<Vec<_>>())
}

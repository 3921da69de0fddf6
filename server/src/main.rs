//! `understudy`: see the library for everything.

use std::process::ExitCode;

/// The system's allocator keeps what initial syncs and catch-ups once needed; this one gives it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    server::run(&std::env::args().collect::<Vec<_>>())
}

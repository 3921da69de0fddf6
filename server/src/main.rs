//! The program `understudy`; everything is in the library.

use std::process::ExitCode;

/// Unlike the system's allocator, this one returns the memory that initial syncs and catch-ups once needed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    server::run(&std::env::args().collect::<Vec<_>>())
}

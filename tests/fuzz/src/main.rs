//! Runs libFuzzer on the target that the variable `FUZZ_TARGET` names. `tests/fuzz/run` builds and starts it.
#![no_main]

use std::sync::OnceLock;

use fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name} names no target"))
    });
    (chosen.run)(data);
});

//! Decodes arbitrary bytes as rows of the store: each is accepted or refused without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| storage::fuzzing::rows(data));

//! KeyStrings sort as their values do.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| storage::fuzzing::order(data));

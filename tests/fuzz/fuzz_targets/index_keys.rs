//! Generates the keys of a document for an index of any kind.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| storage::fuzzing::index_keys(data));

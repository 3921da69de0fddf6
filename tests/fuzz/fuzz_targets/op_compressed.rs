//! Parses arbitrary bytes as the body of an OP_COMPRESSED.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::message(protocol::header::op_code::COMPRESSED, data));

//! Logins on one connection: correct, altered, replayed and invented messages in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzz::sasl::walk(data);
});

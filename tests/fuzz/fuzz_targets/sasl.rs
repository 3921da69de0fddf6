//! Logins on one connection, in any order of honest, altered, replayed and made-up messages.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzz::sasl::walk(data);
});

//! Decompresses arbitrary bytes with zlib; the first three bytes are the claimed length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::Compressor;

fuzz_target!(|data: &[u8]| {
    let Some(([a, b, c], packed)) = data.split_first_chunk() else { return };
    fuzz::envelope(Compressor::Zlib, i32::from_le_bytes([*a, *b, *c, 0]), packed);
});

//! A byte stream fed in pieces; the first byte gives their length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::Framing;

fuzz_target!(|data: &[u8]| {
    let Some((step, stream)) = data.split_first() else { return };
    let mut framing = Framing::new();
    for piece in stream.chunks(usize::from(*step) + 1) {
        framing.read_buf().extend_from_slice(piece);
        loop {
            match framing.next_frame() {
                Ok(Some(frame)) => fuzz::examine(frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});

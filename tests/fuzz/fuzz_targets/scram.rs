//! A SCRAM conversation: the client's two messages, sent to a server that knows the user.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::scram::{Credentials, Mechanism, ScramClient, ServerChallenge};

fuzz_target!(|data: &[u8]| {
    // The first byte gives the length of the first message.
    let Some((&at, messages)) = data.split_first() else { return };
    let (first, last) = messages.split_at(messages.len().min(usize::from(at)));
    let mechanism = Mechanism::ScramSha256;
    let credentials = Credentials {
        mechanism,
        salt: vec![1; 28],
        iterations: 15_000,
        stored_key: vec![2; 32],
        server_key: vec![3; 32],
    };
    if let Ok(challenge) = ServerChallenge::read(first) {
        let (_, server) = challenge.challenge(credentials, Vec::new(), "nonce");
        assert!(server.finish(last).is_err(), "nobody has the password");
    }
    let mut client = ScramClient::new(mechanism, "user", "password", "nonce").unwrap();
    // The client accepts many iterations, up to a limit; the fuzzer skips such messages to save time.
    if !first.windows(2).any(|pair| pair == b"i=") {
        let _ = client.step(first);
    }
});

//! Simulates a connection whose login messages are chosen by the input bytes: in any order, correct, altered,
//! replayed or invented. A login must succeed only with the correct proof for the current conversation, completed to
//! its end.

use std::{
    slice::from_ref,
    sync::{Arc, LazyLock},
};

use protocol::scram::{
    ClientStep, Credentials, Mechanism, SaltedPassword, ScramClient,
    conversation::{Begun, Conversation, Step},
};

/// Result of one run: how many logins were started, and how many succeeded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walked {
    /// Logins whose first message was parsed.
    pub begun: usize,
    /// Logins that succeeded.
    pub let_in: usize,
}

const MECHANISMS: [Mechanism; 2] = [Mechanism::ScramSha1, Mechanism::ScramSha256];
const USER: &str = "us,er=x";
const PASSWORD: &str = "password";

/// The server's credentials, and the client's salted password, computed only once.
struct Secret {
    credentials: Credentials,
    salted: Option<Arc<SaltedPassword>>,
}

static SECRETS: LazyLock<Vec<Secret>> = LazyLock::new(|| {
    let secret = |mechanism| {
        let credentials =
            Credentials::derive(mechanism, USER, PASSWORD, b"0123456789abcdef", 4096).unwrap();
        let mut client = ScramClient::new(mechanism, USER, PASSWORD, "nonce").unwrap();
        let begun = Begun::read(mechanism, true, &client.first()).unwrap();
        let Some(Step::Continue(challenge, _)) = begun.challenge(from_ref(&credentials), "s")
        else {
            panic!("there are credentials");
        };
        client.step(&challenge).unwrap();
        Secret { credentials, salted: client.salted() }
    };
    MECHANISMS.into_iter().map(secret).collect()
});

/// The server's side of a connection, and the message that a correct client would send next.
#[derive(Default)]
struct Connection {
    talk: Option<Conversation>,
    proof: Vec<u8>,
    skip_empty: bool,
    /// The proof of this conversation was accepted; only the final empty message is missing.
    proven: bool,
    old_proofs: Vec<Vec<u8>>,
    walked: Walked,
}

/// Runs the steps that the bytes choose.
pub fn walk(bytes: &[u8]) -> Walked {
    let mut bytes = Bytes(bytes);
    let mut connection = Connection::default();
    while let Some(what) = bytes.next() {
        match what % 8 {
            0 | 1 => connection.begin_honestly(what & 0x10 != 0, what & 0x20 != 0),
            2 => {
                connection.begin(what & 0x10 != 0, what & 0x20 != 0, bytes.some());
            }
            3 => {
                let proof = connection.proof.clone();
                connection.go_on(&proof);
            }
            4 => {
                let mut altered = connection.proof.clone();
                let at = usize::from(bytes.next().unwrap_or(0));
                if let Some(byte) = altered.get_mut(at) {
                    *byte ^= 1 << (what >> 5);
                }
                connection.go_on(&altered);
            }
            5 => {
                let old = connection.old_proofs.get(usize::from(what >> 3)).cloned();
                connection.go_on(&old.unwrap_or_default());
            }
            6 => connection.go_on(bytes.some()),
            _ => connection.go_on(b""),
        }
    }
    connection.walked
}

impl Connection {
    fn begin_honestly(&mut self, newer: bool, skip_empty: bool) {
        let which = usize::from(newer);
        let Secret { salted, .. } = &SECRETS[which];
        let nonce = format!("client{}", self.walked.begun);
        let client = ScramClient::new(MECHANISMS[which], USER, PASSWORD, &nonce).unwrap();
        let mut client = client.remembering(salted.clone());
        let challenge = self.begin(newer, skip_empty, &client.first());
        let challenge = challenge.expect("an honest first message is taken");
        match client.step(&challenge) {
            Ok(ClientStep::Send(proof)) => self.proof = proof,
            other => panic!("the client does not answer the challenge: {other:?}"),
        }
    }

    /// Starts a login and returns the challenge, if there is one. A login in progress is abandoned.
    fn begin(&mut self, newer: bool, skip_empty: bool, first: &[u8]) -> Option<Vec<u8>> {
        let which = usize::from(newer);
        self.old_proofs.push(std::mem::take(&mut self.proof));
        (self.talk, self.proven, self.skip_empty) = (None, false, skip_empty);
        let begun = Begun::read(MECHANISMS[which], skip_empty, first).ok()?;
        if begun.user() != USER {
            return None;
        }
        self.walked.begun += 1;
        let nonce = format!("server{}", self.walked.begun);
        match begun.challenge(from_ref(&SECRETS[which].credentials), &nonce) {
            Some(Step::Continue(challenge, talk)) => {
                self.talk = Some(talk);
                Some(challenge)
            }
            other => {
                panic!("somebody is let in without a proof, or there is no challenge: {other:?}")
            }
        }
    }

    fn go_on(&mut self, message: &[u8]) {
        let Some(talk) = self.talk.take() else { return };
        let honest = !self.proof.is_empty() && message == self.proof && !self.proven;
        let last = self.proven && message.is_empty();
        match talk.step(message) {
            Ok(Step::Done(_)) => {
                assert!(honest && self.skip_empty || last, "let in by {message:?}");
                self.proven = false;
                self.walked.let_in += 1;
            }
            Ok(Step::Continue(_, talk)) => {
                assert!(honest && !self.skip_empty, "taken for a proof: {message:?}");
                (self.talk, self.proven) = (Some(talk), true);
            }
            Err(_) => {
                assert!(!honest && !last, "an honest message was refused: {message:?}");
                self.proven = false;
            }
        }
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes as many bytes as the next byte says.
    fn some(&mut self) -> &'a [u8] {
        let len = self.next().map_or(0, usize::from).min(self.0.len());
        let (some, rest) = self.0.split_at(len);
        self.0 = rest;
        some
    }
}

//! A SASL conversation on the server, message by message, without a clock, a store or a socket.
//!
//! ```text
//!   begin(first message) --> the user's name --> challenge(credentials) --> finish(proof) --> [empty] --> done
//! ```
//! S1 The first wrong message ends a conversation: the client must start a new one.
//! S2 Nobody is authenticated before the last message of the conversation.
//! S3 The state of a conversation is bounded, whatever the client sends.

use super::{Credentials, Mechanism, ScramError, ScramServer, ServerChallenge};

/// A conversation whose first message was parsed.
#[derive(Debug)]
pub struct Begun {
    mechanism: Mechanism,
    skip_empty: bool,
    challenge: ServerChallenge,
}

/// A conversation that waits for the client's next message.
#[derive(Debug)]
pub struct Conversation {
    mechanism: Mechanism,
    skip_empty: bool,
    waits_for: WaitsFor,
}

#[derive(Debug)]
enum WaitsFor {
    Proof(Box<ScramServer>),
    /// The proof was correct; older clients send an empty message before the end.
    Empty,
}

/// The result of processing a message.
#[derive(Debug)]
pub enum Step {
    /// Send this and wait for another message.
    Continue(Vec<u8>, Conversation),
    /// Send this; the client is authenticated.
    Done(Vec<u8>),
}

/// User names and nonces are some dozens of bytes long; a longer message cannot be a login (S3).
pub const MESSAGE_LEN_MAX: usize = 16 * 1024;

impl Begun {
    /// Parses the first message.
    pub fn read(mechanism: Mechanism, skip_empty: bool, first: &[u8]) -> Result<Self, ScramError> {
        if first.len() > MESSAGE_LEN_MAX {
            return Err(ScramError::Malformed("client-first"));
        }
        let challenge = ServerChallenge::read(first)?;
        Ok(Self { mechanism, skip_empty, challenge })
    }

    /// The user name.
    pub fn user(&self) -> &str {
        self.challenge.user()
    }

    /// Makes the challenge from the credentials for this mechanism. The first one's salt is sent; a proof by any of
    /// them is accepted.
    pub fn challenge(self, credentials: &[Credentials], nonce: &str) -> Option<Step> {
        let Self { mechanism, skip_empty, challenge } = self;
        let mut fitting = credentials.iter().filter(|own| own.mechanism == mechanism).cloned();
        let first = fitting.next()?;
        let further = fitting
            .filter(|other| other.salt == first.salt && other.iterations == first.iterations)
            .collect();
        let (message, server) = challenge.challenge(first, further, nonce);
        let waits_for = WaitsFor::Proof(Box::new(server));
        Some(Step::Continue(message, Conversation { mechanism, skip_empty, waits_for }))
    }
}

impl Conversation {
    /// The mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Processes the client's next message.
    pub fn step(self, message: &[u8]) -> Result<Step, ScramError> {
        let Self { mechanism, skip_empty, waits_for } = self;
        match waits_for {
            WaitsFor::Proof(server) => {
                let last = server.finish(message)?;
                if skip_empty {
                    return Ok(Step::Done(last));
                }
                let next = Self { mechanism, skip_empty, waits_for: WaitsFor::Empty };
                Ok(Step::Continue(last, next))
            }
            WaitsFor::Empty if message.is_empty() => Ok(Step::Done(Vec::new())),
            WaitsFor::Empty => Err(ScramError::Malformed("after the last")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ClientStep, ScramClient},
        *,
    };

    const MECHANISM: Mechanism = Mechanism::ScramSha256;

    fn credentials(password: &str) -> Credentials {
        Credentials::derive(MECHANISM, "u", password, b"0123456789abcdef", 4096).unwrap()
    }

    fn begun(client: &ScramClient, skip_empty: bool) -> (Vec<u8>, Conversation) {
        let begun = Begun::read(MECHANISM, skip_empty, &client.first()).unwrap();
        assert_eq!(begun.user(), "u");
        match begun.challenge(&[credentials("p")], "server").unwrap() {
            Step::Continue(message, conversation) => (message, conversation),
            Step::Done(_) => panic!("nothing is proven yet"),
        }
    }

    fn proof(client: &mut ScramClient, challenge: &[u8]) -> Vec<u8> {
        match client.step(challenge).unwrap() {
            ClientStep::Send(proof) => proof,
            ClientStep::Done => panic!("the client has a proof to send"),
        }
    }

    #[test]
    fn an_empty_message_ends_it_unless_it_is_skipped() {
        for skip_empty in [true, false] {
            let mut client = ScramClient::new(MECHANISM, "u", "p", "nonce").unwrap();
            let (challenge, conversation) = begun(&client, skip_empty);
            let proof = proof(&mut client, &challenge);
            match (conversation.step(&proof).unwrap(), skip_empty) {
                (Step::Done(last), true) => assert_eq!(client.step(&last), Ok(ClientStep::Done)),
                (Step::Continue(last, conversation), false) => {
                    assert_eq!(client.step(&last), Ok(ClientStep::Done));
                    assert!(
                        matches!(conversation.step(b""), Ok(Step::Done(last)) if last.is_empty())
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_proof_is_good_for_its_own_conversation_alone() {
        let mut client = ScramClient::new(MECHANISM, "u", "p", "nonce").unwrap();
        let (challenge, _) = begun(&client, true);
        let proof = proof(&mut client, &challenge);
        let begun = Begun::read(MECHANISM, true, &client.first()).unwrap();
        let Some(Step::Continue(_, other)) = begun.challenge(&[credentials("p")], "another") else {
            panic!("a challenge")
        };
        assert!(other.step(&proof).is_err());
    }

    #[test]
    fn a_first_message_without_end_is_refused() {
        let first = |len: usize| {
            let mut first = b"n,,n=u,r=".to_vec();
            first.resize(len, b'x');
            Begun::read(MECHANISM, true, &first).is_ok()
        };
        assert!(first(MESSAGE_LEN_MAX) && !first(MESSAGE_LEN_MAX + 1));
    }

    #[test]
    fn a_mechanism_without_credentials_has_no_challenge() {
        let begun = Begun::read(Mechanism::ScramSha1, true, b"n,,n=u,r=nonce").unwrap();
        assert!(begun.challenge(&[credentials("p")], "server").is_none());
    }
}

//! The side that proves it knows the password first.

use std::fmt;

use super::{BASE64, Engine, Mechanism, ScramError, attribute, same, xor};

/// A conversation as the client has it.
pub struct ScramClient {
    mechanism: Mechanism,
    password: String,
    nonce: String,
    first_bare: String,
    expected_signature: Option<Vec<u8>>,
}

/// What the client does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientStep {
    /// Sends this.
    Send(Vec<u8>),
    /// Trusts the server; nothing more is to be sent.
    Done,
}

impl ScramClient {
    /// `nonce` must be random and printable, without commas.
    pub fn new(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        nonce: &str,
    ) -> Result<Self, ScramError> {
        let name = user.replace('=', "=3D").replace(',', "=2C");
        Ok(Self {
            mechanism,
            password: mechanism.prepare(user, password)?.into_owned(),
            nonce: nonce.to_owned(),
            first_bare: format!("n={name},r={nonce}"),
            expected_signature: None,
        })
    }

    /// The mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The first message.
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    /// Answers a message of the server.
    pub fn step(&mut self, server: &[u8]) -> Result<ClientStep, ScramError> {
        let server = str::from_utf8(server).map_err(|_| ScramError::Malformed("of the server"))?;
        match &self.expected_signature {
            None => self.prove(server).map(ClientStep::Send),
            Some(expected) => {
                if attribute(server, "e").is_some() {
                    return Err(ScramError::Refused);
                }
                let signature = attribute(server, "v").and_then(|v| BASE64.decode(v).ok());
                match signature.is_some_and(|signature| same(&signature, expected)) {
                    true => Ok(ClientStep::Done),
                    false => Err(ScramError::Signature),
                }
            }
        }
    }

    fn prove(&mut self, server_first: &str) -> Result<Vec<u8>, ScramError> {
        let malformed = ScramError::Malformed("server-first");
        let nonce = attribute(server_first, "r").ok_or(malformed)?;
        let salt = attribute(server_first, "s").and_then(|salt| BASE64.decode(salt).ok());
        let iterations = attribute(server_first, "i").and_then(|i| i.parse::<u32>().ok());
        let (salt, iterations) = (salt.ok_or(malformed)?, iterations.ok_or(malformed)?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramError::Nonce);
        }
        if iterations < Mechanism::ITERATIONS_MIN {
            return Err(ScramError::Iterations(iterations));
        }
        let mechanism = self.mechanism;
        let salted = mechanism.salted(&self.password, &salt, iterations);
        let client_key = mechanism.hmac(&salted, b"Client Key");
        let server_key = mechanism.hmac(&salted, b"Server Key");
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = mechanism.hmac(&mechanism.hash(&client_key), auth_message.as_bytes());
        let proof = BASE64.encode(xor(&client_key, &signature));
        self.expected_signature = Some(mechanism.hmac(&server_key, auth_message.as_bytes()));
        Ok(format!("{without_proof},p={proof}").into_bytes())
    }
}

impl fmt::Debug for ScramClient {
    /// Never shows the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramClient({})", self.mechanism)
    }
}

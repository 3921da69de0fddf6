//! The client side of SCRAM, which proves first that it knows the password.

use std::{fmt, sync::Arc};

use super::{BASE64, Engine, Mechanism, ScramError, attribute, same, xor};

/// The state of a conversation on the client.
pub struct ScramClient {
    mechanism: Mechanism,
    password: String,
    nonce: String,
    first_bare: String,
    salted: Option<Arc<SaltedPassword>>,
    expected_signature: Option<Vec<u8>>,
}

/// The keys derived from a password by thousands of hash rounds; worth caching for the next conversation with the
/// same server.
pub struct SaltedPassword {
    salt: Vec<u8>,
    iterations: u32,
    client_key: Vec<u8>,
    server_key: Vec<u8>,
}

/// The client's next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientStep {
    /// Send this message.
    Send(Vec<u8>),
    /// The server is authenticated; nothing more is to be sent.
    Done,
}

impl ScramClient {
    /// Starts a conversation. `nonce` must be random and printable, without commas.
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
            salted: None,
            expected_signature: None,
        })
    }

    /// Reuses keys from an earlier conversation if salt and iterations are still the same.
    #[must_use]
    pub fn remembering(mut self, salted: Option<Arc<SaltedPassword>>) -> Self {
        self.salted = salted;
        self
    }

    /// The derived keys of this conversation, to be reused by the next one.
    pub fn salted(&self) -> Option<Arc<SaltedPassword>> {
        self.salted.clone()
    }

    /// The mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The first message.
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    /// Processes a message from the server.
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
        if !(Mechanism::ITERATIONS_MIN..=Mechanism::ITERATIONS_MAX).contains(&iterations) {
            return Err(ScramError::Iterations(iterations));
        }
        let mechanism = self.mechanism;
        let salted = self.salt(salt, iterations);
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare);
        let stored_key = mechanism.hash(&salted.client_key);
        let signature = mechanism.hmac(&stored_key, auth_message.as_bytes());
        let proof = BASE64.encode(xor(&salted.client_key, &signature));
        self.expected_signature = Some(mechanism.hmac(&salted.server_key, auth_message.as_bytes()));
        self.salted = Some(salted);
        Ok(format!("{without_proof},p={proof}").into_bytes())
    }

    fn salt(&mut self, salt: Vec<u8>, iterations: u32) -> Arc<SaltedPassword> {
        let known = self.salted.take();
        let fits =
            |known: &Arc<SaltedPassword>| known.salt == salt && known.iterations == iterations;
        known.filter(fits).unwrap_or_else(|| {
            let salted = self.mechanism.salted(&self.password, &salt, iterations);
            let client_key = self.mechanism.hmac(&salted, b"Client Key");
            let server_key = self.mechanism.hmac(&salted, b"Server Key");
            Arc::new(SaltedPassword { salt, iterations, client_key, server_key })
        })
    }
}

impl fmt::Debug for ScramClient {
    /// Never shows the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramClient({})", self.mechanism)
    }
}

impl fmt::Debug for SaltedPassword {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SaltedPassword({} iterations)", self.iterations)
    }
}

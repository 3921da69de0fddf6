//! SCRAM (RFC 5802, 7677) as MongoDB uses it: both sides, message by message.
//!
//! ```text
//!  client                                              server
//!  n,,n=user,r=nonce                            -->    looks up the user's credentials
//!          <--    r=nonce+more,s=salt,i=iterations
//!  c=biws,r=nonce+more,p=proof                  -->    checks the proof
//!  checks the signature      <--    v=signature
//! ```
//! This module does no I/O and generates no random numbers: nonces and salts are arguments. MongoDB differs from the
//! RFC in one point: with SCRAM-SHA-1 the password is the hex MD5 of `user:mongo:password`.

use std::{borrow::Cow, fmt};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

mod client;
pub mod conversation;
mod server;

pub use client::{ClientStep, SaltedPassword, ScramClient};
pub use server::{ScramServer, ServerChallenge};

/// The hash function of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mechanism {
    /// SCRAM-SHA-1.
    ScramSha1,
    /// SCRAM-SHA-256.
    ScramSha256,
}

impl Mechanism {
    /// Name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramSha1 => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::ScramSha1, Self::ScramSha256].into_iter().find(|this| this.name() == name)
    }

    /// Fewer iterations are refused, as MongoDB's drivers do.
    const ITERATIONS_MIN: u32 = 4096;
    /// More iterations are refused: a malicious server could keep us busy for hours. mongod's default is 15,000.
    const ITERATIONS_MAX: u32 = 2_000_000;

    /// Prepares a password for salting, as mongod does.
    fn prepare<'a>(self, user: &str, password: &'a str) -> Result<Cow<'a, str>, ScramError> {
        match self {
            Self::ScramSha1 => {
                let digest = Md5::digest(format!("{user}:mongo:{password}"));
                Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
            }
            Self::ScramSha256 => stringprep::saslprep(password).map_err(|_| ScramError::Password),
        }
    }

    fn salted(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        let password = password.as_bytes();
        match self {
            Self::ScramSha1 => {
                pbkdf2::pbkdf2_hmac_array::<Sha1, 20>(password, salt, iterations).to_vec()
            }
            Self::ScramSha256 => {
                pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password, salt, iterations).to_vec()
            }
        }
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::ScramSha1 => Sha1::digest(bytes).to_vec(),
            Self::ScramSha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        match self {
            Self::ScramSha1 => {
                let mac = Hmac::<Sha1>::new_from_slice(key).expect("a key of any length will do");
                mac.chain_update(text).finalize().into_bytes().to_vec()
            }
            Self::ScramSha256 => {
                let mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
                mac.chain_update(text).finalize().into_bytes().to_vec()
            }
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a server stores instead of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The mechanism they were derived for.
    pub mechanism: Mechanism,
    /// Random, at least 16 bytes.
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// Verifies the client's proof.
    pub stored_key: Vec<u8>,
    /// Signs the server's last message.
    pub server_key: Vec<u8>,
}

impl Credentials {
    /// Derives credentials from a password.
    pub fn derive(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, ScramError> {
        let password = mechanism.prepare(user, password)?;
        let salted = mechanism.salted(&password, salt, iterations);
        let client_key = mechanism.hmac(&salted, b"Client Key");
        Ok(Self {
            mechanism,
            salt: salt.to_vec(),
            iterations,
            stored_key: mechanism.hash(&client_key),
            server_key: mechanism.hmac(&salted, b"Server Key"),
        })
    }
}

impl fmt::Debug for Credentials {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mechanism, iterations, .. } = self;
        write!(f, "Credentials({mechanism}, {iterations} iterations)")
    }
}

/// Why a conversation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// A message that does not belong to this conversation.
    #[error("message {0} of the SCRAM conversation cannot be understood")]
    Malformed(&'static str),
    /// The nonce differs from the agreed one.
    #[error("the nonce of the SCRAM conversation changed")]
    Nonce,
    /// The server demands too few iterations to be safe, or too many.
    #[error("the server asks for {0} iterations, which is not between 4096 and 2000000")]
    Iterations(u32),
    /// The client does not know the password.
    #[error("the client's proof is wrong")]
    Proof,
    /// The server does not know the password.
    #[error("the server's signature is wrong")]
    Signature,
    /// The password has characters that SASLprep forbids.
    #[error("the password has characters that are not allowed")]
    Password,
    /// The server refused and gave a reason.
    #[error("the server refused the proof")]
    Refused,
}

/// The value of `key=value` in a message.
fn attribute<'a>(message: &'a str, key: &str) -> Option<&'a str> {
    message.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
}

/// Compares in constant time, so that the time does not reveal the first difference.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

#[cfg(test)]
mod tests;

//! The side that keeps the credentials.

use super::{BASE64, Credentials, Engine, ScramError, attribute, same, xor};

/// A conversation whose first message has been read; the caller now looks the user up.
#[derive(Debug)]
pub struct ServerChallenge {
    user: String,
    client_nonce: String,
    first_bare: String,
}

impl ServerChallenge {
    /// Reads the client's first message.
    pub fn read(client_first: &[u8]) -> Result<Self, ScramError> {
        let malformed = ScramError::Malformed("client-first");
        let text = str::from_utf8(client_first).map_err(|_| malformed)?;
        // Channel binding is neither offered nor supported: `n,,` or, saying so, `y,,`.
        let bare = text.strip_prefix("n,,").or_else(|| text.strip_prefix("y,,"));
        let bare = bare.ok_or(malformed)?;
        let user = attribute(bare, "n").ok_or(malformed)?;
        let nonce = attribute(bare, "r").filter(|nonce| !nonce.is_empty()).ok_or(malformed)?;
        let user = user.replace("=2C", ",").replace("=3D", "=");
        Ok(Self { user, client_nonce: nonce.to_owned(), first_bare: bare.to_owned() })
    }

    /// Who wants to be known.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The challenge to send. `nonce` must be random and printable, without commas.
    pub fn challenge(self, credentials: Credentials, nonce: &str) -> (Vec<u8>, ScramServer) {
        let nonce = format!("{}{nonce}", self.client_nonce);
        let salt = BASE64.encode(&credentials.salt);
        let first = format!("r={nonce},s={salt},i={}", credentials.iterations);
        let auth_start = format!("{},{first}", self.first_bare);
        (first.into_bytes(), ScramServer { user: self.user, credentials, nonce, auth_start })
    }
}

/// A conversation that waits for the client's proof.
#[derive(Debug)]
pub struct ScramServer {
    user: String,
    credentials: Credentials,
    nonce: String,
    auth_start: String,
}

impl ScramServer {
    /// Who wants to be known.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Checks the client's last message; the answer proves us in turn.
    pub fn finish(self, client_final: &[u8]) -> Result<Vec<u8>, ScramError> {
        let malformed = ScramError::Malformed("client-final");
        let text = str::from_utf8(client_final).map_err(|_| malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(malformed)?;
        let proof = BASE64.decode(proof).map_err(|_| malformed)?;
        if !matches!(attribute(without_proof, "c"), Some("biws" | "eSws")) {
            return Err(malformed);
        }
        if attribute(without_proof, "r") != Some(self.nonce.as_str()) {
            return Err(ScramError::Nonce);
        }
        let Credentials { mechanism, stored_key, server_key, .. } = &self.credentials;
        let auth_message = format!("{},{without_proof}", self.auth_start);
        let signature = mechanism.hmac(stored_key, auth_message.as_bytes());
        let client_key = xor(&proof, &signature);
        let proven = proof.len() == signature.len();
        if !proven || !same(&mechanism.hash(&client_key), stored_key) {
            return Err(ScramError::Proof);
        }
        let signature = mechanism.hmac(server_key, auth_message.as_bytes());
        Ok(format!("v={}", BASE64.encode(signature)).into_bytes())
    }
}

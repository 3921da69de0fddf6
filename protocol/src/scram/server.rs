//! The server side of SCRAM, which holds the credentials. It refuses what mongod refuses.

use super::{BASE64, Credentials, Engine, ScramError, attribute, same, xor};

/// A conversation whose first message was parsed; the caller now looks up the user.
#[derive(Debug)]
pub struct ServerChallenge {
    user: String,
    client_nonce: String,
    /// `n,,` or `y,,`, with the optional authorization identity; the client must repeat it in `c=`.
    gs2_header: String,
    first_bare: String,
}

/// mongod's minimum length of a client nonce.
const CLIENT_NONCE_LEN_MIN: usize = 4;

impl ServerChallenge {
    /// Parses the client's first message: `n,,n=user,r=nonce`, perhaps followed by extensions.
    pub fn read(client_first: &[u8]) -> Result<Self, ScramError> {
        let malformed = ScramError::Malformed("client-first");
        let text = str::from_utf8(client_first).map_err(|_| malformed)?;
        let (binding, rest) = text.split_once(',').ok_or(malformed)?;
        let (acts_for, bare) = rest.split_once(',').ok_or(malformed)?;
        // Channel binding is not supported, so the client must send `n` (no support) or `y` (support, but not offered
        // by the server).
        if !matches!(binding, "n" | "y") {
            return Err(malformed);
        }
        let mut parts = bare.split(',');
        let user = parts.next().and_then(|part| part.strip_prefix("n=")).ok_or(malformed)?;
        let nonce = parts.next().and_then(|part| part.strip_prefix("r=")).ok_or(malformed)?;
        if user.is_empty() || nonce.len() < CLIENT_NONCE_LEN_MIN {
            return Err(malformed);
        }
        // A user may not act for another user.
        if !acts_for.is_empty() && acts_for.strip_prefix("a=") != Some(user) {
            return Err(malformed);
        }
        Ok(Self {
            user: user.replace("=2C", ",").replace("=3D", "="),
            client_nonce: nonce.to_owned(),
            gs2_header: format!("{binding},{acts_for},"),
            first_bare: bare.to_owned(),
        })
    }

    /// The user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Makes the challenge. `nonce` must be random and printable, without commas. `further` credentials share the
    /// salt and iterations of the first; they belong to a key that is being replaced.
    pub fn challenge(
        self,
        credentials: Credentials,
        further: Vec<Credentials>,
        nonce: &str,
    ) -> (Vec<u8>, ScramServer) {
        let nonce = format!("{}{nonce}", self.client_nonce);
        let salt = BASE64.encode(&credentials.salt);
        let first = format!("r={nonce},s={salt},i={}", credentials.iterations);
        let auth_start = format!("{},{first}", self.first_bare);
        let binding = BASE64.encode(self.gs2_header);
        let accepted = std::iter::once(credentials).chain(further).collect();
        (first.into_bytes(), ScramServer { accepted, nonce, binding, auth_start })
    }
}

/// A conversation that waits for the client's proof.
#[derive(Debug)]
pub struct ScramServer {
    accepted: Vec<Credentials>,
    nonce: String,
    binding: String,
    auth_start: String,
}

impl ScramServer {
    /// Verifies the client's last message; the returned message proves the server's identity.
    pub fn finish(self, client_final: &[u8]) -> Result<Vec<u8>, ScramError> {
        let malformed = ScramError::Malformed("client-final");
        let text = str::from_utf8(client_final).map_err(|_| malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(malformed)?;
        let proof = BASE64.decode(proof).map_err(|_| malformed)?;
        if attribute(without_proof, "c") != Some(self.binding.as_str()) {
            return Err(malformed);
        }
        if attribute(without_proof, "r") != Some(self.nonce.as_str()) {
            return Err(ScramError::Nonce);
        }
        let auth_message = format!("{},{without_proof}", self.auth_start);
        let proven = |credentials: &&Credentials| {
            let Credentials { mechanism, stored_key, .. } = credentials;
            let signature = mechanism.hmac(stored_key, auth_message.as_bytes());
            proof.len() == signature.len()
                && same(&mechanism.hash(&xor(&proof, &signature)), stored_key)
        };
        let Credentials { mechanism, server_key, .. } =
            self.accepted.iter().find(proven).ok_or(ScramError::Proof)?;
        let signature = mechanism.hmac(server_key, auth_message.as_bytes());
        Ok(format!("v={}", BASE64.encode(signature)).into_bytes())
    }
}

//! Authentication by SCRAM on a fresh connection: users with a password, and members with a key file.

use std::{fmt, time::Duration};

use bson::{Binary, RawDocumentBuf, cstr, rawdoc, spec::BinarySubtype};
use futures_util::future::BoxFuture;
use rand::distr::{Alphanumeric, SampleString};

use super::{Authenticator, ClientError, Connection};
use crate::scram::{ClientStep, Mechanism, ScramClient};

/// For each message of the conversation; the whole has the connection's own limit.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Logs a user in. A member of a set with a key file is the user `__system` of `local`, and its
/// password is what the file holds.
pub struct ScramAuthenticator {
    db: String,
    user: String,
    passwords: Vec<String>,
}

impl ScramAuthenticator {
    /// A user of a database.
    pub fn new(db: &str, user: &str, password: &str) -> Self {
        Self { db: db.to_owned(), user: user.to_owned(), passwords: vec![password.to_owned()] }
    }

    /// A member of the set, with the keys of its key file (two while they are exchanged).
    pub fn member(keys: impl IntoIterator<Item = String>) -> Self {
        let (db, user) = ("local".to_owned(), "__system".to_owned());
        Self { db, user, passwords: keys.into_iter().collect() }
    }

    async fn log_in(&self, connection: &mut Connection) -> Result<(), ClientError> {
        let mechanism = self.mechanism(connection);
        let mut outcome = Err(self.failed(connection, "there is no password to try"));
        for password in &self.passwords {
            outcome = self.converse(connection, mechanism, password).await;
            // Only a wrong key is worth the try of the next one.
            if !matches!(&outcome, Err(ClientError::Command(_))) {
                break;
            }
        }
        outcome
    }

    /// SCRAM-SHA-256 wherever the peer has it for this user, and where it doesn't say.
    fn mechanism(&self, connection: &Connection) -> Mechanism {
        let offered = connection.hello().raw.get_array("saslSupportedMechs").ok();
        let names: Vec<_> =
            offered.into_iter().flatten().flatten().filter_map(|name| name.as_str()).collect();
        let has = |mechanism: Mechanism| names.contains(&mechanism.name());
        match has(Mechanism::ScramSha1) && !has(Mechanism::ScramSha256) {
            true => Mechanism::ScramSha1,
            false => Mechanism::ScramSha256,
        }
    }

    async fn converse(
        &self,
        connection: &mut Connection,
        mechanism: Mechanism,
        password: &str,
    ) -> Result<(), ClientError> {
        let nonce = Alphanumeric.sample_string(&mut rand::rng(), NONCE_LEN);
        let scram = ScramClient::new(mechanism, &self.user, password, &nonce);
        let mut scram = scram.map_err(|error| self.failed(connection, &error.to_string()))?;
        let start = rawdoc! {
            "saslStart": 1, "mechanism": mechanism.name(), "payload": payload(scram.first()),
            "options": { "skipEmptyExchange": true },
        };
        let mut reply = connection.run(&self.db, start, STEP_TIMEOUT).await?;
        let mut trusted = false;
        loop {
            let done = reply.get_bool("done").unwrap_or_default();
            if done && trusted {
                return Ok(());
            }
            let answer = match reply.get_binary("payload") {
                Ok(payload) => scram.step(payload.bytes),
                Err(_) => return Err(self.failed(connection, "a reply has no payload")),
            };
            let answer = match answer {
                // A peer that knows no skipEmptyExchange wants one empty message more.
                Ok(ClientStep::Done) if done => return Ok(()),
                Ok(ClientStep::Done) => {
                    trusted = true;
                    Vec::new()
                }
                Ok(ClientStep::Send(_)) if done => {
                    return Err(self.failed(connection, "the server ended too early"));
                }
                Ok(ClientStep::Send(answer)) => answer,
                Err(error) => return Err(self.failed(connection, &error.to_string())),
            };
            let mut next = rawdoc! { "saslContinue": 1 };
            if let Ok(Some(id)) = reply.get("conversationId") {
                next.append(cstr!("conversationId"), id);
            }
            next.append(cstr!("payload"), payload(answer));
            reply = connection.run(&self.db, next, STEP_TIMEOUT).await?;
        }
    }

    fn failed(&self, connection: &Connection, why: &str) -> ClientError {
        ClientError::Authentication { host: connection.host().clone(), why: why.to_owned() }
    }
}

/// mongod's own length, 24 bytes in Base64.
const NONCE_LEN: usize = 32;

fn payload(bytes: Vec<u8>) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes }
}

impl Authenticator for ScramAuthenticator {
    fn extend_hello(&self, hello: &mut RawDocumentBuf) {
        let user = format!("{}.{}", self.db, self.user);
        hello.append(cstr!("saslSupportedMechs"), user);
    }

    fn authenticate<'a>(
        &'a self,
        connection: &'a mut Connection,
    ) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(self.log_in(connection))
    }
}

impl fmt::Debug for ScramAuthenticator {
    /// Never shows a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramAuthenticator({}@{})", self.user, self.db)
    }
}

//! Password authentication by SCRAM.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bson::{Binary, RawDocumentBuf, cstr, rawdoc, spec::BinarySubtype};
use futures_util::future::BoxFuture;
use rand::distr::{Alphanumeric, SampleString};

use super::{STEP_TIMEOUT, append_speculation};
use crate::{
    ErrorCode, HostAndPort, RawDoc,
    client::{Authenticator, ClientError, Connection, Conversation},
    scram::{ClientStep, Mechanism, SaltedPassword, ScramClient, ScramError},
};

/// Logs a user in. A member of a set with a key file logs in as the user `__system` of `local`; the content of the
/// key file is its password.
pub struct ScramAuthenticator {
    db: String,
    user: String,
    passwords: Vec<String>,
    /// If the peer refuses, continue unauthenticated: the set is being moved to authentication
    /// (`--transitionToAuth`).
    optional: bool,
    salted: Mutex<HashMap<Salted, Arc<SaltedPassword>>>,
}

/// Key of the cache of salted passwords: peer, mechanism, index of the password.
type Salted = (HostAndPort, Mechanism, usize);

impl ScramAuthenticator {
    /// A user of a database.
    pub fn new(db: &str, user: &str, password: &str) -> Self {
        Self::with_passwords(db, user, vec![password.to_owned()])
    }

    /// A member of the set, with the keys of its key file (two keys while one is being replaced).
    pub fn member(keys: impl IntoIterator<Item = String>) -> Self {
        Self::with_passwords("local", "__system", keys.into_iter().collect())
    }

    /// Continue unauthenticated if the peer refuses, as mongod does with `--transitionToAuth`.
    #[must_use]
    pub fn optional(mut self, optional: bool) -> Self {
        self.optional = optional;
        self
    }

    fn with_passwords(db: &str, user: &str, passwords: Vec<String>) -> Self {
        let (db, user) = (db.to_owned(), user.to_owned());
        Self { db, user, passwords, optional: false, salted: Mutex::default() }
    }

    fn client(&self, mechanism: Mechanism, password: &str) -> Result<ScramClient, ScramError> {
        #[expect(clippy::disallowed_methods, reason = "nobody may foresee a nonce")]
        let nonce = Alphanumeric.sample_string(&mut rand::rng(), NONCE_LEN);
        ScramClient::new(mechanism, &self.user, password, &nonce)
    }

    fn known(&self, which: &Salted) -> Option<Arc<SaltedPassword>> {
        self.salted.lock().unwrap_or_else(PoisonError::into_inner).get(which).cloned()
    }

    fn remember(&self, which: &Salted, salted: Option<Arc<SaltedPassword>>) {
        let mut known = self.salted.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(salted.map(|salted| (which.clone(), salted)));
    }

    fn failed(&self, connection: &Connection, why: &str) -> ClientError {
        ClientError::Authentication { host: connection.host().clone(), why: why.to_owned() }
    }
}

/// Length of mongod's own nonce: 24 bytes in Base64.
const NONCE_LEN: usize = 32;

/// A conversation that may have started within the hello.
struct Begun<'s> {
    authenticator: &'s ScramAuthenticator,
    speculation: Option<ScramClient>,
}

impl Authenticator for ScramAuthenticator {
    fn begin(&self, hello: &mut RawDocumentBuf) -> Box<dyn Conversation + '_> {
        hello.append(cstr!("saslSupportedMechs"), format!("{}.{}", self.db, self.user));
        let first = self.passwords.first();
        let speculation =
            first.and_then(|password| self.client(Mechanism::ScramSha256, password).ok());
        if let Some(scram) = &speculation {
            append_speculation(hello, start(scram), &self.db);
        }
        Box::new(Begun { authenticator: self, speculation })
    }
}

impl Conversation for Begun<'_> {
    fn finish<'a>(
        self: Box<Self>,
        connection: &'a mut Connection,
    ) -> BoxFuture<'a, Result<(), ClientError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let authenticator = self.authenticator;
            match self.log_in(connection).await {
                Err(error) if authenticator.optional && !error.is_network() => Ok(()),
                other => other,
            }
        })
    }
}

impl Begun<'_> {
    async fn log_in(mut self, connection: &mut Connection) -> Result<(), ClientError> {
        let begun = connection.hello().raw.get_document("speculativeAuthenticate").ok();
        let begun = begun.map(RawDoc::from);
        let mut outcome = match (self.speculation.take(), begun) {
            (Some(scram), Some(reply)) => Some(self.converse(connection, scram, 0, reply).await),
            _ => None,
        };
        let mechanism = mechanism(connection);
        for (index, password) in self.authenticator.passwords.iter().enumerate() {
            match &outcome {
                // The speculative attempt in the hello has already tried the first password.
                Some(Err(error)) if is_wrong_key(error) && index == 0 => continue,
                None => {}
                Some(Err(error)) if is_wrong_key(error) => {}
                Some(_) => break,
            }
            outcome = Some(self.start(connection, mechanism, index, password).await);
        }
        outcome.unwrap_or_else(|| {
            Err(self.authenticator.failed(connection, "there is no password to try"))
        })
    }

    async fn start(
        &self,
        connection: &mut Connection,
        mechanism: Mechanism,
        index: usize,
        password: &str,
    ) -> Result<(), ClientError> {
        let scram = self.authenticator.client(mechanism, password);
        let scram =
            scram.map_err(|error| self.authenticator.failed(connection, &error.to_string()))?;
        let reply = connection.run(&self.authenticator.db, start(&scram), STEP_TIMEOUT).await?;
        self.converse(connection, scram, index, reply).await
    }

    async fn converse(
        &self,
        connection: &mut Connection,
        scram: ScramClient,
        index: usize,
        mut reply: RawDoc,
    ) -> Result<(), ClientError> {
        let authenticator = self.authenticator;
        let key = (connection.host().clone(), scram.mechanism(), index);
        let mut scram = scram.remembering(authenticator.known(&key));
        let mut trusted = false;
        loop {
            let done = reply.get_bool("done").unwrap_or_default();
            if done && trusted {
                return Ok(());
            }
            let answer = match reply.get_binary("payload") {
                Ok(payload) => {
                    let (back, answer) = step(scram, payload.bytes.to_vec()).await;
                    scram = back;
                    answer
                }
                Err(_) => return Err(authenticator.failed(connection, "a reply has no payload")),
            };
            let answer = match answer {
                // A peer that does not support `skipEmptyExchange` expects one more empty message.
                Ok(ClientStep::Done) if done => return Ok(()),
                Ok(ClientStep::Done) => {
                    trusted = true;
                    Vec::new()
                }
                Ok(ClientStep::Send(_)) if done => {
                    return Err(authenticator.failed(connection, "the server ended too early"));
                }
                Ok(ClientStep::Send(answer)) => answer,
                Err(error) => return Err(authenticator.failed(connection, &error.to_string())),
            };
            authenticator.remember(&key, scram.salted());
            let mut next = rawdoc! { "saslContinue": 1 };
            if let Ok(Some(id)) = reply.get("conversationId") {
                next.append(cstr!("conversationId"), id);
            }
            next.append(cstr!("payload"), payload(answer));
            reply = connection.run(&authenticator.db, next, STEP_TIMEOUT).await?;
        }
    }
}

/// Salting a password takes milliseconds of CPU, so it runs on a blocking thread unless the result is cached.
async fn step(
    mut scram: ScramClient,
    message: Vec<u8>,
) -> (ScramClient, Result<ClientStep, ScramError>) {
    if scram.salted().is_some() {
        let step = scram.step(&message);
        return (scram, step);
    }
    let stepped = tokio::task::spawn_blocking(move || {
        let step = scram.step(&message);
        (scram, step)
    });
    stepped.await.expect("a step of SCRAM does not panic")
}

/// SCRAM-SHA-256 if the peer offers it for this user, or if it does not list its mechanisms.
fn mechanism(connection: &Connection) -> Mechanism {
    let offered = connection.hello().raw.get_array("saslSupportedMechs").ok();
    let names: Vec<_> =
        offered.into_iter().flatten().flatten().filter_map(|name| name.as_str()).collect();
    let has = |mechanism: Mechanism| names.contains(&mechanism.name());
    match has(Mechanism::ScramSha1) && !has(Mechanism::ScramSha256) {
        true => Mechanism::ScramSha1,
        false => Mechanism::ScramSha256,
    }
}

/// Only a wrong key is a reason to try the next key.
fn is_wrong_key(error: &ClientError) -> bool {
    error.code() == Some(ErrorCode::AuthenticationFailed)
}

fn start(scram: &ScramClient) -> RawDocumentBuf {
    rawdoc! {
        "saslStart": 1, "mechanism": scram.mechanism().name(), "payload": payload(scram.first()),
        "options": { "skipEmptyExchange": true },
    }
}

fn payload(bytes: Vec<u8>) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes }
}

impl fmt::Debug for ScramAuthenticator {
    /// Never shows a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramAuthenticator({}@{})", self.user, self.db)
    }
}

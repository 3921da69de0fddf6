//! The official driver, connected to exactly one server.
//!
//! All requests to servers in the tests go through it, so that our own codec never judges itself.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{
    AuthMechanism, ClientOptions, Credential, ServerAddress, Tls as MongoTls, TlsOptions,
};
use mongodb::sync::Client;

/// A client with a direct connection to the server on this port, whatever its state.
pub fn connect(port: u16) -> Result<Client> {
    client(port, false, &Security::default())
}

/// Like [`connect`], with retryable writes: the driver's collection methods send `lsid` and `txnNumber`.
pub fn connect_with_retries(port: u16) -> Result<Client> {
    client(port, true, &Security::default())
}

/// Like [`connect`], with the set's authentication and TLS.
pub fn connect_as(port: u16, security: &Security) -> Result<Client> {
    client(port, false, security)
}

/// How a client connects to a server with access control or TLS.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Credentials to log in with.
    pub credential: Option<Credential>,
    /// TLS with these files.
    pub tls: Option<TlsOptions>,
    /// The client's appName.
    pub app_name: Option<String>,
    /// Server selection timeout.
    pub patience: Option<Duration>,
}

impl Security {
    /// No authentication, with an appName.
    pub fn named(app_name: &str) -> Self {
        Self { app_name: Some(app_name.to_owned()), ..Self::default() }
    }

    /// No authentication, no TLS.
    pub fn nobody() -> Self {
        Self::default()
    }

    /// A user with a password, using the server's strongest mechanism.
    pub fn user(name: &str, password: &str, db: &str) -> Self {
        let credential = Credential::builder()
            .username(name.to_owned())
            .password(password.to_owned())
            .source(db.to_owned())
            .build();
        Self { credential: Some(credential), ..Self::default() }
    }

    /// A member that authenticates with the set's key.
    pub fn member(key: &str) -> Self {
        Self::user("__system", key, "local")
    }

    /// Authentication by the client certificate (X.509).
    pub fn certificate() -> Self {
        let credential = Credential::builder().mechanism(AuthMechanism::MongoDbX509).build();
        Self { credential: Some(credential), ..Self::default() }
    }

    /// TLS with this certificate authority and an optional client certificate.
    #[must_use]
    pub fn with_tls(mut self, ca: &Path, certificate: Option<&Path>) -> Self {
        let mut options = TlsOptions::builder().ca_file_path(ca.to_owned()).build();
        options.cert_key_file_path = certificate.map(Path::to_owned);
        self.tls = Some(options);
        self
    }

    /// Selects the authentication mechanism.
    #[must_use]
    pub fn by(mut self, mechanism: AuthMechanism) -> Self {
        if let Some(credential) = &mut self.credential {
            credential.mechanism = Some(mechanism);
        }
        self
    }
}

/// A client of a whole set, which finds the primary.
pub fn connect_to_set(name: &str, hosts: &[String]) -> Result<Client> {
    let hosts: Result<Vec<ServerAddress>, _> = hosts.iter().map(ServerAddress::parse).collect();
    let options = ClientOptions::builder()
        .hosts(hosts.context("an address")?)
        .repl_set_name(name.to_owned())
        .app_name("understudy-tests".to_owned())
        .connect_timeout(CONNECT_LIMIT)
        .server_selection_timeout(SELECTION_LIMIT)
        .build();
    Client::with_options(options).context("make a client of a set")
}

fn client(port: u16, retries: bool, security: &Security) -> Result<Client> {
    let address = ServerAddress::Tcp { host: Ipv4Addr::LOCALHOST.to_string(), port: Some(port) };
    let mut options = ClientOptions::builder()
        .hosts(vec![address])
        .direct_connection(true)
        .app_name(security.app_name.clone().unwrap_or_else(|| "understudy-tests".to_owned()))
        .connect_timeout(CONNECT_LIMIT)
        .server_selection_timeout(security.patience.unwrap_or(SELECTION_LIMIT))
        .retry_writes(retries)
        .retry_reads(retries)
        .build();
    options.credential = security.credential.clone();
    options.tls = security.tls.clone().map(MongoTls::Enabled);
    Client::with_options(options).context("make a client")
}

/// Runs one command; a reply with `ok: 0` is an error.
pub fn run(client: &Client, db: &str, command: Document) -> Result<Document> {
    let name = command.keys().next().cloned().unwrap_or_default();
    let reply = client.database(db).run_command(command).run();
    reply.with_context(|| format!("{name} on {db}"))
}

/// Runs one command and returns the server's reply, also if it has `ok: 0`.
pub fn answer(client: &Client, db: &str, command: Document) -> Result<Document> {
    match client.database(db).run_command(command).run() {
        Ok(reply) => Ok(reply),
        Err(error) => refusal(&error).ok_or_else(|| anyhow!(error)),
    }
}

/// Like [`answer`], for a command with fields that no driver would write.
pub fn answer_raw(client: &Client, db: &str, command: RawDocumentBuf) -> Result<Document> {
    match client.database(db).run_raw_command(command).run() {
        Ok(reply) => Ok(reply),
        Err(error) => refusal(&error).ok_or_else(|| anyhow!(error)),
    }
}

/// The server's error code, if the server replied.
pub fn code_of(error: &anyhow::Error) -> Option<i32> {
    let error = error.chain().find_map(|cause| cause.downcast_ref::<Error>())?;
    match error.kind.as_ref() {
        ErrorKind::Command(refused) => Some(refused.code),
        _ => None,
    }
}

/// True if the server refused the login.
pub fn is_login_refused(error: &anyhow::Error) -> bool {
    let error = error.chain().find_map(|cause| cause.downcast_ref::<Error>());
    error.is_some_and(|error| matches!(error.kind.as_ref(), ErrorKind::Authentication { .. }))
}

/// True if the server replied with an error.
pub fn is_refusal(error: &Error) -> bool {
    use ErrorKind::{BulkWrite, Command, InsertMany, Transaction, Write};
    matches!(
        error.kind.as_ref(),
        Command(_) | Write(_) | InsertMany(_) | BulkWrite(_) | Transaction { .. }
    )
}

fn refusal(error: &Error) -> Option<Document> {
    match error.kind.as_ref() {
        ErrorKind::Command(refused) => Some(doc! {
            "ok": 0.0,
            "errmsg": &refused.message,
            "code": refused.code,
            "codeName": &refused.code_name,
        }),
        // 4.4 and 5.0 refuse some commands without a code.
        ErrorKind::InvalidResponse { .. } => {
            let reply = Document::from_reader(error.server_response()?.as_bytes()).ok()?;
            Some(reply).filter(|reply| reply.get_f64("ok").is_ok_and(|ok| ok == 0.0))
        }
        _ => None,
    }
}

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const SELECTION_LIMIT: Duration = Duration::from_secs(10);

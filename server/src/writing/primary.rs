//! A connection to the primary for a writing pipeline, opened with the first command.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{
    ErrorCode, Namespace, RawDoc, Timestamp,
    client::{ClientError, Connection},
};
use storage::ReadAt;
use tokio::runtime::Handle;

use crate::{context::Call, error::Failure, read::surroundings};

/// Interval of checks for interruption while waiting for the primary.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// A write may wait for a majority as long as necessary; the client's own limit may end it earlier.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The primary.
pub(super) struct Primary<'c> {
    call: &'c Call,
    connection: Option<Connection>,
    operation_time: Option<Timestamp>,
}

impl<'c> Primary<'c> {
    pub(super) fn of(call: &'c Call) -> Self {
        Self { call, connection: None, operation_time: None }
    }

    /// When the last command took effect.
    pub(super) fn operation_time(&self) -> Option<Timestamp> {
        self.operation_time
    }

    /// Runs a command with the client's write concern, comment and time limit. Blocks.
    pub(super) fn write(
        &mut self,
        db: &str,
        mut command: RawDocumentBuf,
    ) -> Result<RawDoc, Failure> {
        let body = &self.call.body;
        command.append(cstr!("writeConcern"), self.write_concern()?);
        if let Ok(Some(comment)) = body.get("comment") {
            command.append(cstr!("comment"), comment);
        }
        if let Some(max) = self.call.max_time {
            let left = max.saturating_sub(self.call.started.elapsed());
            let millis = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1);
            command.append(cstr!("maxTimeMS"), millis);
        }
        self.run(db, command, true)
    }

    /// The client's write concern, or the set's default: the primary requires an explicit one from members.
    fn write_concern(&self) -> Result<RawDocumentBuf, Failure> {
        let given = self.call.body.get_document("writeConcern").ok();
        let default = self.default_write_concern()?;
        let Some(given) = given.filter(|given| !given.is_empty()) else { return Ok(default) };
        let mut concern = given.to_owned();
        for (name, value) in default.iter().flatten() {
            if matches!(given.get(name.as_str()), Ok(None)) {
                concern.append(name, value);
            }
        }
        Ok(concern)
    }

    /// The default that an operator has set, or the release's own.
    fn default_write_concern(&self) -> Result<RawDocumentBuf, Failure> {
        let view = self.call.node().store()?.view(ReadAt::Newest)?;
        let settings = view.catalog().collection(&Namespace::new("config", "settings"));
        let set = match settings {
            Some(settings) => {
                view.get(&settings, RawBsonRef::String("ReadWriteConcernDefaults"))?
            }
            None => None,
        };
        Ok(match set.as_ref().map(|set| set.get_document("defaultWriteConcern")) {
            Some(Ok(concern)) => concern.to_owned(),
            _ if self.call.profile().implicit_rw_concern => {
                rawdoc! { "w": "majority", "wtimeout": 0 }
            }
            _ => rawdoc! { "w": 1, "wtimeout": 0 },
        })
    }

    /// Runs a cleanup command, even if the client is gone.
    pub(super) fn tidy(&mut self, db: &str, command: RawDocumentBuf) -> Result<(), Failure> {
        self.run(db, command, false).map(drop)
    }

    fn run(
        &mut self,
        db: &str,
        command: RawDocumentBuf,
        interruptible: bool,
    ) -> Result<RawDoc, Failure> {
        let call = self.call;
        let connection = &mut self.connection;
        let reply = Handle::current().block_on(async {
            let exchange = async {
                if connection.as_ref().is_none_or(Connection::is_broken) {
                    *connection = Some(connect(call).await?);
                }
                match connection {
                    Some(open) => open.run(db, command, LONGEST).await.map_err(from_client),
                    None => Err(no_primary()),
                }
            };
            tokio::pin!(exchange);
            loop {
                tokio::select! {
                    reply = &mut exchange => break reply,
                    () = tokio::time::sleep(CHECK_EVERY) => {
                        if interruptible {
                            surroundings::check(call)?;
                        }
                    }
                }
            }
        })?;
        if let Ok(time) = reply.get_timestamp("operationTime") {
            let time = Timestamp::from(time);
            self.operation_time = self.operation_time.max(Some(time));
            call.node().advance_cluster_time(time);
        }
        Ok(reply)
    }
}

async fn connect(call: &Call) -> Result<Connection, Failure> {
    let Some(repl) = call.node().repl() else { return Err(no_primary()) };
    match repl.connect_to_primary().await {
        Some(connected) => connected.map_err(from_client),
        None => Err(no_primary()),
    }
}

fn no_primary() -> Failure {
    Failure::said(ErrorCode::from_code(189), "No primary exists currently")
}

fn from_client(error: ClientError) -> Failure {
    match error {
        ClientError::Command(error) => failure(Some(error.reply.as_raw())),
        other => Failure::said(
            ErrorCode::HostUnreachable,
            format!("Error while writing to the primary: {other}"),
        ),
    }
}

/// Converts the primary's error, with the fields that clients use.
pub(super) fn failure(error: Option<&RawDocument>) -> Failure {
    let code = error.and_then(|error| error.get_i32("code").ok());
    let message = error.and_then(|error| error.get_str("errmsg").ok()).unwrap_or_default();
    let mut details = RawDocumentBuf::new();
    for (name, value) in error.into_iter().flat_map(|error| error.iter().flatten()) {
        if matches!(name.as_str(), "keyPattern" | "keyValue" | "foundValue" | "errInfo")
            && !matches!(value, RawBsonRef::Null)
        {
            details.append(name, value);
        }
    }
    Failure::OnPrimary {
        code: code.map_or(ErrorCode::UnknownError, ErrorCode::from_code),
        message: message.to_owned(),
        details,
    }
}

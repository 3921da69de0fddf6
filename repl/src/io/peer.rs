//! Connections to other members.

use std::sync::Arc;

use bson::rawdoc;
use protocol::{
    ErrorCode, HostAndPort,
    client::{ClientError, ConnectOptions, Connection, DriverInfo, WireVersions},
};
use tokio::sync::watch;

use crate::{Snapshot, event::PeerError};

/// Connects to members of the set, as a member of the release that we show.
#[derive(Clone, Debug)]
pub struct Peer {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    options: ConnectOptions,
}

impl Peer {
    /// A peer that follows the node's release; `options` determine encryption, compression and authentication.
    pub fn new(snapshots: watch::Receiver<Arc<Snapshot>>, options: ConnectOptions) -> Self {
        Self { snapshots, options }
    }

    /// Connects to a member.
    pub(crate) async fn connect(&self, host: &HostAndPort) -> Result<Connection, ClientError> {
        let profile = self.snapshots.borrow().profile;
        let driver = DriverInfo {
            name: "MongoDB Internal Client".to_owned(),
            version: profile.version.to_owned(),
        };
        // The minimum is 0, because a set in the middle of an upgrade has members of two releases.
        let wire_versions = WireVersions { min: 0, max: profile.wire_version };
        let options = ConnectOptions {
            driver,
            internal_client: Some(wire_versions),
            hello_fields: rawdoc! { "hangUpOnStepDown": false },
            ..self.options.clone()
        };
        Connection::connect(host, &options).await
    }
}

impl From<ClientError> for PeerError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Command(error) => {
                Self::Command { code: error.code, message: error.message }
            }
            ClientError::Authentication { why, .. } => {
                Self::Command { code: ErrorCode::AuthenticationFailed, message: why }
            }
            ClientError::TimedOut { after, .. } => Self::TimedOut(after),
            other => Self::Network(other.to_string()),
        }
    }
}

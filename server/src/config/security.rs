//! The section `security`: access control and authentication of members.

use std::path::PathBuf;

use super::{ConfigError, options::Given};

/// The settings for access control.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecuritySettings {
    /// Access control is enabled.
    pub authorization: bool,
    /// Members authenticate if possible, but nobody is refused: for moving a set without authentication to one with
    /// it.
    pub transition: bool,
    /// Path of the key file.
    pub key_file: Option<PathBuf>,
    /// How members authenticate.
    pub cluster_auth_mode: ClusterAuthMode,
}

/// How members authenticate: what is sent, and what is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClusterAuthMode {
    /// No authentication.
    #[default]
    Undefined,
    /// Sends and accepts the key.
    KeyFile,
    /// Sends the key; accepts the key and certificates.
    SendKeyFile,
    /// Sends a certificate; accepts certificates and the key.
    SendX509,
    /// Sends a certificate; accepts only certificates.
    X509,
}

impl ClusterAuthMode {
    /// The name in `--clusterAuthMode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::KeyFile => "keyFile",
            Self::SendKeyFile => "sendKeyFile",
            Self::SendX509 => "sendX509",
            Self::X509 => "x509",
        }
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        [Self::KeyFile, Self::SendKeyFile, Self::SendX509, Self::X509]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| {
                ConfigError::Value(format!("unsupported value for clusterAuthMode {text}"))
            })
    }

    /// True if members may authenticate with the key.
    pub(crate) fn accepts_keys(self) -> bool {
        matches!(self, Self::KeyFile | Self::SendKeyFile | Self::SendX509)
    }

    /// True if members may authenticate with a certificate.
    pub(crate) fn accepts_certificates(self) -> bool {
        matches!(self, Self::SendKeyFile | Self::SendX509 | Self::X509)
    }

    /// True if we authenticate with a certificate.
    pub(crate) fn sends_certificate(self) -> bool {
        matches!(self, Self::SendX509 | Self::X509)
    }
}

pub(super) fn resolve(given: &Given) -> Result<SecuritySettings, ConfigError> {
    let value = |text: String| ConfigError::Value(text);
    let key_file = given.text("security.keyFile").map(PathBuf::from);
    let mode = match given.text("security.clusterAuthMode") {
        Some(text) => ClusterAuthMode::parse(text)?,
        None if key_file.is_some() => ClusterAuthMode::KeyFile,
        None => ClusterAuthMode::Undefined,
    };
    let asked = match given.text("security.authorization") {
        None => None,
        Some("enabled") => Some(true),
        Some("disabled") => Some(false),
        Some(_) => {
            let text = "security.authorization expects either 'enabled' or 'disabled'";
            return Err(value(text.to_owned()));
        }
    };
    let asked = asked.unwrap_or(false) || given.switch("auth")?;
    let transition = given.switch("security.transitionToAuth")?;
    let members_prove = mode != ClusterAuthMode::Undefined;
    if transition && !members_prove {
        let text = "--transitionToAuth must be used with keyFile or x509 authentication";
        return Err(value(text.to_owned()));
    }
    if mode.accepts_keys() && key_file.is_none() {
        let text = format!("keyFile is required for clusterAuthMode {}", mode.name());
        return Err(value(text));
    }
    if asked && !members_prove && given.text("replication.replSet").is_some() {
        let text = "security.keyFile is required when authorization is enabled with replica sets";
        return Err(value(text.to_owned()));
    }
    Ok(SecuritySettings {
        authorization: (asked || members_prove) && !transition,
        transition,
        key_file,
        cluster_auth_mode: mode,
    })
}

//! The section `net.tls`.

use std::path::PathBuf;

use super::{ConfigError, SecuritySettings, options::Given};

/// The TLS settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The TLS mode.
    pub mode: TlsMode,
    /// Our certificate and its key.
    pub certificate_key_file: Option<PathBuf>,
    /// The certificate for connections to other members, if it differs.
    pub cluster_file: Option<PathBuf>,
    /// The trusted certificate authorities.
    pub ca_file: Option<PathBuf>,
    /// The trusted certificate authorities for incoming connections, if they differ.
    pub cluster_ca_file: Option<PathBuf>,
    /// Clients need no certificate.
    pub allow_connections_without_certificates: bool,
    /// A certificate may be for another host.
    pub allow_invalid_hostnames: bool,
    /// Any certificate is accepted.
    pub allow_invalid_certificates: bool,
    /// TLS 1.2 is disabled.
    pub disable_1_2: bool,
    /// TLS 1.3 is disabled.
    pub disable_1_3: bool,
}

/// The TLS mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// TLS is not used.
    #[default]
    Disabled,
    /// Incoming connections may use TLS; outgoing ones do not.
    AllowTls,
    /// Incoming connections may use TLS; outgoing ones do.
    PreferTls,
    /// All connections use TLS.
    RequireTls,
}

impl TlsMode {
    /// The name in `--tlsMode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::AllowTls => "allowTLS",
            Self::PreferTls => "preferTLS",
            Self::RequireTls => "requireTLS",
        }
    }

    /// True if connections to other members use TLS.
    pub(crate) fn is_used_outwards(self) -> bool {
        matches!(self, Self::PreferTls | Self::RequireTls)
    }
}

pub(super) fn resolve(
    given: &Given,
    security: &SecuritySettings,
) -> Result<TlsSettings, ConfigError> {
    let value = |text: &str| ConfigError::Value(text.to_owned());
    let path = |key: &str| given.text(key).map(PathBuf::from);
    let mode = match given.text("net.tls.mode") {
        None => TlsMode::Disabled,
        Some(text) => {
            [TlsMode::Disabled, TlsMode::AllowTls, TlsMode::PreferTls, TlsMode::RequireTls]
                .into_iter()
                .find(|mode| mode.name() == text)
                .ok_or_else(|| {
                    ConfigError::Value(format!("unsupported value for tlsMode {text}"))
                })?
        }
    };
    let (mut disable_1_2, mut disable_1_3) = (false, false);
    for name in given.text("net.tls.disabledProtocols").unwrap_or_default().split(',') {
        match name.trim() {
            "TLS1_2" => disable_1_2 = true,
            "TLS1_3" => disable_1_3 = true,
            // These versions are never used anyway.
            "" | "none" | "TLS1_0" | "TLS1_1" => {}
            other => {
                let text = format!("Unrecognized disabledProtocols '{other}'");
                return Err(ConfigError::Value(text));
            }
        }
    }
    let tls = TlsSettings {
        mode,
        certificate_key_file: path("net.tls.certificateKeyFile"),
        cluster_file: path("net.tls.clusterFile"),
        ca_file: path("net.tls.CAFile"),
        cluster_ca_file: path("net.tls.clusterCAFile"),
        allow_connections_without_certificates: given
            .switch("net.tls.allowConnectionsWithoutCertificates")?,
        allow_invalid_hostnames: given.switch("net.tls.allowInvalidHostnames")?,
        allow_invalid_certificates: given.switch("net.tls.allowInvalidCertificates")?,
        disable_1_2,
        disable_1_3,
    };
    if mode == TlsMode::Disabled {
        if security.cluster_auth_mode.accepts_certificates() {
            return Err(value(
                "need to enable TLS via the tlsMode flag when using clusterAuthMode",
            ));
        }
        return Ok(tls);
    }
    if tls.certificate_key_file.is_none() {
        return Err(value("need tlsCertificateKeyFile or certificateSelector when TLS is enabled"));
    }
    if tls.ca_file.is_none() && !tls.allow_invalid_certificates {
        return Err(value(
            "TLS without certificate validation chain is not supported: give it a net.tls.CAFile",
        ));
    }
    if disable_1_2 && disable_1_3 {
        return Err(value("disabledProtocols leaves no protocol to speak"));
    }
    Ok(tls)
}

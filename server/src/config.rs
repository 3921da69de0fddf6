//! Parses the command line and mongod's YAML file to settings, in two steps.
//!
//! ```text
//!   argv ---------+
//!                 +--> given: "net.port" -> "27018"  --> Settings, typed and checked
//!   --config file-+          (flags win over the file)
//! ```
//! The first step knows only names: [`options`] lists every option of mongod with its flag, its dotted name in the
//! file, and whether we support it. The second step ([`settings`]) interprets the values. An option that mongod has
//! and we do not support is refused by name; one that only tunes WiredTiger is accepted with a warning.

mod file;
mod flags;
mod options;
mod security;
mod settings;
mod tls;

use std::path::Path;

pub use security::{ClusterAuthMode, SecuritySettings};
pub use settings::{LogFormat, LogRotate, LogSettings, Settings};
pub use tls::{TlsMode, TlsSettings};

use options::Given;

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// Run with these settings.
    Run(Box<Settings>),
    /// Print this text and exit successfully.
    Print(String),
}

/// Why a command line or config file is invalid. The texts are mongod's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An unknown flag, or one without its argument.
    #[error("Error parsing command line: {0}")]
    CommandLine(String),
    /// An unknown key in the file.
    #[error("Unrecognized option: {0}")]
    UnknownKey(String),
    /// The config file cannot be read.
    #[error("Error opening config file '{path}': {reason}")]
    Open {
        /// The file.
        path: String,
        /// The system's error.
        reason: String,
    },
    /// The config file is not valid YAML.
    #[error("Error parsing YAML config file: {0}")]
    Yaml(String),
    /// A value of the wrong type.
    #[error("Error parsing option \"{name}\" as {kind}: {reason}")]
    Type {
        /// Flag or key, as written.
        name: String,
        /// The expected type.
        kind: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// A value out of range.
    #[error("{0}")]
    Value(String),
    /// More than one error.
    #[error("{}", listed(.0))]
    Several(Vec<ConfigError>),
    /// An option of mongod that this server does not support.
    #[error("Option '{name}' is an option of mongod that this server does not support: {why}")]
    Unsupported {
        /// Flag or key, as written.
        name: String,
        /// What to do instead.
        why: &'static str,
    },
}

/// All errors, one per line.
fn listed(wrong: &[ConfigError]) -> String {
    wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Parses the command line and the config file that it names.
pub fn parse(argv: &[String]) -> Result<Asked, ConfigError> {
    let flags = match flags::parse(argv)? {
        flags::Flags::Print(text) => return Ok(Asked::Print(text)),
        flags::Flags::Given(given) => given,
    };
    let mut given = match flags.text("config") {
        Some(path) => file::parse(&read(Path::new(path))?)?,
        None => Given::default(),
    };
    given.overlay(flags);
    Settings::resolve(argv, given).map(|settings| Asked::Run(Box::new(settings)))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|err| ConfigError::Open {
        path: path.display().to_string(),
        reason: match err.kind() {
            std::io::ErrorKind::NotFound => "No such file or directory".to_owned(),
            _ => err.to_string(),
        },
    })
}

#[cfg(test)]
mod tests;

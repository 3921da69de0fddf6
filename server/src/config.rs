//! From the command line and mongod's YAML file to settled values, in two steps.
//!
//! ```text
//!   argv ---------+
//!                 +--> given: "net.port" -> "27018"  --> Settings, typed and checked
//!   --config file-+          (flags win over the file)
//! ```
//! Step one knows names only: [`options`] lists every option of mongod with its flag and its dotted name
//! in the file, and whether we have it. Step two ([`settings`]) knows meanings. An option that mongod has
//! and we don't is refused by name; one that only tunes WiredTiger is taken, and a warning says so.

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
    /// Print this text and leave with success.
    Print(String),
}

/// Why a command line or config file can't be used. The texts are mongod's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A flag that mongod doesn't have either, or one without its argument.
    #[error("Error parsing command line: {0}")]
    CommandLine(String),
    /// A key of the file that mongod doesn't have either.
    #[error("Unrecognized option: {0}")]
    UnknownKey(String),
    /// The config file isn't readable.
    #[error("Error opening config file '{path}': {reason}")]
    Open {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The config file isn't YAML.
    #[error("Error parsing YAML config file: {0}")]
    Yaml(String),
    /// A value of the wrong type.
    #[error("Error parsing option \"{name}\" as {kind}: {reason}")]
    Type {
        /// Flag or key, as it was written.
        name: String,
        /// The type it should have.
        kind: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// A value out of its range.
    #[error("{0}")]
    Value(String),
    /// More than one of these.
    #[error("{}", listed(.0))]
    Several(Vec<ConfigError>),
    /// An option of mongod that this server does not have.
    #[error("Option '{name}' is an option of mongod that this server does not support: {why}")]
    Unsupported {
        /// Flag or key, as it was written.
        name: String,
        /// What to do instead.
        why: &'static str,
    },
}

/// One line each.
fn listed(wrong: &[ConfigError]) -> String {
    wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads the command line, and the file it names.
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

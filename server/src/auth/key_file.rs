//! The key file: the secret shared by the members of a set, in mongod's format.
//!
//! It contains one key as plain text, or a YAML list of two while an old one is being replaced. White space within a
//! key is ignored; the rest must be in the Base64 alphabet.

use std::{fmt, io, os::unix::fs::PermissionsExt, path::Path};

use serde_json::Value;

/// The keys, the current one first. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys(Vec<String>);

/// Why a key file is invalid. The texts are mongod's.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the sentences say it")]
pub enum KeyFileError {
    #[error("Error reading file {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("permissions on {path} are too open")]
    TooOpen { path: String },
    #[error("{path} is not readable YAML: {reason}")]
    Yaml { path: String, reason: String },
    #[error("Only strings and sequences are supported for YAML key files")]
    Shape,
    #[error("invalid char in key file {path}")]
    Character { path: String },
    #[error(
        "Security key size is out range: a key in {path} has {len} characters, it must have 6 to 1024"
    )]
    Length { path: String, len: usize },
    #[error("Only two keys are supported in the security key file: {path} has {count}")]
    Count { path: String, count: usize },
}

const KEY_LEN_MIN: usize = 6;
const KEY_LEN_MAX: usize = 1024;
const KEYS_MAX: usize = 2;
/// Permission bits that let others than the owner read or change the file.
const OTHERS: u32 = 0o077;

impl Keys {
    /// Reads a key file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let name = || path.display().to_string();
        let failed = |source| KeyFileError::Read { path: name(), source };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.permissions().mode() & OTHERS != 0 {
            return Err(KeyFileError::TooOpen { path: name() });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(failed)?, &name())
    }

    fn parse(text: &str, path: &str) -> Result<Self, KeyFileError> {
        // A key that YAML would parse as a number or a boolean is a valid key.
        let plain = text.chars().all(|c| is_of_key(c) || c.is_ascii_whitespace());
        let written: Vec<String> = if text.trim().is_empty() {
            return Err(KeyFileError::Shape);
        } else if plain {
            vec![text.to_owned()]
        } else {
            Self::from_yaml(text, path)?
        };
        if written.len() > KEYS_MAX {
            return Err(KeyFileError::Count { path: path.to_owned(), count: written.len() });
        }
        written.iter().map(|key| clean(key, path)).collect::<Result<_, _>>().map(Self)
    }

    /// Parses strings, whatever type YAML would give them.
    fn from_yaml(text: &str, path: &str) -> Result<Vec<String>, KeyFileError> {
        if let Ok(keys) = serde_saphyr::from_str::<Vec<String>>(text) {
            return if keys.is_empty() { Err(KeyFileError::Shape) } else { Ok(keys) };
        }
        if let Ok(key) = serde_saphyr::from_str::<String>(text) {
            return Ok(vec![key]);
        }
        match serde_saphyr::from_str::<Value>(text) {
            Ok(_) => Err(KeyFileError::Shape),
            // The parser's error might quote the key, so it is not shown.
            Err(_) => {
                let reason = "write one key, or a list of two".to_owned();
                Err(KeyFileError::Yaml { path: path.to_owned(), reason })
            }
        }
    }

    /// Iterates over the keys, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// True for characters of the Base64 alphabet.
fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')
}

fn clean(key: &str, path: &str) -> Result<String, KeyFileError> {
    let key: String = key.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    if !key.chars().all(is_of_key) {
        return Err(KeyFileError::Character { path: path.to_owned() });
    }
    if !(KEY_LEN_MIN..=KEY_LEN_MAX).contains(&key.len()) {
        return Err(KeyFileError::Length { path: path.to_owned(), len: key.len() });
    }
    Ok(key)
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Result<Vec<String>, String> {
        let keys = Keys::parse(text, "k").map_err(|error| error.to_string())?;
        Ok(keys.iter().map(str::to_owned).collect())
    }

    #[test]
    fn one_key_or_two() {
        assert_eq!(keys("abcdef\n").unwrap(), ["abcdef"]);
        assert_eq!(keys("ab cd\nef+/=\n").unwrap(), ["abcdef+/="]);
        assert_eq!(keys("123456").unwrap(), ["123456"]);
        assert_eq!(keys("0012345").unwrap(), ["0012345"]);
        assert_eq!(keys("- abcdef\n- 'ghijkl'\n").unwrap(), ["abcdef", "ghijkl"]);
        assert_eq!(keys("- 0012345\n- 12e4567\n").unwrap(), ["0012345", "12e4567"]);
        assert_eq!(keys("['abcdef', ghijkl]").unwrap(), ["abcdef", "ghijkl"]);
        assert_eq!(keys("\"abcdef\"\n").unwrap(), ["abcdef"]);
        assert_eq!(keys("# the key\nabcdef\n").unwrap(), ["abcdef"]);
    }

    #[test]
    fn what_mongod_refuses() {
        for (text, says) in [
            ("abc", "Security key size is out range"),
            (&"a".repeat(1025), "Security key size is out range"),
            ("abc$def", "invalid char in key file k"),
            ("", "Only strings and sequences"),
            ("a: b\n", "Only strings and sequences"),
            ("- abcdef\n- ghijkl\n- mnopqr\n", "Only two keys"),
        ] {
            let error = keys(text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "abcdef").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(Keys::read(&path), Err(KeyFileError::TooOpen { .. })));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
        assert_eq!(format!("{:?}", Keys::read(&path).unwrap()), "1 keys");
        assert!(matches!(
            Keys::read(dir.path().join("no").as_path()),
            Err(KeyFileError::Read { .. })
        ));
    }
}

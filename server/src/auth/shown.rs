//! Shows a command in an error: mongod's text, without secrets.

use bson::{RawDocument, RawDocumentBuf};
use query::value::{Value, display::Shown};

/// Fields that must not be shown.
const SECRETS: [&str; 5] = ["pwd", "payload", "key", "digestPassword", "speculativeAuthenticate"];

/// Longer commands are truncated.
const SHOWN_LEN_MAX: usize = 10_000;

/// A command without its secrets.
pub(crate) fn without_secrets(body: &RawDocument) -> RawDocumentBuf {
    let mut shown = RawDocumentBuf::new();
    for (name, value) in body.iter().flatten() {
        if SECRETS.contains(&name.as_str()) {
            shown.append(name, "xxx");
        } else {
            shown.append(name, value);
        }
    }
    shown
}

/// The text of a command.
pub fn command(body: &RawDocument) -> String {
    let shown = without_secrets(body);
    let mut text = Shown(Value::Document(shown.as_bytes())).to_string();
    if let Some((end, _)) = text.char_indices().nth(SHOWN_LEN_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let text = command(&rawdoc! { "createUser": "x", "pwd": "hush", "roles": [] });
        assert_eq!(text, "{ createUser: \"x\", pwd: \"xxx\", roles: [] }");
        assert!(command(&rawdoc! { "find": "x".repeat(20_000) }).len() < 11_000);
    }
}

//! Authentication on a fresh connection: users with a password, and members with a key file or a certificate.

mod scram;
mod x509;

use std::time::Duration;

use bson::{RawDocumentBuf, cstr};

pub use scram::ScramAuthenticator;
pub use x509::X509Authenticator;

/// Timeout for each message of a SASL conversation; the connection's own timeout limits the whole.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts the conversation within the hello, which saves a round trip.
fn append_speculation(hello: &mut RawDocumentBuf, mut command: RawDocumentBuf, db: &str) {
    command.append(cstr!("db"), db);
    hello.append(cstr!("speculativeAuthenticate"), command);
}

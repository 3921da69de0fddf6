//! Authentication by the certificate that was presented in the TLS handshake.

use bson::{RawDocumentBuf, rawdoc};
use futures_util::future::BoxFuture;

use super::{STEP_TIMEOUT, append_speculation};
use crate::client::{Authenticator, ClientError, Connection, Conversation};

/// Logs in by MONGODB-X509: the peer takes the user's name from the subject of our certificate.
#[derive(Debug, Clone, Copy)]
pub struct X509Authenticator;

const DB: &str = "$external";

fn command() -> RawDocumentBuf {
    rawdoc! { "authenticate": 1, "mechanism": "MONGODB-X509" }
}

impl Authenticator for X509Authenticator {
    fn begin(&self, hello: &mut RawDocumentBuf) -> Box<dyn Conversation + '_> {
        append_speculation(hello, command(), DB);
        Box::new(*self)
    }
}

impl Conversation for X509Authenticator {
    fn finish<'a>(
        self: Box<Self>,
        connection: &'a mut Connection,
    ) -> BoxFuture<'a, Result<(), ClientError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            if connection.hello().raw.get_document("speculativeAuthenticate").is_ok() {
                return Ok(());
            }
            connection.run(DB, command(), STEP_TIMEOUT).await.map(drop)
        })
    }
}

//! authenticate: authenticates by the certificate of the TLS handshake.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use protocol::Fields;

use super::{Api, Auth, Command, Run};
use crate::{context::Call, error::Failure};

pub(super) const COMMAND: Command = Command {
    name: "authenticate",
    help: "Logs in by MONGODB-X509: the client's certificate names the user.",
    auth: Auth::None,
    fields: super::Fields::Only(&["mechanism", "user", "nonce", "key", "digestPassword"]),
    api: Api::V1,
    by_op_query: true,
    run: Run::Now(|call| log_in(call, &call.body, &call.db, false).map(Into::into)),
    ..Command::DEFAULT
};

/// Logs in; also used within a hello.
pub(super) fn log_in(
    call: &Call,
    body: &RawDocument,
    db: &str,
    speculative: bool,
) -> Result<RawDocumentBuf, Failure> {
    let fields = Fields::idl("authenticate", body);
    let mechanism = fields.required("mechanism")?.str()?;
    let user = fields.optional("user")?.map(|user| user.str()).transpose()?;
    let user = user.filter(|user| !user.is_empty());
    let name = call.client.login.by_certificate(&call.client, mechanism, db, user, speculative)?;
    Ok(rawdoc! { "dbname": db, "user": name })
}

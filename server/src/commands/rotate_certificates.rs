//! rotateCertificates: reloads the TLS files; open connections are not affected.

use protocol::ErrorCode;

use super::{Auth, Command, Run, action};
use crate::{
    context::{Call, Outcome, Reply},
    error::Failure,
};

pub(super) const COMMAND: Command = Command {
    name: "rotateCertificates",
    help: "Reads the certificates and keys of TLS again.",
    auth: Auth::Cluster(action("rotateCertificates")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let Some(tls) = &call.node().auth.tls else {
        let text = "Ssl is not configured or not initialized";
        return Err(Failure::said(ErrorCode::IllegalOperation, text));
    };
    tls.rotate().map_err(|error| {
        tracing::error!(target: "ACCESS", id = 4913010, ctx = call.client.name(), %error,
            "Certificate rotation failed; the old certificates stay in use");
        Failure::said(ErrorCode::InvalidSSLConfiguration, error.to_string())
    })?;
    tracing::info!(target: "ACCESS", id = 4913012, ctx = call.client.name(),
        "Successfully rotated X509 certificates");
    Ok(Reply::empty())
}

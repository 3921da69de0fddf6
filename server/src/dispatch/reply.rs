//! What every reply ends with.

use bson::{RawDocumentBuf, raw::cstr};

use super::Generic;
use crate::{context::Client, error::Failure};

/// Appends `ok` and what the node adds.
pub(super) fn end_success(_client: &Client, generic: &Generic, body: &mut RawDocumentBuf) {
    body.append(cstr!("ok"), 1.0);
    let _ = generic;
}

/// The reply that a failure becomes.
pub(super) fn failure(client: &Client, _generic: &Generic, failure: &Failure) -> RawDocumentBuf {
    let mut body = RawDocumentBuf::new();
    if let Some(label) = failure.label() {
        body.append(cstr!("errorLabels"), bson::RawArrayBuf::from_iter([label]));
    }
    failure.append_to(&mut body, client.node.profile());
    body
}

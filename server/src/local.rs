//! The database `local`: what belongs to this node alone.
//!
//! The oplog is the store's own; everything else is documents about the node, one or none in a collection.

use bson::{RawDocumentBuf, rawdoc};
use protocol::RawDoc;
use storage::Store;

use crate::error::Failure;

/// The oplog.
pub const OPLOG: &str = "oplog.rs";

/// The collections of node documents, by what a mongod calls them.
pub const NODE_COLLECTIONS: &[&str] = &[
    "replset.election",
    "replset.initialSyncId",
    "replset.minvalid",
    "replset.oplogTruncateAfterPoint",
    "startup_log",
    "system.replset",
    "system.rollback.id",
];

/// The documents of a node collection; empty if there is no such collection.
pub fn documents(store: &Store, coll: &str) -> Result<Vec<RawDoc>, Failure> {
    let doc = match coll {
        "replset.election" => store.vote()?,
        name if NODE_COLLECTIONS.contains(&name) => store.meta(&format!("local.{name}"))?,
        _ => None,
    };
    Ok(doc.into_iter().collect())
}

/// The options of the oplog's collection.
pub fn oplog_options(store: &Store) -> RawDocumentBuf {
    let size = i64::try_from(store.oplog().max_bytes()).unwrap_or(i64::MAX);
    let mut options = rawdoc! { "capped": true };
    match i32::try_from(size) {
        Ok(size) => options.append(bson::raw::cstr!("size"), size),
        Err(_) => options.append(bson::raw::cstr!("size"), size),
    }
    options.append(bson::raw::cstr!("autoIndexId"), false);
    options
}

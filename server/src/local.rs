//! The database `local`: what belongs to this node alone.
//!
//! The oplog is the store's own; everything else is documents about the node, one or none in a collection.

use bson::{Binary, DateTime, RawDocumentBuf, rawdoc, spec::BinarySubtype};
use protocol::RawDoc;
use storage::Store;
use uuid::Uuid;

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
        "replset.initialSyncId" => Some(initial_sync_id(store)?),
        name if NODE_COLLECTIONS.contains(&name) => store.meta(&format!("local.{name}"))?,
        _ => None,
    };
    Ok(doc.into_iter().collect())
}

/// Names our copy of the data: who clones us sees by it that we have not been synced anew meanwhile.
fn initial_sync_id(store: &Store) -> Result<RawDoc, Failure> {
    use repl::io::kept::INITIAL_SYNC_ID as NAME;
    if let Some(doc) = store.meta(NAME)? {
        return Ok(doc);
    }
    let bytes = Uuid::new_v4().as_bytes().to_vec();
    let id = Binary { subtype: BinarySubtype::Uuid, bytes };
    let doc = rawdoc! { "_id": id, "wallTime": DateTime::now() };
    store.put_meta(NAME, &doc)?;
    Ok(doc.into())
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

//! Shows how far back reads can go and the size of the history, for serverStatus and replSetGetStatus.

use bson::{DateTime, RawDocumentBuf, Timestamp, raw::CString, raw::cstr, rawdoc};

use super::sizes;
use crate::context::Node;

/// Maximum number of collections shown individually; the rest is summed up.
const COLLECTIONS_MAX: usize = 100;

/// The actual extent: what can be read now, not what was configured.
pub(super) fn extent(node: &Node) -> RawDocumentBuf {
    let Ok(store) = node.store() else { return RawDocumentBuf::new() };
    let window = node.parameters.history_window();
    let marks = store.watermarks();
    let (oldest, newest) = (marks.oldest(), marks.applied().op_time.ts);
    let date = |ts: protocol::Timestamp| DateTime::from_millis(i64::from(ts.secs()) * 1000);
    let mut doc = rawdoc! {
        "window": window.to_string(),
        "oldestReadable": Timestamp::from(oldest),
        "oldestReadableDate": date(oldest),
        "newestReadable": Timestamp::from(newest),
        "newestReadableDate": date(newest),
        "reachSecs": i64::from(newest.secs().saturating_sub(oldest.secs())),
        "bytes": sizes::long(store.history_bytes()),
        "droppedBytes": sizes::long(store.dropped_bytes()),
    };
    if let Some(max) = window.bytes_max(store.data_bytes()) {
        doc.append(cstr!("bytesMax"), sizes::long(max));
    }
    doc
}

/// The section of serverStatus: the extent, and its size by collection, largest first.
pub(super) fn section(node: &Node) -> RawDocumentBuf {
    let mut doc = extent(node);
    let Ok(store) = node.store() else { return doc };
    let mut collections = RawDocumentBuf::new();
    let (mut unnamed, mut others) = ((0, 0), (0, 0));
    for (at, (ns, versions, bytes)) in store.history_by_collection().into_iter().enumerate() {
        let cost = rawdoc! { "versions": sizes::long(versions), "bytes": sizes::long(bytes) };
        let name = ns.as_ref().filter(|_| at < COLLECTIONS_MAX);
        match (name.and_then(|ns| CString::try_from(ns.as_str()).ok()), ns) {
            (Some(name), _) => collections.append(name, cost),
            (None, None) => unnamed = (unnamed.0 + versions, unnamed.1 + bytes),
            (None, Some(_)) => others = (others.0 + versions, others.1 + bytes),
        }
    }
    let sum = |(versions, bytes)| {
        rawdoc! { "versions": sizes::long(versions), "bytes": sizes::long(bytes) }
    };
    doc.append(cstr!("collections"), collections);
    doc.append(cstr!("otherCollections"), sum(others));
    doc.append(cstr!("catalogAndUnnamed"), sum(unnamed));
    doc
}

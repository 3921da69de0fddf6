//! Capped collections below feature compatibility version 5.0.
//!
//! Since 5.0 the primary logs every delete of a capped collection. Before, each member trims by itself: after an
//! insert it keeps the longest suffix, in insertion order, that is within size and count.

use protocol::Namespace;
use storage::{Apply, Collection};

use super::{Applier, ApplyError, Moment};

impl Applier {
    /// Removes the oldest documents of a capped collection that exceeds its limits.
    pub(super) fn trim_capped(
        &self,
        batch: &mut Apply,
        coll: &Collection,
        at: Moment,
    ) -> Result<(), ApplyError> {
        let Some(bounds) = coll.capped() else { return Ok(()) };
        loop {
            let (documents, bytes) = batch.size_of(coll);
            let over = bytes > bounds.size || bounds.max.is_some_and(|max| documents > max);
            if !over || documents <= 1 || !members_trim(batch)? {
                return Ok(());
            }
            let Some(oldest) = batch.oldest_record(coll)? else { return Ok(()) };
            let Ok(Some(id)) = oldest.get("_id") else { return Ok(()) };
            batch.delete(at.ts, coll, id)?;
        }
    }
}

/// True if the set's feature compatibility version leaves trimming to the members.
fn members_trim(batch: &mut Apply) -> Result<bool, ApplyError> {
    fcv_begins_with(batch, "4.")
}

/// True if the set's feature compatibility version begins with `begins`.
pub(super) fn fcv_begins_with(batch: &mut Apply, begins: &str) -> Result<bool, ApplyError> {
    let Some(versions) = batch.collection_by_name(&Namespace::new("admin", "system.version"))
    else {
        return Ok(false);
    };
    let fcv = batch.get(&versions, bson::RawBsonRef::String("featureCompatibilityVersion"))?;
    Ok(fcv
        .is_some_and(|fcv| fcv.get_str("version").is_ok_and(|version| version.starts_with(begins))))
}

//! Reading `local.oplog.rs`.
//!
//! The filter is almost always a range of `ts`, which is the oplog's key, so the scan reads only that range. Entries
//! that are not applied yet are not visible.

use std::ops::Bound;

use bson::{RawBsonRef, RawDocument};
use protocol::Timestamp;

use crate::{context::Call, error::Failure};

/// Refuses reads in states in which our oplog is not the set's history.
pub(super) fn refuse_in_startup(call: &Call) -> Result<(), Failure> {
    use repl::MemberState::{Rollback, Startup, Startup2};
    let state = call.node().repl().map(repl::Repl::member_state);
    if matches!(state, Some(Startup | Startup2 | Rollback)) {
        let text = "Oplog collection reads are not allowed while in the rollback or startup state.";
        return Err(Failure::NotPrimaryOrSecondary(text));
    }
    Ok(())
}

/// The whole oplog.
pub(super) const ALL: (Bound<Timestamp>, Bound<Timestamp>) = (Bound::Unbounded, Bound::Unbounded);

/// The bounds on `ts` at the top level of a filter.
pub(super) fn range_of_ts(filter: &RawDocument) -> (Bound<Timestamp>, Bound<Timestamp>) {
    let mut range = ALL;
    match filter.get("ts") {
        Ok(Some(RawBsonRef::Timestamp(ts))) => {
            range = (Bound::Included(ts.into()), Bound::Included(ts.into()));
        }
        Ok(Some(RawBsonRef::Document(operators))) => {
            for (name, value) in operators.iter().flatten() {
                let RawBsonRef::Timestamp(ts) = value else { continue };
                match name.as_str() {
                    "$gte" => range.0 = Bound::Included(ts.into()),
                    "$gt" => range.0 = Bound::Excluded(ts.into()),
                    "$lte" => range.1 = Bound::Included(ts.into()),
                    "$lt" => range.1 = Bound::Excluded(ts.into()),
                    "$eq" => range = (Bound::Included(ts.into()), Bound::Included(ts.into())),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    range
}

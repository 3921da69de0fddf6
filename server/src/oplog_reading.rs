//! A cursor over the oplog.
//!
//! Its filter is almost always a range of `ts`, which is the oplog's key: the scan begins there and reads nothing
//! else. What is not applied yet is not in sight.

use std::ops::Bound;

use bson::{RawBsonRef, RawDocument, raw::cstr};
use protocol::Timestamp;
use query::{
    matcher::{Matcher, ParseContext},
    projection::Projection,
    source::Direction,
};

use crate::{
    batch::BatchWriter,
    blocking,
    context::Call,
    cursors::{Filled, Reading},
    error::Failure,
};

/// The cursor.
pub struct OplogReading {
    matcher: Matcher,
    direction: Direction,
    from: Bound<Timestamp>,
    /// Where a forward scan can end: an upper bound of `ts`.
    until: Option<Timestamp>,
    left: Option<u64>,
    projection: Option<Projection>,
    record_ids: bool,
}

impl OplogReading {
    /// Whether entries show their place.
    pub fn show_record_ids(&mut self, shown: bool) {
        self.record_ids = shown;
    }

    /// Finds the place to begin at.
    pub fn open(
        call: &Call,
        filter: &RawDocument,
        natural: Option<Direction>,
        limit: Option<u64>,
        projection: Option<Projection>,
    ) -> Result<Self, Failure> {
        let matcher = Matcher::parse(filter, &ParseContext::default())?;
        let direction = natural.unwrap_or(Direction::Forward);
        let (low, mut high) = range_of_ts(filter);
        // A pinned connection sees the oplog of its moment.
        if let Some(pinned) = call.client.pinned() {
            high = match high {
                Bound::Included(ts) | Bound::Excluded(ts) if ts <= pinned => high,
                _ => Bound::Included(pinned),
            };
        }
        refuse_in_startup(call)?;
        Ok(Self {
            matcher,
            direction,
            from: match direction {
                Direction::Forward => low,
                Direction::Backward => high,
            },
            until: match (direction, high) {
                (Direction::Forward, Bound::Included(ts) | Bound::Excluded(ts)) => Some(ts),
                _ => None,
            },
            left: limit,
            projection,
            record_ids: false,
        })
    }
}

/// In these states our oplog is not the set's history.
fn refuse_in_startup(call: &Call) -> Result<(), Failure> {
    use repl::MemberState::{Rollback, Startup, Startup2};
    let state = call.node().repl().map(repl::Repl::member_state);
    if matches!(state, Some(Startup | Startup2 | Rollback)) {
        let text = "Oplog collection reads are not allowed while in the rollback or startup state.";
        return Err(Failure::NotPrimaryOrSecondary(text));
    }
    Ok(())
}

/// The bounds that a filter sets to `ts` at its top level.
fn range_of_ts(filter: &RawDocument) -> (Bound<Timestamp>, Bound<Timestamp>) {
    let mut range = (Bound::Unbounded, Bound::Unbounded);
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

impl Reading for OplogReading {
    fn fill(
        &mut self,
        call: &Call,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        let context = blocking::query_context(call, None);
        let direction = match self.direction {
            Direction::Forward => storage::Direction::Forward,
            Direction::Backward => storage::Direction::Backward,
        };
        for (at, item) in call.node().store()?.oplog().scan(self.from, direction).enumerate() {
            if batch.count() >= limit {
                return Ok(Filled::More);
            }
            if at % 1024 == 1023 {
                context.check()?;
            }
            let (ts, doc) = item?;
            if self.until.is_some_and(|until| ts > until) {
                return Ok(Filled::Exhausted);
            }
            if self.matcher.check(&doc, &context)? {
                let projection = self.projection.as_ref();
                let mut shown =
                    projection.map(|wanted| wanted.apply(&doc, &context)).transpose()?;
                if self.record_ids {
                    // mongod's places in the oplog are its times.
                    let id = i64::from_le_bytes(ts.as_u64().to_le_bytes());
                    shown
                        .get_or_insert_with(|| doc.as_raw().to_owned())
                        .append(cstr!("$recordId"), id);
                }
                if !batch.push(shown.as_deref().unwrap_or(&doc)) {
                    return Ok(Filled::More);
                }
                self.left = self.left.map(|left| left.saturating_sub(1));
            }
            self.from = Bound::Excluded(ts);
            if self.left == Some(0) {
                return Ok(Filled::Exhausted);
            }
        }
        Ok(Filled::AtEnd)
    }
}

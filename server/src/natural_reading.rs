//! A cursor in natural order that knows its place: what a clone resumes by, and what tails a capped collection.

use std::ops::Bound;

use bson::{Binary, RawBsonRef, RawDocumentBuf, raw::cstr, spec::BinarySubtype};
use protocol::{ErrorCode, RawDoc};
use query::{matcher::Matcher, projection::Projection, source::Direction};
use storage::RecordKey;
use uuid::Uuid;

use crate::{
    batch::BatchWriter,
    blocking,
    context::Call,
    cursors::{Filled, Reading, Remarks},
    error::Failure,
    local,
    read_time::ReadTime,
    source,
};

/// What is read, and from where.
pub struct NaturalOptions {
    /// The collection.
    pub uuid: Uuid,
    /// The moment.
    pub time: ReadTime,
    /// Which documents.
    pub matcher: Matcher,
    /// Which way.
    pub direction: Direction,
    /// How many to leave out.
    pub skip: u64,
    /// How many at most.
    pub limit: Option<u64>,
    /// Whether to wait at the end.
    pub tailable: bool,
    /// Whether batches tell their place.
    pub tokens: bool,
    /// The place to go on from.
    pub after: Option<RawDoc>,
    /// Which fields are shown.
    pub projection: Option<Projection>,
    /// Whether documents show their place.
    pub record_ids: bool,
}

/// The cursor.
pub struct NaturalReading {
    options: NaturalOptions,
    place: Option<RecordKey>,
    sync_id: Option<RawDocumentBuf>,
    given: u64,
}

/// How often a long scan asks whether it should go on.
const CHECK_EVERY: u64 = 1024;

impl NaturalReading {
    /// At the beginning, or after the place of a resume token.
    pub fn open(call: &Call, options: NaturalOptions) -> Result<Self, Failure> {
        let place = options.after.as_deref().map(place_of).transpose()?.flatten();
        // 8.x puts the id of the initial sync into its tokens, so that places of before are refused.
        let sync_id = match call.profile().resume_tokens_name_initial_sync {
            true => {
                local::documents(call.node().store()?, "replset.initialSyncId", call.profile())?
                    .pop()
            }
            false => None,
        };
        let sync_id = sync_id.and_then(|doc| {
            let id = doc.get("_id").ok().flatten()?;
            let mut wrapped = RawDocumentBuf::new();
            wrapped.append(cstr!("$initialSyncId"), id);
            Some(wrapped)
        });
        if let (Some(token), Some(own)) = (options.after.as_deref(), &sync_id) {
            let (theirs, ours) = (token.get("$initialSyncId"), own.get("$initialSyncId"));
            if let (Ok(Some(theirs)), Ok(Some(ours))) = (theirs, ours)
                && theirs != ours
            {
                let text =
                    "$initialSyncId mismatch: the data was synced anew since the token was made";
                return Err(Failure::said(ErrorCode::from_code(8132701), text));
            }
        }
        Ok(Self { options, place, sync_id, given: 0 })
    }
}

fn place_of(token: &bson::RawDocument) -> Result<Option<RecordKey>, Failure> {
    match token.get("$recordId") {
        Ok(Some(RawBsonRef::Binary(place))) => Ok(Some(RecordKey::from_bytes(place.bytes))),
        Ok(Some(RawBsonRef::Null)) => Ok(None),
        _ => {
            let text = "Malformed resume token: the '_resumeAfter' object must contain '$recordId', of type BinData";
            Err(Failure::said(ErrorCode::from_code(7738600), text))
        }
    }
}

impl Reading for NaturalReading {
    fn fill(
        &mut self,
        call: &Call,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        let view = call.node().store()?.view(self.options.time.at)?;
        let Some(collection) = view.catalog().by_uuid(self.options.uuid) else {
            let text = "collection dropped or its UUID changed between batches";
            return Err(Failure::said(ErrorCode::QueryPlanKilled, text));
        };
        let context = blocking::query_context(call, None);
        let direction = match self.options.direction {
            Direction::Forward => storage::Direction::Forward,
            Direction::Backward => storage::Direction::Backward,
        };
        let from = self.place.clone();
        let start = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut looked_at: u64 = 0;
        for item in view.scan(&collection, start, direction) {
            if batch.count() >= limit {
                return Ok(Filled::More);
            }
            let (key, doc) = item?;
            looked_at += 1;
            if looked_at.is_multiple_of(CHECK_EVERY) {
                context.check()?;
            }
            if self.options.matcher.check(&doc, &context)? {
                let projection = self.options.projection.as_ref();
                let mut shown =
                    projection.map(|wanted| wanted.apply(&doc, &context)).transpose()?;
                if self.options.record_ids {
                    let id = source::record_id(&collection, key.as_bytes());
                    shown
                        .get_or_insert_with(|| doc.as_raw().to_owned())
                        .append(cstr!("$recordId"), id);
                }
                if self.options.skip > 0 {
                    self.options.skip -= 1;
                } else if batch.push(shown.as_deref().unwrap_or(&doc)) {
                    self.given += 1;
                } else {
                    return Ok(Filled::More);
                }
            }
            self.place = Some(key);
            if self.options.limit.is_some_and(|most| self.given >= most) {
                return Ok(Filled::Exhausted);
            }
        }
        Ok(if self.options.tailable { Filled::AtEnd } else { Filled::Exhausted })
    }

    fn remarks(&self) -> Remarks {
        let token = self.options.tokens.then(|| {
            let mut token = RawDocumentBuf::new();
            match &self.place {
                Some(place) => {
                    let bytes = place.as_bytes().to_vec();
                    token.append(
                        cstr!("$recordId"),
                        Binary { subtype: BinarySubtype::Generic, bytes },
                    );
                }
                None => token.append(cstr!("$recordId"), bson::RawBson::Null),
            }
            if let Some(Ok(Some(id))) = self.sync_id.as_ref().map(|doc| doc.get("$initialSyncId")) {
                token.append(cstr!("$initialSyncId"), id);
            }
            token
        });
        Remarks { resume_token: token, at_cluster_time: self.options.time.snapshot }
    }
}

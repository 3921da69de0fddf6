//! A cursor in natural order with a known position, for resumable scans and for tailing the oplog or a capped
//! collection.
//!
//! N1 A cursor whose position was removed ends with an error. It never continues after the gap, because what lay
//!    between is unknown.

use bson::{Binary, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, spec::BinarySubtype};
use protocol::{ErrorCode, Profile, RawDoc, Timestamp};
use query::{
    QueryError,
    matcher::Matcher,
    projection::Projection,
    source::{Direction, RecordKey},
    value::Value,
};

use super::{
    batch::BatchWriter,
    cursors::{Filled, Reading, Remarks},
    first_batch::running_prefix,
    moment::ReadTime,
    opened::{Opened, Subject},
    surroundings,
};
use crate::{context::Call, error::Failure, local};

/// What to read, and from where.
pub(crate) struct NaturalOptions {
    /// The timestamp.
    pub(crate) time: ReadTime,
    /// The filter.
    pub(crate) matcher: Matcher,
    /// The direction.
    pub(crate) direction: Direction,
    /// Number of documents to skip.
    pub(crate) skip: u64,
    /// Maximum number of documents.
    pub(crate) limit: Option<u64>,
    /// Whether to wait at the end.
    pub(crate) tailable: bool,
    /// Whether batches contain a resume token.
    pub(crate) tokens: bool,
    /// The resume token to start after.
    pub(crate) after: Option<RawDoc>,
    /// The projection.
    pub(crate) projection: Option<Projection>,
    /// Whether documents show their record id.
    pub(crate) record_ids: bool,
}

/// The cursor.
pub(crate) struct NaturalReading {
    subject: Subject,
    options: NaturalOptions,
    /// The last record that was read.
    place: Option<RecordKey>,
    /// This cursor has read a record itself.
    moved: bool,
    /// The last batch reached the end of the data.
    at_end: bool,
    /// `$initialSyncId` for resume tokens.
    sync_id: Option<RawDocumentBuf>,
    profile: &'static Profile,
    given: u64,
}

/// Records between checks for interruption.
const CHECK_EVERY: u64 = 1024;

impl NaturalReading {
    /// Opens it at the start, or after the position of a resume token.
    pub(crate) fn open(
        call: &Call,
        opened: &Opened,
        options: NaturalOptions,
    ) -> Result<Self, Failure> {
        let profile = call.profile();
        let token = options.after.as_deref();
        let place = token.map(|token| place_of(token, profile)).transpose()?.flatten();
        // 8.x includes the id of the initial sync in its tokens, so that tokens from before a resync are refused.
        let sync_id = match profile.resume_tokens_name_initial_sync {
            true => local::documents(call.node().store()?, "replset.initialSyncId", profile)?.pop(),
            false => None,
        };
        let sync_id = sync_id.and_then(|doc| {
            let id = doc.get("_id").ok().flatten()?;
            let mut wrapped = RawDocumentBuf::new();
            wrapped.append(cstr!("$initialSyncId"), id);
            Some(wrapped)
        });
        if let (Some(token), Some(own)) = (token, &sync_id) {
            let (theirs, ours) = (token.get("$initialSyncId"), own.get("$initialSyncId"));
            if let (Ok(Some(theirs)), Ok(Some(ours))) = (theirs, ours)
                && theirs != ours
            {
                let text =
                    "$initialSyncId mismatch: the data was synced anew since the token was made";
                return Err(Failure::said(ErrorCode::from_code(8132701), text));
            }
        }
        // In other collections records are in `_id` order: after a removed one, the next is still right.
        if let Some(place) = place.as_ref().filter(|_| opened.is_capped())
            && opened.source().fetch(place)?.is_none()
        {
            return Err(Failure::Query(not_resumable(opened, place, profile)));
        }
        let subject = opened.subject.clone();
        let (moved, at_end, given) = (false, false, 0);
        Ok(Self { subject, options, place, moved, at_end, sync_id, profile, given })
    }

    /// Fills a batch from an open view.
    pub(crate) fn fill_from(
        &mut self,
        call: &Call,
        opened: &Opened,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        self.read(call, opened, batch, limit).map_err(|failure| match failure {
            Failure::Query(error) if error.code == ErrorCode::CappedPositionLost => {
                Failure::Query(self.lost(call, opened, error))
            }
            other => other,
        })
    }

    fn read(
        &mut self,
        call: &Call,
        opened: &Opened,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        let context = surroundings::query_context(call);
        let source = opened.source();
        let from = self.place.clone();
        let mut looked_at: u64 = 0;
        for record in source.scan(from.as_ref(), self.options.direction) {
            let record = record?;
            if self.is_done() {
                return Ok(self.ended());
            }
            if batch.count() >= limit {
                return Ok(Filled::More);
            }
            looked_at += 1;
            if looked_at.is_multiple_of(CHECK_EVERY) {
                context.check()?;
            }
            if self.options.matcher.check(&record.doc, &context)? {
                let projection = self.options.projection.as_ref();
                let mut shown =
                    projection.map(|wanted| wanted.apply(&record.doc, &context)).transpose()?;
                if self.options.record_ids {
                    let shown = shown.get_or_insert_with(|| record.doc.as_raw().to_owned());
                    append_record_id(shown, source.record_id(&record.key).get());
                }
                if self.options.skip > 0 {
                    self.options.skip -= 1;
                } else if batch.push(shown.as_deref().unwrap_or(&record.doc)) {
                    self.given += 1;
                } else {
                    return Ok(Filled::More);
                }
            }
            self.place = Some(record.key);
            (self.moved, self.at_end) = (true, false);
            if self.is_done() {
                return Ok(self.ended());
            }
        }
        self.at_end = true;
        Ok(match self.place {
            // As in mongod, a cursor on an empty collection does not wait.
            None => Filled::Exhausted,
            Some(_) => self.ended(),
        })
    }

    fn is_done(&self) -> bool {
        self.options.limit.is_some_and(|most| self.given >= most)
    }

    /// A tailable cursor stays open at its end, even if it may return nothing more.
    fn ended(&self) -> Filled {
        if self.options.tailable { Filled::AtEnd } else { Filled::Exhausted }
    }

    /// mongod has a different error for a cursor that waited at the end.
    fn lost(&self, call: &Call, opened: &Opened, error: QueryError) -> QueryError {
        let Some(place) = self.place.as_ref().filter(|_| self.options.tailable && self.at_end)
        else {
            return error;
        };
        let prefix = match self.profile.lost_tail_names_executor {
            true => running_prefix(call, opened.source().namespace().as_str()),
            false => String::new(),
        };
        let text = format!(
            "{prefix}CollectionScan died due to failure to restore tailable cursor position. Last \
             seen record id: {}",
            shown_place(opened, place)
        );
        QueryError { message: text, ..error }
    }

    /// The resume token.
    fn token(&self) -> Option<RawDocumentBuf> {
        let mut token = RawDocumentBuf::new();
        if matches!(self.subject, Subject::Oplog(..)) {
            let place = self.place.as_ref().filter(|_| self.moved).and_then(number_of);
            if self.profile.oplog_tokens_are_times {
                let ts = Timestamp::from_u64(place.unwrap_or(0).cast_unsigned());
                token.append(cstr!("ts"), bson::Timestamp::from(ts));
            } else {
                token.append(cstr!("$recordId"), place?);
            }
            return Some(token);
        }
        match &self.place {
            Some(place) => {
                let bytes = place.as_bytes().to_vec();
                token.append(cstr!("$recordId"), Binary { subtype: BinarySubtype::Generic, bytes });
            }
            None => token.append(cstr!("$recordId"), bson::RawBson::Null),
        }
        if let Some(Ok(Some(id))) = self.sync_id.as_ref().map(|doc| doc.get("$initialSyncId")) {
            token.append(cstr!("$initialSyncId"), id);
        }
        Some(token)
    }
}

/// The position in a resume token. Ours are bytes; numbers in mongod's tokens are positions in the oplog.
fn place_of(token: &RawDocument, profile: &Profile) -> Result<Option<RecordKey>, Failure> {
    match token.get("$recordId") {
        Ok(Some(RawBsonRef::Binary(place))) => Ok(Some(RecordKey::from_bytes(place.bytes))),
        Ok(Some(RawBsonRef::Int64(place))) => Ok(Some(RecordKey::from_bytes(&place.to_be_bytes()))),
        Ok(Some(RawBsonRef::Null)) => Ok(None),
        _ => {
            let text = format!("Malformed resume token: {}", profile.resume_token_rule);
            Err(Failure::said(ErrorCode::BadValue, text))
        }
    }
}

fn not_resumable(opened: &Opened, place: &RecordKey, profile: &Profile) -> QueryError {
    let text = format!(
        "Failed to resume collection scan: the recordId from which we are attempting to resume no \
         longer exists in the collection{}{}",
        profile.lost_place_frame,
        shown_place(opened, place)
    );
    QueryError::new(ErrorCode::KeyNotFound, text)
}

fn shown_place(opened: &Opened, place: &RecordKey) -> String {
    let id = opened.source().record_id(place);
    format!("RecordId({})", query::value::Shown(id.get()))
}

/// The number in a record key, if it is one.
fn number_of(place: &RecordKey) -> Option<i64> {
    <[u8; 8]>::try_from(place.as_bytes()).ok().map(i64::from_be_bytes)
}

fn append_record_id(doc: &mut RawDocumentBuf, id: Value<'_>) {
    match id {
        Value::Int64(number) => doc.append(cstr!("$recordId"), number),
        Value::Binary { bytes, .. } => {
            let (subtype, bytes) = (BinarySubtype::Generic, bytes.to_vec());
            doc.append(cstr!("$recordId"), Binary { subtype, bytes });
        }
        _ => {}
    }
}

impl Reading for NaturalReading {
    fn fill(
        &mut self,
        call: &Call,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure> {
        let opened = Opened::again(call, self.options.time.at, self.subject.clone())?;
        self.fill_from(call, &opened, batch, limit)
    }

    fn remarks(&self) -> Remarks {
        let resume_token = if self.options.tokens { self.token() } else { None };
        Remarks { resume_token, at_cluster_time: self.options.time.snapshot }
    }
}

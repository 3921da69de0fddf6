//! Parses the arguments of find.

use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf, raw::cstr};
use protocol::{ErrorCode, Fields, RawDoc};
use query::{
    planner,
    source::Direction,
    value::{Shown, Value},
};

use super::super::{aggregate, variables::Variables};
use crate::{
    context::Call,
    error::Failure,
    read::{
        first_batch::{FIRST_BATCH, First},
        surroundings,
    },
};

/// The parsed arguments.
#[derive(Debug, Clone)]
pub(in crate::commands) struct Asked {
    pub(super) filter: RawDoc,
    pub(super) sort: Option<RawDoc>,
    pub(super) hint: Option<RawDoc>,
    pub(super) collation: Option<RawDoc>,
    pub(super) projection: Option<RawDoc>,
    pub(super) resume_after: Option<RawDoc>,
    pub(super) min: Option<RawDoc>,
    pub(super) max: Option<RawDoc>,
    pub(super) variables: Variables,
    pub(super) skip: u64,
    pub(super) limit: Option<u64>,
    pub(super) batch_size: Option<u64>,
    pub(super) disk_use: Option<bool>,
    single_batch: bool,
    pub(super) tailable: bool,
    await_data: bool,
    no_timeout: bool,
    pub(super) resume_token: bool,
    pub(super) return_key: bool,
    pub(super) show_record_id: bool,
}

const KNOWN: &[&str] = &[
    "find",
    "filter",
    "projection",
    "sort",
    "hint",
    "skip",
    "limit",
    "batchSize",
    "ntoreturn",
    "singleBatch",
    "tailable",
    "awaitData",
    "noCursorTimeout",
    "oplogReplay",
    "allowPartialResults",
    "allowDiskUse",
    "min",
    "max",
    "returnKey",
    "showRecordId",
    "collation",
    "let",
    "term",
    "encryptionInformation",
    "querySettings",
    "includeQueryStatsMetrics",
    "legacyRuntimeConstants",
    "resumeAfter",
    "startAt",
    "requestResumeToken",
];

impl Asked {
    pub(in crate::commands) fn parse(call: &Call) -> Result<Self, Failure> {
        let fields = Fields::idl("FindCommandRequest", &call.body);
        fields.only(KNOWN)?;
        if !call.profile().takes_let && fields.get("let")?.is_some() {
            let body = Shown(Value::from(&*call.body));
            let text = format!("Failed to parse: {body}. Unrecognized field 'let'.");
            return Err(Failure::said(ErrorCode::FailedToParse, text));
        }
        // Only members of 4.4 and 5.0 send it.
        if !call.profile().takes_ntoreturn && fields.get("ntoreturn")?.is_some() {
            return Err(protocol::fields::FieldError::Unknown {
                path: "FindCommandRequest.ntoreturn".into(),
            }
            .into());
        }
        if fields.optional("$_startAt")?.is_some() {
            let text = "find with '$_startAt' is not supported yet";
            return Err(Failure::said(ErrorCode::NotImplemented, text));
        }
        let optional_flag = |name| flag(call, name);
        let flag = |name| Ok::<_, Failure>(optional_flag(name)?.unwrap_or(false));
        optional_flag("allowPartialResults")?;
        check_replay(call)?;
        let number = |name| -> Result<Option<u64>, Failure> {
            Ok(fields.optional(name)?.map(|value| value.non_negative()).transpose()?)
        };
        let doc = |name| document(call, &fields, name);
        let given = |name| Ok::<_, Failure>(doc(name)?.filter(|doc| !doc.is_empty()));
        // Members of 4.4 and 5.0 send `ntoreturn`: the limit of a single batch, or else the size of the first.
        let single_batch = flag("singleBatch")?;
        let (legacy_limit, legacy_batch) = match number("ntoreturn")? {
            Some(n) if single_batch => (Some(n), None),
            other => (None, other),
        };
        let asked = Self {
            filter: doc("filter")?.unwrap_or_else(|| RawDoc::from(bson::rawdoc! {})),
            sort: given("sort")?,
            hint: hint(&fields)?,
            collation: given("collation")?,
            projection: given("projection")?,
            resume_after: given("$_resumeAfter")?,
            min: given("min")?,
            max: given("max")?,
            variables: Variables::parse(&fields, &surroundings::query_context(call))?,
            skip: number("skip")?.unwrap_or(0),
            limit: number("limit")?.or(legacy_limit).filter(|limit| *limit > 0),
            batch_size: number("batchSize")?.or(legacy_batch),
            disk_use: optional_flag("allowDiskUse")?,
            single_batch,
            tailable: flag("tailable")?,
            await_data: flag("awaitData")?,
            no_timeout: flag("noCursorTimeout")?,
            resume_token: flag("$_requestResumeToken")?,
            return_key: flag("returnKey")?,
            show_record_id: flag("showRecordId")?,
        };
        asked.check()?;
        Ok(asked)
    }

    fn check(&self) -> Result<(), Failure> {
        self.natural_hint()?;
        if self.await_data && !self.tailable {
            let text = "Cannot set 'awaitData' without also setting 'tailable'";
            return Err(Failure::said(ErrorCode::FailedToParse, text));
        }
        if self.tailable {
            let sorted = self.sort.is_some() && self.natural_sort()? != Some(Direction::Forward);
            let refused = match (sorted, self.single_batch) {
                (true, _) => Some("a sort other than {$natural: 1}"),
                (false, true) => Some("the 'singleBatch' option"),
                (false, false) => None,
            };
            if let Some(refused) = refused {
                let text = format!("cannot use tailable option with {refused}");
                return Err(Failure::said(ErrorCode::BadValue, text));
            }
        }
        if self.resume_after.is_some() && !self.resume_token {
            let text = "'requestResumeToken' must be true if 'resumeAfter' is specified";
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        if self.resume_token && self.natural_hint()? != Some(Direction::Forward) {
            let text = "hint must be {$natural:1} if 'requestResumeToken' is enabled";
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        if let (Some(min), Some(max)) = (&self.min, &self.max)
            && !min.iter().flatten().map(|(n, _)| n).eq(max.iter().flatten().map(|(n, _)| n))
        {
            let text = "min and max must have the same field names";
            return Err(Failure::said(ErrorCode::from_code(51176), text));
        }
        Ok(())
    }

    /// Checks that sort and hint agree on natural order. mongod checks this after the filter, before the projection.
    pub(super) fn check_natural(&self) -> Result<(), Failure> {
        if self.natural_sort()?.is_some() && self.hint.is_some() && self.natural_hint()?.is_none() {
            let text = "index hint not allowed with $natural sort order";
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        if let (Some(sort), Some(hint)) = (self.natural_sort()?, self.natural_hint()?)
            && sort != hint
        {
            let text = "$natural hint must be in the same direction as $natural sort order";
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        Ok(())
    }

    /// The filter as written.
    pub(in crate::commands) fn filter(&self) -> &RawDoc {
        &self.filter
    }

    /// The projection as written.
    pub(in crate::commands) fn shown_projection(&self) -> Option<RawDocumentBuf> {
        self.projection.as_ref().map(|doc| doc.as_raw().to_owned())
    }

    pub(super) fn hint_value(&self) -> Option<RawBsonRef<'_>> {
        self.hint.as_ref().and_then(|hint| hint.get("").ok().flatten())
    }

    fn natural_hint(&self) -> Result<Option<Direction>, Failure> {
        match self.hint_value() {
            Some(RawBsonRef::Document(hint)) => Ok(planner::natural(hint, "hint")?),
            _ => Ok(None),
        }
    }

    /// The direction of `$natural`, in the sort or in the hint.
    pub(super) fn natural(&self) -> Result<Option<Direction>, Failure> {
        Ok(self.natural_sort()?.or(self.natural_hint()?))
    }

    pub(super) fn natural_sort(&self) -> Result<Option<Direction>, Failure> {
        match &self.sort {
            Some(sort) => Ok(planner::natural(sort, "sort")?),
            None => Ok(None),
        }
    }

    /// The find as a pipeline, to run over a view.
    fn pipeline(&self, sorts: bool) -> RawArrayBuf {
        let mut stages = RawArrayBuf::new();
        if !self.filter.is_empty() {
            stages.push(stage_of(cstr!("$match"), RawBsonRef::Document(&self.filter)));
        }
        if let Some(sort) = self.sort.as_ref().filter(|_| sorts) {
            stages.push(stage_of(cstr!("$sort"), RawBsonRef::Document(sort)));
        }
        let number = |n: u64| RawBsonRef::Int64(i64::try_from(n).unwrap_or(i64::MAX));
        if self.skip > 0 {
            stages.push(stage_of(cstr!("$skip"), number(self.skip)));
        }
        if let Some(limit) = self.limit {
            stages.push(stage_of(cstr!("$limit"), number(limit)));
        }
        if let Some(projection) = &self.projection {
            stages.push(stage_of(cstr!("$project"), RawBsonRef::Document(projection)));
        }
        stages
    }

    /// The find as an aggregation.
    pub(in crate::commands) fn aggregation(&self) -> Result<aggregate::Asked, Failure> {
        let sorted = self.single_batch && self.natural_sort()?.is_none();
        if let Some(sort) = self.sort.as_ref().filter(|_| sorted) {
            query::sort::SortPattern::parse(sort, None)?;
        }
        let refused = [
            (self.return_key, "Option returnKey"),
            (self.show_record_id, "Option showRecordId"),
            (self.tailable, "Tailable cursors are"),
            // A single document is a single batch anyway.
            (self.single_batch && self.limit != Some(1), "Option singleBatch"),
        ];
        for (asked, name) in refused {
            if asked {
                let text = format!("{name} not supported in aggregation.");
                return Err(Failure::said(ErrorCode::InvalidPipelineOperator, text));
            }
        }
        let natural = self.natural_sort()?.map(|direction| {
            let way = if direction == Direction::Forward { 1 } else { -1 };
            wrapped(RawBsonRef::Document(&bson::rawdoc! { "$natural": way }))
        });
        Ok(aggregate::Asked {
            pipeline: self.pipeline(natural.is_none()),
            collation: self.collation.clone(),
            variables: self.variables.clone(),
            hint: natural.or_else(|| self.hint.clone()),
            disk_use: self.disk_use,
            first: First { aggregates: true, ..self.first() },
        })
    }

    /// True for a read by `_id` alone, which is quick enough to run at once.
    pub(super) fn is_point_read(&self) -> bool {
        let mut fields = self.filter.iter();
        let (Some(Ok((name, value))), None) = (fields.next(), fields.next()) else { return false };
        let plain = match value {
            RawBsonRef::Document(doc) => doc
                .iter()
                .next()
                .is_none_or(|first| first.is_ok_and(|(name, _)| !name.as_str().starts_with('$'))),
            RawBsonRef::RegularExpression(_) | RawBsonRef::Array(_) => false,
            _ => true,
        };
        name.as_str() == "_id" && plain && self.hint.is_none() && self.collation.is_none()
    }

    /// True if the projection uses metadata.
    fn wants_notes(&self) -> bool {
        let says_meta = |doc: &RawDoc| doc.as_bytes().windows(6).any(|part| part == b"$meta\0");
        self.projection.as_ref().is_some_and(says_meta)
    }

    /// True if the metadata of each document is needed.
    pub(super) fn is_noted(&self) -> bool {
        self.return_key || self.show_record_id || self.wants_notes()
    }

    /// The fields in which a projection shows the sort key.
    pub(super) fn sort_keys(&self) -> Vec<Box<[u8]>> {
        let fields = self.projection.iter().flat_map(|doc| doc.iter().flatten());
        fields
            .filter(|(_, value)| {
                let meta = value.as_document().and_then(|doc| doc.get_str("$meta").ok());
                meta == Some("sortKey")
            })
            .map(|(name, _)| name.as_str().as_bytes().into())
            .collect()
    }

    pub(super) fn first(&self) -> First {
        let size =
            self.batch_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(FIRST_BATCH);
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        First {
            size: size.min(limit),
            limit: self.limit,
            single: self.single_batch,
            no_timeout: self.no_timeout,
            tailable: self.tailable,
            await_data: self.await_data,
            aggregates: false,
        }
    }
}

/// An optional boolean. Before 6.0 a number is accepted, too.
pub(in crate::commands) fn flag(call: &Call, name: &'static str) -> Result<Option<bool>, Failure> {
    match call.body.get(name) {
        Ok(Some(RawBsonRef::Boolean(flag))) => Ok(Some(flag)),
        Ok(Some(other)) if !call.profile().typed_reads => Err(match &*call.name {
            "find" => mistyped_on_4_4(name, other, "bool"),
            _ => {
                let found = protocol::fields::type_name(&other);
                let text = format!("{name} must be a boolean, not a {found}");
                Failure::said(ErrorCode::TypeMismatch, text)
            }
        }),
        Ok(Some(other)) => {
            let text = format!(
                "Field '{name}' should be a boolean value, but found: {}",
                protocol::fields::type_name(&other)
            );
            Err(Failure::said(ErrorCode::TypeMismatch, text))
        }
        _ => Ok(None),
    }
}

/// Checks the type of `oplogReplay`, which has no effect any more; mongod's text, including its mistake.
fn check_replay(call: &Call) -> Result<(), Failure> {
    match call.body.get("oplogReplay") {
        Ok(Some(other)) if !matches!(other, RawBsonRef::Boolean(_)) => {
            Err(if !call.profile().typed_reads {
                mistyped_on_4_4("oplogReplay", other, "bool")
            } else {
                let text = "Expected field oplogReplayto be of type object";
                Failure::said(ErrorCode::TypeMismatch, text)
            })
        }
        _ => Ok(()),
    }
}

fn mistyped_on_4_4(name: &str, value: RawBsonRef<'_>, wanted: &str) -> Failure {
    let shown = query::value::Value::from_raw(value)
        .map_or_else(String::new, |value| query::value::Shown(value).to_string());
    let text =
        format!("Failed to parse: {name}: {shown}. '{name}' field must be of BSON type {wanted}.");
    Failure::said(ErrorCode::FailedToParse, text)
}

/// A hint, wrapped under the empty name: an index's name or key pattern.
pub(in crate::commands) fn hint(fields: &Fields<'_>) -> Result<Option<RawDoc>, Failure> {
    Ok(match fields.get("hint")?.map(|value| value.raw()) {
        None => None,
        Some(RawBsonRef::Document(hint)) if hint.is_empty() => None,
        Some(RawBsonRef::Document(hint)) => Some(wrapped(RawBsonRef::Document(hint))),
        Some(RawBsonRef::String(name)) => Some(wrapped(RawBsonRef::String(name))),
        Some(_) => {
            let text = "Hint must be a string or an object";
            return Err(Failure::said(ErrorCode::FailedToParse, text));
        }
    })
}

/// A document with the value under the empty name.
fn wrapped(value: RawBsonRef<'_>) -> RawDoc {
    let mut doc = RawDocumentBuf::new();
    doc.append(cstr!(""), value);
    doc.into()
}

/// A stage with one field.
pub(in crate::commands) fn stage_of(
    name: &bson::raw::CStr,
    value: RawBsonRef<'_>,
) -> RawDocumentBuf {
    let mut stage = RawDocumentBuf::new();
    stage.append(name, value);
    stage
}

fn document(
    call: &Call,
    fields: &Fields<'_>,
    name: &'static str,
) -> Result<Option<RawDoc>, Failure> {
    match fields.get(name)?.map(|value| value.raw()) {
        None => Ok(None),
        Some(RawBsonRef::Document(doc)) => Ok(Some(RawDoc::from(doc))),
        Some(other) if !call.profile().typed_reads => Err(mistyped_on_4_4(name, other, "object")),
        // mongod's own text, including the missing space.
        Some(_) => {
            let text = format!("Expected field {name}to be of type object");
            Err(Failure::said(ErrorCode::TypeMismatch, text))
        }
    }
}

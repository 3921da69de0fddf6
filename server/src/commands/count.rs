//! count: the number of matching documents.

use std::sync::Arc;

use bson::{RawBsonRef, rawdoc};
use protocol::{ErrorCode, Fields, Namespace, RawDoc, Timestamp};
use query::{
    collation::Collator,
    expression::Scope,
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
};
use storage::View;

use super::{Command, Run, aggregate, find, sizes};
use crate::{
    context::{Call, Node, Outcome},
    error::Failure,
    read::{
        blocking, collation,
        first_batch::while_running,
        moment::ReadTime,
        opened::{Named, Opened},
        surroundings,
        target::Target,
    },
};

pub(super) const COMMAND: Command = Command {
    name: "count",
    help: "Counts documents of a collection.",
    run: Run::Waiting(|call| blocking::reading_documents(call, is_held, run)),
    ..Command::READ
};

const KNOWN: &[&str] = &[
    "count",
    "query",
    "limit",
    "skip",
    "hint",
    "collation",
    "fields",
    "queryOptions",
    "encryptionInformation",
    "includeQueryStatsMetrics",
    "querySettings",
];

/// The parsed arguments.
pub(super) struct Asked {
    pub(super) query: Option<RawDoc>,
    pub(super) skip: u64,
    /// 0 means no limit.
    pub(super) limit: u64,
    pub(super) collation: Option<RawDoc>,
    pub(super) hint: Option<RawDoc>,
}

impl Asked {
    pub(super) fn parse(call: &Call) -> Result<Self, Failure> {
        let fields = Fields::idl("count", &call.body);
        fields.only(KNOWN)?;
        let query = fields.optional("query")?.map(|query| query.document()).transpose()?;
        let collation = fields.optional("collation")?.map(|spec| spec.document()).transpose()?;
        // A negative limit means its absolute value.
        let limit = match fields.get("limit")? {
            None => 0,
            Some(limit) if !is_number(limit.raw()) => {
                let text = "limit value is not a valid number";
                return Err(Failure::said(ErrorCode::BadValue, text));
            }
            Some(limit) => limit.safe_i64()?,
        };
        if !call.profile().typed_commands
            && fields.get("skip")?.is_some_and(|skip| !is_number(skip.raw()))
        {
            return Err(Failure::said(ErrorCode::BadValue, "skip value is not a valid number"));
        }
        let hint = find::hint(&fields)?;
        if let Some(RawBsonRef::Document(hint)) =
            hint.as_ref().and_then(|hint| hint.get("").ok().flatten())
        {
            planner::natural(hint, "hint")?;
        }
        Ok(Self {
            query: query.filter(|query| !query.is_empty()).map(RawDoc::from),
            skip: fields.optional("skip")?.map_or(Ok(0), |skip| skip.non_negative())?,
            limit: limit.unsigned_abs(),
            collation: collation.filter(|spec| !spec.is_empty()).map(RawDoc::from),
            hint,
        })
    }

    /// The request for the planner.
    pub(super) fn request(
        &self,
        node: &Node,
        opened: &Opened,
        collator: Option<Arc<Collator>>,
    ) -> Result<Request, Failure> {
        let empty = RawDoc::from(rawdoc! {});
        let query = self.query.as_ref().unwrap_or(&empty);
        let parsing = ParseContext { collator: collator.clone() };
        let scope = Scope::of_release(node.profile().release);
        let filter = Matcher::parse_scoped(query, &parsing, &scope)?;
        planner::check_text_request(&filter, false, self.hint.is_some(), false)?;
        let mut request = Request::new(filter);
        request.counts = true;
        request.limit = (self.limit > 0).then(|| self.limit.saturating_add(self.skip));
        let hint = self.hint.as_ref();
        opened.restrict_or_hint(node, &mut request, hint, collator.as_deref())?;
        Ok(request)
    }

    /// The query as a pipeline over a view.
    pub(super) fn pipeline(&self) -> aggregate::Asked {
        let empty = RawDoc::from(rawdoc! {});
        let query = self.query.as_ref().unwrap_or(&empty);
        aggregate::Asked::of_filter(query, self.collation.as_ref(), self.hint.as_ref())
    }

    /// The collation of the count.
    pub(super) fn collator(&self, opened: &Opened) -> Result<Option<Arc<Collator>>, Failure> {
        collation::of_collection(self.collation.as_ref(), opened.collection.as_deref())
    }

    fn cut(&self, all: u64) -> u64 {
        let rest = all.saturating_sub(self.skip);
        if self.limit > 0 { rest.min(self.limit) } else { rest }
    }
}

fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_)
    )
}

/// The total count is known without reading documents, so only a query must wait for prepared transactions.
fn is_held(call: &Call, view: &View, until: Timestamp) -> Result<bool, Failure> {
    Ok(Asked::parse(call)?.query.is_some() && Target::parse(call)?.is_held(view, until)?)
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let asked = Asked::parse(call)?;
    let target = Target::parse(call)?;
    let all = match Opened::target(call, time, &target, asked.query.as_deref())? {
        Named::Here(opened) => of_collection(call, &opened, &asked, opened.namespace(&target)?)?,
        Named::View(view) => of_view(call, view, &target, &asked)?,
    };
    Ok(rawdoc! { "n": sizes::number(asked.cut(all)) }.into())
}

fn of_collection(
    call: &Call,
    opened: &Opened,
    asked: &Asked,
    ns: &Namespace,
) -> Result<u64, Failure> {
    // Without a query no text is compared, but an invalid collation is still refused.
    let collator = asked.collator(opened)?;
    if asked.query.is_none() && asked.hint.is_none() {
        return Ok(opened.source().count()?);
    }
    let mut context = surroundings::query_context(call);
    context.collator.clone_from(&collator);
    let request = asked.request(call.node(), opened, collator)?;
    let planned = opened.plan(request, &context)?;
    let mut n = 0;
    let counted = opened.each(call, planned, &context, |_| {
        n += 1;
        Ok(())
    });
    counted.map_err(|failure| while_running(failure, call, ns))?;
    Ok(n)
}

fn of_view(call: &Call, view: View, target: &Target, asked: &Asked) -> Result<u64, Failure> {
    let mut n = 0;
    aggregate::each(call, view, target, &asked.pipeline(), |_, _| {
        n += 1;
        Ok(())
    })?;
    Ok(n)
}

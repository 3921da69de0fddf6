//! distinct: the distinct values of a field.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, RawDoc, Timestamp};
use query::{
    collation::Collator,
    expression::Scope,
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
};
use storage::{View, keystring};

use super::{Api, Command, Run, aggregate, find};
use crate::{
    context::{Call, Node, Outcome, Reply},
    error::Failure,
    read::{
        batch::BATCH_BYTES_MAX,
        blocking, collation,
        first_batch::while_running,
        moment::ReadTime,
        opened::{Named, Opened},
        surroundings,
        target::Target,
    },
};

pub(super) const COMMAND: Command = Command {
    name: "distinct",
    help: "Returns the values of a field, each once.",
    api: Api::None,
    run: Run::Waiting(|call| blocking::reading_documents(call, is_held, run)),
    ..Command::READ
};

/// The parsed arguments.
pub(super) struct Asked {
    key: String,
    pub(super) query: RawDoc,
    collation: Option<RawDoc>,
    hint: Option<RawDoc>,
}

const KNOWN: &[&str] = &[
    "distinct",
    "key",
    "query",
    "collation",
    "hint",
    "encryptionInformation",
    "includeQueryStatsMetrics",
    "querySettings",
];
/// Before 8.0 it does not accept a hint.
const KNOWN_ON_5_0: &[&str] = &["distinct", "key", "query", "collation"];

impl Asked {
    pub(super) fn parse(call: &Call) -> Result<Self, Failure> {
        let newest = call.profile().distinct_takes_hint;
        let name = if newest { "distinctCommandRequest" } else { "distinct" };
        let fields = Fields::idl(name, &call.body);
        fields.only(if newest { KNOWN } else { KNOWN_ON_5_0 })?;
        let key = fields.optional("key")?;
        let missing = || Failure::missing(format!("{name}.key"));
        let key = key.ok_or_else(missing)?.str()?.to_owned();
        let query = fields.optional("query")?.map(|query| query.document()).transpose()?;
        let collation = fields.optional("collation")?.map(|spec| spec.document()).transpose()?;
        Ok(Self {
            key,
            query: query.map_or_else(|| RawDoc::from(rawdoc! {}), RawDoc::from),
            collation: collation.filter(|spec| !spec.is_empty()).map(RawDoc::from),
            hint: find::hint(&fields)?,
        })
    }

    /// The query as a pipeline over a view.
    pub(super) fn pipeline(&self) -> aggregate::Asked {
        aggregate::Asked::of_filter(&self.query, self.collation.as_ref(), self.hint.as_ref())
    }

    /// The request for the planner, and the collation of the values.
    pub(super) fn request(
        &self,
        node: &Node,
        opened: &Opened,
    ) -> Result<(Request, Option<Arc<Collator>>), Failure> {
        let collection = opened.collection.as_deref();
        let collator = collation::of_collection(self.collation.as_ref(), collection)?;
        let parsing = ParseContext { collator: collator.clone() };
        let scope = Scope::of_release(node.profile().release);
        let filter = Matcher::parse_scoped(&self.query, &parsing, &scope)?;
        planner::check_text_request(&filter, false, self.hint.is_some(), false)?;
        let mut request = Request::new(filter);
        let hint = self.hint.as_ref();
        opened.restrict_or_hint(node, &mut request, hint, collator.as_deref())?;
        // If an index provides the values, a missing field is null.
        let path = self.key.as_bytes().to_vec();
        request.needed = planner::held_by_keys(&path).then(|| vec![path.clone()]);
        let collation = collator.as_ref().map(|collator| collator.spec().clone());
        let of_all = self.query.is_empty();
        request.distinct = Some(planner::Values { path, once: false, of_all, collation });
        Ok((request, collator))
    }
}

fn is_held(call: &Call, view: &View, until: Timestamp) -> Result<bool, Failure> {
    Target::parse(call)?.is_held(view, until)
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let asked = Asked::parse(call)?;
    let target = Target::parse(call)?;
    let mut values = Values::new(&asked.key);
    let opened = match Opened::target(call, time, &target, Some(&asked.query))? {
        Named::Here(opened) => opened,
        Named::View(view) => {
            aggregate::each(call, view, &target, &asked.pipeline(), |doc, collator| {
                values.take(doc, collator)
            })?;
            return Ok(reply(values, time));
        }
    };
    let (request, collator) = asked.request(call.node(), &opened)?;
    let mut context = surroundings::query_context(call);
    context.collator.clone_from(&collator);
    let ns = opened.namespace(&target)?;
    if request.filter.text().is_some() && opened.collection.is_none() {
        return Err(find::no_text_index(ns, &opened));
    }
    let planned = opened.plan(request, &context)?;
    opened
        .each(call, planned, &context, |doc| values.take(doc, collator.as_deref()))
        .map_err(|failure| while_running(failure, call, ns))?;
    Ok(reply(values, time))
}

fn reply(values: Values<'_>, time: ReadTime) -> Reply {
    let mut body = rawdoc! { "values": values.found.into_values().collect::<RawArrayBuf>() };
    if let Some(ts) = time.snapshot {
        body.append(cstr!("atClusterTime"), bson::Timestamp::from(ts));
    }
    body.into()
}

/// The values found so far.
struct Values<'a> {
    path: Vec<&'a str>,
    /// By keys that compare like the values, so that 1 equals 1.0: of equal values the first is kept. As in mongod,
    /// this order is that of the reply.
    found: BTreeMap<Vec<u8>, RawBson>,
    bytes: usize,
}

impl<'a> Values<'a> {
    fn new(key: &'a str) -> Self {
        let path = key.split('.').collect();
        Self { path, found: BTreeMap::new(), bytes: 0 }
    }

    fn take(&mut self, doc: &RawDocument, collator: Option<&Collator>) -> Result<(), Failure> {
        let path = self.path.clone();
        self.walk(RawBsonRef::Document(doc), &path, collator)
    }

    /// Follows the path; an array on it, or at its end, is expanded.
    fn walk(
        &mut self,
        value: RawBsonRef<'_>,
        path: &[&str],
        collator: Option<&Collator>,
    ) -> Result<(), Failure> {
        let Some((name, rest)) = path.split_first() else { return self.end(value, collator) };
        match value {
            RawBsonRef::Document(doc) => match doc.get(name) {
                Ok(Some(next)) => self.walk(next, rest, collator),
                _ => Ok(()),
            },
            RawBsonRef::Array(array) => {
                // A number is an array index, never a field of the elements.
                if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() {
                    return match name.parse().ok().map(|at| array.get(at)) {
                        Some(Ok(Some(element))) => self.walk(element, rest, collator),
                        _ => Ok(()),
                    };
                }
                for element in array.into_iter().flatten() {
                    if matches!(element, RawBsonRef::Document(_)) {
                        self.walk(element, path, collator)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, value: RawBsonRef<'_>, collator: Option<&Collator>) -> Result<(), Failure> {
        if let RawBsonRef::Array(array) = value {
            return array.into_iter().flatten().try_for_each(|element| self.put(element, collator));
        }
        self.put(value, collator)
    }

    fn put(&mut self, value: RawBsonRef<'_>, collator: Option<&Collator>) -> Result<(), Failure> {
        let mut key = Vec::new();
        match query::value::Value::from_raw(value) {
            Some(value) => keystring::append(&mut key, value, false, collator)?,
            None => key = keystring::encode_raw(value)?,
        }
        let Entry::Vacant(place) = self.found.entry(key) else { return Ok(()) };
        self.bytes += place.key().len();
        if self.bytes > BATCH_BYTES_MAX {
            let text = "distinct too big, 16mb cap";
            return Err(Failure::said(ErrorCode::from_code(17217), text));
        }
        place.insert(RawBson::from(value));
        Ok(())
    }
}

//! distinct: the values of a field, each once.

use std::{collections::BTreeSet, sync::Arc};

use bson::{RawArrayBuf, RawBsonRef, RawDocument, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, RawDoc, Timestamp};
use query::{
    collation::Collator,
    exec::Input,
    expression::Scope,
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
    source::Source,
};
use storage::{View, keystring};

use super::{
    Api, Command, Run, aggregate, collation, find, first_batch::while_running, target::Target,
    view_rows::ViewRows,
};
use crate::{
    batch::BATCH_BYTES_MAX,
    blocking,
    context::{Call, Node, Outcome, Reply},
    error::Failure,
    index_use,
    read_time::ReadTime,
    source::CollectionSource,
    views,
};

pub(super) const COMMAND: Command = Command {
    name: "distinct",
    help: "Returns the values of a field, each once.",
    api: Api::None,
    run: Run::Waiting(|call| blocking::reading_documents(call, is_held, run)),
    ..Command::READ
};

/// What is asked for.
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
/// Before 8.0 it took no hint.
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

    /// The query as the planner takes it, and the collation of the values.
    pub(super) fn request(
        &self,
        node: &Node,
        source: &CollectionSource,
    ) -> Result<(Request, Option<Arc<Collator>>), Failure> {
        let collator =
            collation::of_collection(self.collation.as_ref(), Some(source.collection()))?;
        let parsing = ParseContext { collator: collator.clone() };
        let scope = Scope::of_release(node.profile().release);
        let filter = Matcher::parse_scoped(&self.query, &parsing, &scope)?;
        planner::check_text_request(&filter, false, self.hint.is_some(), false)?;
        let mut request = Request::new(filter);
        let hint = self.hint.as_ref();
        aggregate::with_hint(node, &mut request, hint, collator.as_deref(), source)?;
        // Where an index holds the values, what is missing is null.
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
    let view = call.node().store()?.view(time.at)?;
    let mut values = Values::new(&asked.key);
    let found = target.collection(&view)?;
    if let Some(collection) = found {
        let ns = collection.ns().clone();
        let source = CollectionSource::new(view, collection)?;
        let mut context = blocking::query_context(call, None);
        let (request, collator) = asked.request(call.node(), &source)?;
        context.collator.clone_from(&collator);
        let running = |error: query::QueryError| while_running(error.into(), call, &ns);
        let uuid = source.collection().uuid();
        let (mut pipeline, chosen) = planner::plan(request, &source, &context)?;
        call.node().index_use.note(uuid, index_use::names(&chosen.access, source.indexes()));
        let mut input = Input::new(&source, &context);
        while let Some(doc) = pipeline.next(&mut input).map_err(running)? {
            values.take(&doc, collator.as_deref())?;
        }
    } else if views::exists(&view, target.name()?)? {
        let stages = RawArrayBuf::from_iter([find::stage_of(
            cstr!("$match"),
            RawBsonRef::Document(&asked.query),
        )]);
        let mut rows = ViewRows::open(
            call,
            &view,
            &target,
            (asked.collation.as_ref(), asked.hint.as_ref()),
            stages,
        )?;
        let collator = rows.collator();
        rows.each(|doc| values.take(doc, collator.as_deref()))?;
    } else if Matcher::parse(&asked.query, &ParseContext::default())?.text().is_some() {
        return Err(find::no_text_index(target.name()?));
    }
    Ok(reply(values, time))
}

fn reply(values: Values<'_>, time: ReadTime) -> Reply {
    let mut body = rawdoc! { "values": values.list };
    if let Some(ts) = time.snapshot {
        body.append(cstr!("atClusterTime"), bson::Timestamp::from(ts));
    }
    body.into()
}

/// The values found so far, in the order in which they were met.
struct Values<'a> {
    path: Vec<&'a str>,
    /// Keys that compare as the values do: 1 and 1.0 are the same.
    seen: BTreeSet<Vec<u8>>,
    list: RawArrayBuf,
    bytes: usize,
}

impl<'a> Values<'a> {
    fn new(key: &'a str) -> Self {
        let path = key.split('.').collect();
        Self { path, seen: BTreeSet::new(), list: RawArrayBuf::new(), bytes: 0 }
    }

    fn take(&mut self, doc: &RawDocument, collator: Option<&Collator>) -> Result<(), Failure> {
        let path = self.path.clone();
        self.walk(RawBsonRef::Document(doc), &path, collator)
    }

    /// Follows the path; an array on the way, or at its end, counts element by element.
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
                // A number is a place in the array, never a field of its elements.
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
        let len = key.len();
        if !self.seen.insert(key) {
            return Ok(());
        }
        self.bytes += len;
        if self.bytes > BATCH_BYTES_MAX {
            let text = "distinct too big, 16mb cap";
            return Err(Failure::said(ErrorCode::from_code(17217), text));
        }
        self.list.push(bson::RawBson::from(value));
        Ok(())
    }
}

//! distinct: the values of a field, each once.

use std::collections::BTreeSet;

use bson::{RawArrayBuf, RawBsonRef, RawDocument, rawdoc};
use protocol::{ErrorCode, Fields, RawDoc};
use query::{
    collation::Collator,
    exec::Input,
    matcher::{Matcher, ParseContext},
    planner::{self, Request},
};
use storage::keystring;

use super::{Auth, Command, On, Run, Waiting, target::Target, views};
use crate::{
    auth::action::action,
    batch::BATCH_BYTES_MAX,
    blocking,
    context::{Call, Outcome},
    error::Failure,
    read_time::{self, ReadTime},
    source::CollectionSource,
};

pub(super) const COMMAND: Command = Command {
    name: "distinct",
    help: "Returns the values of a field, each once.",
    auth: Auth::Collection(action("find")),
    on: On::Readable,
    takes_concerns: true,
    run: Run::Waiting(|call| Box::pin(run(call)) as Waiting),
    ..Command::DEFAULT
};

async fn run(call: Call) -> Outcome {
    let time = read_time::resolve(&call, call.node().store()?).await?;
    let inner = call.clone();
    blocking::run(&call, move || distinct(&inner, time)).await
}

fn distinct(call: &Call, time: ReadTime) -> Outcome {
    let fields = Fields::idl("distinctCommandRequest", &call.body);
    let target = Target::parse(call)?;
    let key = fields.required("key")?.str()?;
    let query = fields.optional("query")?.map(|query| query.document()).transpose()?;
    let query = query.map_or_else(|| RawDoc::from(rawdoc! {}), RawDoc::from);
    let view = call.node().store()?.view(time.at)?;
    let mut values = Values::new(key);
    let found = target.collection(&view)?;
    if found.is_none() {
        views::refuse(&view, target.name()?)?;
    }
    if let Some(collection) = found {
        let collator = collection.collator().map(|own| Collator::new(own.spec().clone()));
        let collator = collator.transpose()?.map(std::sync::Arc::new);
        let mut parsing = ParseContext::default();
        parsing.collator.clone_from(&collator);
        let filter = Matcher::parse(&query, &parsing)?;
        let source = CollectionSource::new(view, collection)?;
        let context = blocking::query_context(call, None);
        let (mut pipeline, _) = planner::plan(Request::new(filter), &source, &context)?;
        let mut input = Input::new(&source, &context);
        while let Some(doc) = pipeline.next(&mut input)? {
            values.take(&doc, collator.as_deref())?;
        }
    }
    Ok(rawdoc! { "values": values.list }.into())
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
                // A number may be a place in the array as well as a field of its elements.
                if let Some(Ok(Some(element))) = name.parse().ok().map(|at| array.get(at)) {
                    self.walk(element, rest, collator)?;
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
        self.bytes += key.len();
        if !self.seen.insert(key) {
            return Ok(());
        }
        if self.bytes > BATCH_BYTES_MAX {
            let text = "distinct too big, 16mb cap";
            return Err(Failure::said(ErrorCode::from_code(17217), text));
        }
        self.list.push(bson::RawBson::from(value));
        Ok(())
    }
}

//! `$out` and `$merge`: the documents are read here and written to the primary, as a real secondary does.
//!
//! ```text
//!   pipeline, batch by batch --> insert or update commands --> primary
//!                                       |
//!   empty cursor <-- operationTime <----+      the writes are visible to whoever waits for that time
//! ```
//! The client's privileges were checked here; the primary sees a member of its set.

mod merge;
mod out;
mod primary;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, raw::cstr};
use protocol::{ErrorCode, Namespace, RawDoc};
use query::{
    collation::Collator,
    stage::{Write, WriteKind},
};
use storage::View;

use crate::{
    context::{Call, Outcome, Reply},
    error::Failure,
    read::{
        batch::{BatchEnd, BatchWriter},
        cursors::Reading,
        query_cursor::{QueryReading, Taken},
    },
};
use primary::Primary;

/// The inputs of a writing pipeline.
pub(crate) struct Writing<'a> {
    /// The request.
    pub(crate) call: &'a Call,
    /// The view in which the target is examined.
    pub(crate) view: &'a View,
    /// The collation of the pipeline.
    pub(crate) collator: Option<&'a Collator>,
    /// The evaluated variables of the command's `let`.
    pub(crate) variables: Option<&'a RawDocument>,
    /// The stage.
    pub(crate) write: &'a Write,
}

impl Writing<'_> {
    /// Refuses what would certainly fail, before a document is read.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.write.kind {
            WriteKind::Out { .. } => Ok(()),
            WriteKind::Merge(merge) => merge::finds_by_nullish(self, merge).map(drop),
        }
    }

    fn target(&self) -> Namespace {
        Namespace::new(&self.write.database, &self.write.collection)
    }

    /// Runs the pipeline to its end; the reply is an empty cursor of `ns`.
    pub(crate) fn run(&self, ns: &Namespace, mut reading: QueryReading) -> Outcome {
        let mut primary = Primary::of(self.call);
        match &self.write.kind {
            WriteKind::Out { timeseries } => {
                out::run(self, timeseries.as_deref(), &mut reading, &mut primary)?;
            }
            WriteKind::Merge(merge) => merge::run(self, merge, &mut reading, &mut primary)?,
        }
        let at_cluster_time = reading.remarks().at_cluster_time;
        let end = BatchEnd { id: 0, ns: ns.as_str(), resume_token: None, at_cluster_time };
        let body = BatchWriter::first(&self.call.node().reply_buffers).finish(&end)?;
        Ok(Reply { operation_time: primary.operation_time(), ..Reply::from(body) })
    }
}

/// mongod's limits of one command's statements: total size and number.
const STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
const STATEMENTS_MAX: usize = 100_000;
/// Overhead of a statement in the array: its type, its index as text, and the terminator.
const STATEMENT_FRAME: usize = 9;

/// The statements of one write command.
#[derive(Default)]
struct Statements {
    array: RawArrayBuf,
    bytes: usize,
    count: usize,
}

impl Statements {
    /// Adds a statement if there is room; the first always fits.
    fn push(&mut self, statement: RawDocumentBuf) -> bool {
        let bytes = statement.as_bytes().len() + STATEMENT_FRAME;
        let full = self.bytes + bytes > STATEMENT_BYTES_MAX || self.count == STATEMENTS_MAX;
        if self.count > 0 && full {
            return false;
        }
        self.array.push(statement);
        self.bytes += bytes;
        self.count += 1;
        true
    }
}

/// Reads until the command is full; returns the statements, and whether there is more.
fn next_statements(
    call: &Call,
    reading: &mut QueryReading,
    mut make: impl FnMut(&RawDoc, &query::context::Context) -> Result<RawDocumentBuf, Failure>,
) -> Result<(Statements, bool), Failure> {
    let mut statements = Statements::default();
    let more = reading.each(call, |doc, context| {
        let doc = RawDocument::from_bytes(doc)
            .map_err(|error| Failure::said(ErrorCode::InternalError, error.to_string()))?;
        let taken = statements.push(make(&RawDoc::from(doc), context)?);
        Ok(if taken { Taken::Yes } else { Taken::No })
    })?;
    Ok((statements, more))
}

/// A write command with these statements, without a write concern.
fn write_command(
    call: &Call,
    (name, collection): (&bson::raw::CStr, &str),
    (field, statements): (&bson::raw::CStr, Statements),
) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(name, collection);
    command.append(cstr!("bypassDocumentValidation"), bypasses_validation(call));
    command.append(cstr!("ordered"), false);
    command.append(field, statements.array);
    command
}

fn bypasses_validation(call: &Call) -> bool {
    matches!(call.body.get_bool("bypassDocumentValidation"), Ok(true))
}

/// Checks the primary's reply to a write: the first error of a statement, or an unsatisfied write concern.
fn check_written(reply: &RawDoc) -> Result<(), Failure> {
    let bad = |error: bson::error::Error| {
        Failure::said(ErrorCode::InternalError, format!("a reply of the primary: {error}"))
    };
    if let Ok(errors) = reply.get_array("writeErrors")
        && let Some(first) = errors.into_iter().next()
    {
        return Err(primary::failure(first.map_err(bad)?.as_document()));
    }
    match reply.get_document("writeConcernError") {
        Ok(error) => Err(primary::failure(Some(error))),
        Err(_) => Ok(()),
    }
}

//! One oplog entry as a typed view on its raw bytes.
//!
//! ```text
//!  { op: "u", ns: "shop.items", ui: UUID, o: {...}, o2: {_id: 5},        the operation
//!    ts: Timestamp, t: 3, v: 2, wall: Date,                              its position
//!    lsid: {...}, txnNumber: 7, stmtId: 0, prevOpTime: {...} }           the retryable write it belongs to
//! ```
//! Parsing is one pass over the entry's own fields and copies nothing; `o` and `o2` stay raw. Unneeded fields are
//! skipped, as in mongod. An unknown operation or command is an error that names it, since skipping it would silently
//! lose data.

use bson::{RawArray, RawBsonRef, RawDocument, Uuid};

use crate::{
    FieldError, OpTime, Timestamp,
    elements::{Element, Elements},
    fields::{Fields, Value},
};

mod command;

pub use command::{
    ApplyOps, Command, DropTarget, IndexBuild, IndexRef, IndexSpec, RenameCollection,
};

/// Why an entry cannot be parsed. Replication stops at such an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OplogEntryError {
    /// A field is missing or has the wrong type.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// An `op` that a newer MongoDB introduced.
    #[error(
        "oplog entry has the unknown operation '{0}': this version of Understudy cannot apply it"
    )]
    UnknownOp(String),
    /// A command that a newer MongoDB introduced.
    #[error(
        "oplog entry has the unknown command '{0}': this version of Understudy cannot apply it"
    )]
    UnknownCommand(String),
    /// A field has a value that no known release writes.
    #[error("oplog entry has the unknown value {value} in field '{field}'")]
    UnknownValue {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
}

/// A borrowed oplog entry. [`crate::RawDoc::share`] makes any part of it outlive the borrow.
#[derive(Clone, Debug)]
pub struct OplogEntry<'a> {
    /// The whole entry.
    pub raw: &'a RawDocument,
    /// Its position in the history. Entries before the first election have term -1.
    pub op_time: OpTime,
    /// Wall clock time on the primary that wrote it.
    pub wall: bson::DateTime,
    /// Version of the oplog format; 2 in every supported release.
    pub version: i64,
    /// The operation.
    pub op: ReplOperation<'a>,
    /// The session and transaction that wrote it.
    pub session: Option<Session<'a>>,
    /// The previous entry of the same transaction or retryable write; null in the first one.
    pub prev_op_time: Option<OpTime>,
    /// How to treat an applyOps with statement ids (8.0 and later).
    pub multi_op_type: Option<MultiOpType>,
}

/// The session part of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session<'a> {
    /// The logical session.
    pub lsid: &'a RawDocument,
    /// The transaction or retryable write in the session.
    pub txn_number: i64,
    /// How often a router has retried the transaction.
    pub txn_retry_counter: Option<i32>,
}

/// How the operations of an applyOps belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiOpType {
    /// The default: one transaction or one atomic batch.
    Legacy,
    /// A vectored insert: each operation is applied separately, never accumulated into a transaction.
    AppliedSeparately,
}

/// Which image of a retryable findAndModify every node must store itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryImage {
    /// The document before the change.
    PreImage,
    /// The document after the change.
    PostImage,
}

/// The operation of an entry, or one operation inside an applyOps.
#[derive(Clone, Debug)]
pub struct ReplOperation<'a> {
    /// The namespace; `db.$cmd` for a command, empty for most no-ops.
    pub ns: &'a str,
    /// UUID of the collection, which survives renames.
    pub ui: Option<Uuid>,
    /// The kind of operation.
    pub kind: OpKind<'a>,
    /// The inserted document, the update, the key of a delete, or the command.
    pub o: &'a RawDocument,
    /// The key for an insert or update; the previous state for a command.
    pub o2: Option<&'a RawDocument>,
    /// The statement ids of the retryable write that this operation executes.
    pub stmt_ids: StmtIds<'a>,
    /// Position of the no-op entry that holds the pre-image (4.4 and 5.0).
    pub pre_image_op_time: Option<OpTime>,
    /// Position of the no-op entry that holds the post-image (4.4 and 5.0).
    pub post_image_op_time: Option<OpTime>,
    /// The image that every node writes to `config.image_collection` itself.
    pub needs_retry_image: Option<RetryImage>,
    /// Written by a chunk migration; change streams skip it.
    pub from_migrate: bool,
    /// The replicated record id, if the collection replicates record ids.
    pub rid: Option<i64>,
    /// For time-series updates: an inserting diff must first check whether the field exists (8.0 and later).
    pub check_existence_for_diff_insert: bool,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub enum OpKind<'a> {
    /// `o` is inserted.
    Insert,
    /// `o` replaces or modifies the document with the key `o2`.
    Update {
        /// Insert the document if it does not exist (field `b`).
        upsert: bool,
    },
    /// The document with the key `o` is deleted.
    Delete,
    /// No effect on data.
    Noop,
    /// The command in `o`.
    Command(Command<'a>),
}

/// Statement ids: none, one, or an array (5.0 and later).
#[derive(Clone, Copy, Debug)]
pub enum StmtIds<'a> {
    /// Not a retryable write.
    None,
    /// One id.
    One(i32),
    /// Several ids.
    Many(&'a RawArray),
}

impl StmtIds<'_> {
    /// The ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = i32> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(id) => (Some(*id), None),
            Self::Many(ids) => (None, Some(ids.into_iter().flatten().filter_map(|id| id.as_i32()))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// True if there are no ids.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl<'a> OplogEntry<'a> {
    /// Parses an entry of an oplog.
    pub fn parse(raw: &'a RawDocument) -> Result<Self, OplogEntryError> {
        let Parts { op, ts, t, v, wall, lsid, txn_number, txn_retry_counter, prev, multi } =
            Parts::read(raw)?;
        let session = match (lsid, txn_number) {
            (Some(lsid), Some(txn_number)) => Some(Session { lsid, txn_number, txn_retry_counter }),
            _ => None,
        };
        Ok(Self {
            raw,
            op_time: OpTime::new(ts.ok_or_else(|| missing("ts"))?, t.unwrap_or(-1)),
            wall: wall.ok_or_else(|| missing("wall"))?,
            version: v.unwrap_or(1),
            op,
            session,
            prev_op_time: prev,
            multi_op_type: multi,
        })
    }

    /// Reads only the position and wall clock time.
    pub fn op_time_and_wall(raw: &RawDocument) -> Result<crate::OpTimeAndWall, OplogEntryError> {
        let fields = Fields::idl(CONTEXT, raw);
        let t = fields.optional("t")?.map(|t| t.safe_i64()).transpose()?;
        let op_time = OpTime::new(fields.required("ts")?.timestamp()?, t.unwrap_or(-1));
        Ok(crate::OpTimeAndWall { op_time, wall: fields.required("wall")?.date()? })
    }
}

impl<'a> ReplOperation<'a> {
    /// Parses an operation inside an applyOps.
    pub fn parse(raw: &'a RawDocument) -> Result<Self, OplogEntryError> {
        Ok(Parts::read(raw)?.op)
    }

    /// The command, if it is one.
    pub fn command(&self) -> Option<&Command<'a>> {
        match &self.kind {
            OpKind::Command(command) => Some(command),
            _ => None,
        }
    }

    /// The database of [`Self::ns`].
    pub fn db(&self) -> &'a str {
        self.ns.split('.').next().unwrap_or_default()
    }
}

/// The name that mongod uses for an entry in error texts.
const CONTEXT: &str = "OplogEntryBase";

fn missing(name: &'static str) -> FieldError {
    FieldError::Missing { path: format!("{CONTEXT}.{name}") }
}

/// The operation and the entry fields around it.
struct Parts<'a> {
    op: ReplOperation<'a>,
    ts: Option<Timestamp>,
    t: Option<i64>,
    v: Option<i64>,
    wall: Option<bson::DateTime>,
    lsid: Option<&'a RawDocument>,
    txn_number: Option<i64>,
    txn_retry_counter: Option<i32>,
    prev: Option<OpTime>,
    multi: Option<MultiOpType>,
}

/// Fields whose meaning depends on each other, collected before they are interpreted.
#[derive(Default)]
struct Shape<'a> {
    op: Option<&'a str>,
    ns: Option<&'a str>,
    o: Option<&'a RawDocument>,
    upsert: bool,
}

impl<'a> Parts<'a> {
    fn read(raw: &'a RawDocument) -> Result<Self, OplogEntryError> {
        let mut shape = Shape::default();
        let mut parts = Self::empty(raw);
        for element in Elements::of(raw) {
            let element = element.map_err(|_| broken())?;
            parts.take(&mut shape, &element)?;
        }
        parts.finish(shape)
    }

    fn empty(raw: &'a RawDocument) -> Self {
        let op = ReplOperation {
            ns: "",
            ui: None,
            kind: OpKind::Noop,
            o: raw,
            o2: None,
            stmt_ids: StmtIds::None,
            pre_image_op_time: None,
            post_image_op_time: None,
            needs_retry_image: None,
            from_migrate: false,
            rid: None,
            check_existence_for_diff_insert: false,
        };
        Self {
            op,
            ts: None,
            t: None,
            v: None,
            wall: None,
            lsid: None,
            txn_number: None,
            txn_retry_counter: None,
            prev: None,
            multi: None,
        }
    }

    /// Stores one field. Values of unneeded fields are not decoded.
    fn take(
        &mut self,
        shape: &mut Shape<'a>,
        element: &Element<'a>,
    ) -> Result<(), OplogEntryError> {
        match element.name() {
            b"op" => shape.op = Some(str(element)?),
            b"ns" => shape.ns = Some(str(element)?),
            b"o" => shape.o = Some(document(element)?),
            b"o2" => self.op.o2 = Some(document(element)?),
            b"ui" => self.op.ui = Some(quick(element, Element::uuid, |value| value.uuid())?),
            b"ts" => self.ts = Some(quick(element, Element::timestamp, |value| value.timestamp())?),
            b"t" => self.t = Some(integer(element)?),
            b"v" => self.v = Some(integer(element)?),
            b"wall" => self.wall = Some(quick(element, Element::date, |value| value.date())?),
            b"lsid" => self.lsid = Some(document(element)?),
            b"txnNumber" => self.txn_number = Some(integer(element)?),
            _ => self.take_rare(shape, element)?,
        }
        Ok(())
    }

    fn take_rare(
        &mut self,
        shape: &mut Shape<'a>,
        element: &Element<'a>,
    ) -> Result<(), OplogEntryError> {
        let value = || slow(element);
        match element.name() {
            b"b" => shape.upsert = value()?.safe_bool()?,
            b"txnRetryCounter" => self.txn_retry_counter = Some(value()?.safe_i32()?),
            b"prevOpTime" => self.prev = Some(value()?.op_time()?),
            b"multiOpType" => self.multi = Some(multi_op_type(integer(element)?)?),
            b"stmtId" => self.op.stmt_ids = stmt_ids(&value()?)?,
            b"preImageOpTime" => self.op.pre_image_op_time = Some(value()?.op_time()?),
            b"postImageOpTime" => self.op.post_image_op_time = Some(value()?.op_time()?),
            b"needsRetryImage" => self.op.needs_retry_image = Some(retry_image(str(element)?)?),
            b"fromMigrate" => self.op.from_migrate = value()?.safe_bool()?,
            b"rid" => self.op.rid = Some(integer(element)?),
            b"checkExistenceForDiffInsert" => {
                self.op.check_existence_for_diff_insert = value()?.safe_bool()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self, shape: Shape<'a>) -> Result<Self, OplogEntryError> {
        self.op.ns = shape.ns.ok_or_else(|| missing("ns"))?;
        self.op.o = shape.o.ok_or_else(|| missing("o"))?;
        self.op.kind = match shape.op.ok_or_else(|| missing("op"))? {
            "i" => OpKind::Insert,
            "u" => OpKind::Update { upsert: shape.upsert },
            "d" => OpKind::Delete,
            "n" => OpKind::Noop,
            "c" => OpKind::Command(Command::parse(self.op.o, self.op.o2)?),
            other => return Err(OplogEntryError::UnknownOp(other.to_owned())),
        };
        Ok(self)
    }
}

fn str<'a>(element: &Element<'a>) -> Result<&'a str, FieldError> {
    quick(element, Element::str, |value| value.str())
}

fn document<'a>(element: &Element<'a>) -> Result<&'a RawDocument, FieldError> {
    quick(element, Element::document, |value| value.document())
}

fn integer(element: &Element<'_>) -> Result<i64, FieldError> {
    quick(element, Element::integer, |value| value.safe_i64())
}

/// Decodes a value of its usual type quickly. Any other type takes the general way, which yields the value or an
/// error.
#[inline]
fn quick<'a, T>(
    element: &Element<'a>,
    short: impl FnOnce(&Element<'a>) -> Option<T>,
    long: impl FnOnce(&Value<'a>) -> Result<T, FieldError>,
) -> Result<T, FieldError> {
    match short(element) {
        Some(value) => Ok(value),
        None => long(&slow(element)?),
    }
}

#[cold]
fn slow<'a>(element: &Element<'a>) -> Result<Value<'a>, FieldError> {
    match (str::from_utf8(element.name()), element.value()) {
        (Ok(name), Ok(raw)) => Ok(Value::new(CONTEXT, name, raw)),
        _ => Err(broken()),
    }
}

fn broken() -> FieldError {
    FieldError::Bson { path: CONTEXT.to_owned() }
}

fn stmt_ids<'a>(value: &Value<'a>) -> Result<StmtIds<'a>, FieldError> {
    match value.raw() {
        RawBsonRef::Array(ids) => {
            for id in value.elements()? {
                id?.int()?;
            }
            Ok(StmtIds::Many(ids))
        }
        _ => Ok(StmtIds::One(value.int()?)),
    }
}

fn retry_image(text: &str) -> Result<RetryImage, OplogEntryError> {
    match text {
        "preImage" => Ok(RetryImage::PreImage),
        "postImage" => Ok(RetryImage::PostImage),
        other => {
            Err(OplogEntryError::UnknownValue { field: "needsRetryImage", value: other.to_owned() })
        }
    }
}

fn multi_op_type(number: i64) -> Result<MultiOpType, OplogEntryError> {
    match number {
        0 => Ok(MultiOpType::Legacy),
        1 => Ok(MultiOpType::AppliedSeparately),
        other => {
            Err(OplogEntryError::UnknownValue { field: "multiOpType", value: other.to_string() })
        }
    }
}

#[cfg(test)]
mod tests;

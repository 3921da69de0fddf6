//! OP_QUERY and OP_REPLY: used in the handshake by drivers, and by mongods before 6.0.
//!
//! ```text
//!  OP_QUERY  | header | flags | namespace\0 | skip | limit | query | [fields] |
//!  OP_REPLY  | header | flags | cursor id (8) | starting from | count | document | ... |
//! ```

use bytes::Bytes;

use crate::{DocRun, ParseError, RawDoc, framing::Frame, wire::Cursor, wire::Sink};

/// An OP_QUERY without its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpQuery {
    /// Flag bits; 4 is secondaryOk.
    pub flags: i32,
    ns: Bytes,
    /// Number of results to skip.
    pub skip: i32,
    /// Number of results wanted; -1 for a command.
    pub limit: i32,
    /// The query, or the command if the namespace ends in `.$cmd`.
    pub query: RawDoc,
    /// A projection.
    pub fields: Option<RawDoc>,
}

impl OpQuery {
    /// The flag that allows a secondary to answer.
    pub const SECONDARY_OK: i32 = 4;

    /// A command on a database.
    pub fn command(db: &str, command: impl Into<RawDoc>) -> Self {
        let db = db.split('\0').next().unwrap_or_default();
        Self {
            flags: Self::SECONDARY_OK,
            ns: format!("{db}.$cmd").into(),
            skip: 0,
            limit: -1,
            query: command.into(),
            fields: None,
        }
    }

    /// The full namespace.
    pub fn ns(&self) -> &str {
        std::str::from_utf8(&self.ns).expect("was checked when it was made")
    }

    /// The database, if this is a command.
    pub fn command_db(&self) -> Option<&str> {
        self.ns().strip_suffix(".$cmd")
    }

    pub(crate) fn parse(frame: &Frame) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(frame.body());
        let flags = cursor.i32()?;
        // mongod closes the connection if it cannot parse the namespace, and so do we.
        let ns = cursor.cstring().map_err(|_| ParseError::TooShort)?;
        std::str::from_utf8(&ns).map_err(|_| ParseError::TooShort)?;
        let (skip, limit) = (cursor.i32()?, cursor.i32()?);
        let query = cursor.doc().map_err(ParseError::QueryBson)?;
        let fields = match cursor.is_empty() {
            true => None,
            false => Some(cursor.doc().map_err(|_| ParseError::Remainder)?),
        };
        if !cursor.is_empty() {
            return Err(ParseError::Remainder);
        }
        Ok(Self { flags, ns, skip, limit, query, fields })
    }

    pub(crate) fn wire_len(&self) -> usize {
        let fields = self.fields.as_ref().map_or(0, |fields| fields.len());
        4 + self.ns.len() + 1 + 8 + self.query.len() + fields
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put(&self.flags.to_le_bytes());
        sink.put(&self.ns);
        sink.put(&[0]);
        sink.put(&self.skip.to_le_bytes());
        sink.put(&self.limit.to_le_bytes());
        sink.share(&self.query.bytes());
        if let Some(fields) = &self.fields {
            sink.share(&fields.bytes());
        }
    }
}

/// An OP_REPLY without its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpReply {
    /// Flag bits; 8 (awaitCapable) is always set by mongod.
    pub flags: i32,
    /// Id of an open cursor, or 0.
    pub cursor_id: i64,
    /// Position in the cursor at which this reply starts.
    pub starting_from: i32,
    /// The documents; one for a command.
    pub docs: DocRun,
}

impl OpReply {
    /// The flag that mongod sets in every reply to a command.
    pub(crate) const AWAIT_CAPABLE: i32 = 8;

    /// The reply to a command.
    pub fn command(body: &RawDoc) -> Self {
        Self { flags: Self::AWAIT_CAPABLE, cursor_id: 0, starting_from: 0, docs: DocRun::one(body) }
    }

    pub(crate) fn parse(frame: &Frame) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(frame.body());
        let flags = cursor.i32()?;
        let cursor_id = cursor.i64()?;
        let (starting_from, count) = (cursor.i32()?, cursor.i32()?);
        let docs = DocRun::parse(cursor.rest())?;
        if usize::try_from(count) != Ok(docs.len()) {
            return Err(ParseError::Remainder);
        }
        Ok(Self { flags, cursor_id, starting_from, docs })
    }

    pub(crate) fn wire_len(&self) -> usize {
        20 + self.docs.bytes().len()
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        let count = i32::try_from(self.docs.len()).unwrap_or(i32::MAX);
        sink.put(&self.flags.to_le_bytes());
        sink.put(&self.cursor_id.to_le_bytes());
        sink.put(&self.starting_from.to_le_bytes());
        sink.put(&count.to_le_bytes());
        sink.share(self.docs.bytes());
    }
}

//! Time-series collections: unpacks buckets to measurements.
//!
//! ```text
//!   { _id, control: {version, min, max, ...}, meta,              a bucket: many measurements, by columns
//!     data: { t: column, temp: column, ... } }
//!        version 1      {"0": v, "1": v, "5": v}                 plain; a gap is a missing number
//!        versions 2, 3  BSONColumn                               compressed, see `column`
//!
//!   -> { t, <meta field>, temp, ... }                            one document for each row of the time column
//! ```

mod column;
mod filter;
mod simple8b;

pub use column::{Cell, Column};
pub(crate) use filter::on_buckets;

use protocol::{ErrorCode, RawDoc};

use crate::{
    error::QueryError,
    expression::DocBuilder,
    value::{Element, Elements, Value},
};

/// An error in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Invalid BSON Column encoding: {0}")]
pub struct ColumnError(&'static str);

impl ColumnError {
    /// Converts it to a query error.
    fn of_query(self) -> QueryError {
        QueryError::new(ErrorCode::InvalidBSON, self.to_string())
    }
}

/// How to unpack buckets.
#[derive(Debug, Clone)]
pub struct Unpacking {
    /// The time field.
    pub time: Box<[u8]>,
    /// The meta field, which all measurements of a bucket share, if there is one.
    pub meta: Option<Box<[u8]>>,
    /// The fields to unpack.
    pub fields: Fields,
}

/// The fields to unpack.
#[derive(Debug, Clone)]
pub enum Fields {
    /// All but these.
    Exclude(Vec<Box<[u8]>>),
    /// Only these.
    Include(Vec<Box<[u8]>>),
}

impl Fields {
    fn wants(&self, name: &[u8]) -> bool {
        match self {
            Self::Exclude(names) => !names.iter().any(|known| **known == *name),
            Self::Include(names) => names.iter().any(|known| **known == *name),
        }
    }
}

/// A bucket that is being unpacked.
#[derive(Debug)]
pub struct Bucket {
    doc: RawDoc,
    time: Cells,
    /// Fields in the bucket's order, except the time.
    columns: Vec<(Box<[u8]>, Cells)>,
}

impl Bucket {
    /// Opens a bucket.
    pub fn open(doc: RawDoc, unpacking: &Unpacking) -> Result<Self, QueryError> {
        let fault = |code, what: &str| {
            QueryError::location(code, format!("The $_internalUnpackBucket stage {what}"))
        };
        let field = |name: &[u8]| Elements::new(&doc).find(name);
        let has_meta = field(b"meta").is_some_and(|e| e.type_byte != 0x06);
        if has_meta && unpacking.meta.is_none() {
            return Err(fault(
                5_369_601,
                "expects buckets to have missing metadata regions if the metaField parameter is not \
                 provided",
            ));
        }
        let Some(Value::Document(data)) = field(b"data").map(|e| e.value()) else {
            return Err(fault(5_346_510, "requires the data region to be an object"));
        };
        let (mut time, mut columns) = (None, Vec::new());
        for column in Elements::of_bytes(data) {
            if column.key == &*unpacking.time {
                time = Some(Cells::open(&doc, &column)?);
            } else if unpacking.fields.wants(column.key) {
                columns.push((column.key.into(), Cells::open(&doc, &column)?));
            }
        }
        let time = time.ok_or_else(|| {
            fault(5_346_700, "requires the data region to have a timeField object")
        })?;
        Ok(Self { doc, time, columns })
    }

    /// The next measurement, `None` after the last.
    pub fn next(&mut self, unpacking: &Unpacking) -> Result<Option<Vec<u8>>, QueryError> {
        let mut out = DocBuilder::new();
        let wants_time = unpacking.fields.wants(&unpacking.time);
        let place = match &mut self.time {
            Cells::Column(column) => match column.advance().map_err(ColumnError::of_query)? {
                None => return Ok(None),
                Some(cell) => {
                    if wants_time {
                        push(&mut out, &unpacking.time, cell);
                    }
                    None
                }
            },
            Cells::Plain { doc, at } => {
                let mut elements = Elements::resume(doc, *at);
                let Some(element) = elements.next() else { return Ok(None) };
                *at = elements.at();
                if wants_time {
                    out.push_bytes(&unpacking.time, element.type_byte, element.value_bytes);
                }
                Some(Box::<[u8]>::from(element.key))
            }
        };
        if let Some(name) = unpacking.meta.as_deref().filter(|name| unpacking.fields.wants(name))
            && let Some(meta) = Elements::new(&self.doc).find(b"meta")
        {
            out.push_bytes(name, meta.type_byte, meta.value_bytes);
        }
        for (name, cells) in &mut self.columns {
            match (cells, &place) {
                (Cells::Column(column), _) => {
                    let cell =
                        column.advance().map_err(ColumnError::of_query)?.ok_or_else(|| {
                            QueryError::location(
                                6_067_601,
                                "Bucket unexpectedly contained fewer values than count",
                            )
                        })?;
                    push(&mut out, name, cell);
                }
                (Cells::Plain { doc, at }, Some(place)) => {
                    let mut elements = Elements::resume(doc, *at);
                    if let Some(element) = elements.next().filter(|e| e.key == &**place) {
                        *at = elements.at();
                        out.push_bytes(name, element.type_byte, element.value_bytes);
                    }
                }
                (Cells::Plain { .. }, None) => {
                    return Err(QueryError::new(
                        ErrorCode::InvalidBSON,
                        "a bucket with both compressed and plain columns",
                    ));
                }
            }
        }
        Ok(Some(out.finish()))
    }
}

fn push(out: &mut DocBuilder, name: &[u8], cell: Cell<'_>) {
    if let Cell::Value { type_byte, bytes } = cell {
        out.push_bytes(name, type_byte, bytes);
    }
}

/// One field of a bucket.
#[derive(Debug)]
enum Cells {
    Column(Box<Column>),
    /// A document with row numbers as field names, and the read position in it.
    Plain {
        doc: bytes::Bytes,
        at: usize,
    },
}

impl Cells {
    fn open(bucket: &RawDoc, column: &Element<'_>) -> Result<Self, QueryError> {
        match column.value() {
            Value::Binary { subtype: 7, bytes } => {
                Ok(Self::Column(Box::new(Column::new(bucket.bytes().slice_ref(bytes)))))
            }
            Value::Document(doc) => {
                Ok(Self::Plain { doc: bucket.bytes().slice_ref(doc), at: Elements::START })
            }
            other => Err(QueryError::new(
                ErrorCode::InvalidBSON,
                format!("Invalid BSON type for column: {}", other.type_name()),
            )),
        }
    }
}

#[cfg(test)]
mod tests;

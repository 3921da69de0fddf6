//! BSONColumn: the compressed values of one field (binary subtype 7).
//!
//! ```text
//!   type 00 value                       a literal
//!   1sss nnnn  word{n+1}                deltas to it, in Simple-8b; s is the scale of doubles
//!   f0|f1|f2 document  (literal|deltas)*  00      interleaved: a reference document, one stream for each
//!                                               leaf of it; the leaves of a row are its document
//!   00                                  the end
//! ```
//! C1 A column is decoded value by value and holds only one value: a repetition of a million costs nothing until it
//!    is read.
//! C2 No byte is trusted: every length is checked against the column before it is used.

use bytes::Bytes;

use super::{ColumnError, simple8b::Words};
use crate::value::{Elements, value_size};

/// A decoder of a column.
#[derive(Debug)]
pub struct Column {
    bytes: Bytes,
    at: usize,
    regular: Stream,
    interleaved: Option<Interleaved>,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'c> {
    /// No value in this row.
    Missing,
    /// A value, as type and bytes.
    Value {
        /// The type byte.
        type_byte: u8,
        /// The bytes as in a document.
        bytes: &'c [u8],
    },
}

impl Column {
    /// A decoder at the first value.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0, regular: Stream::default(), interleaved: None }
    }

    /// The next row of the column, `None` at the end.
    pub fn advance(&mut self) -> Result<Option<Cell<'_>>, ColumnError> {
        let found = match self.step()? {
            Step::End => return Ok(None),
            Step::Gap => Cell::Missing,
            Step::Value => self.regular.cell(),
            Step::Row => match &self.interleaved {
                Some(interleaved) => interleaved.cell(),
                None => Cell::Missing,
            },
        };
        Ok(Some(found))
    }

    fn step(&mut self) -> Result<Step, ColumnError> {
        loop {
            if let Some(interleaved) = &mut self.interleaved {
                if interleaved.row(&self.bytes, &mut self.at)? {
                    return Ok(Step::Row);
                }
                // The following deltas may repeat the last row.
                self.regular = Stream::after(interleaved.cell());
                self.interleaved = None;
            }
            if let Some(value) = self.regular.words.next(&self.bytes)? {
                return self.regular.apply(value);
            }
            match control(&self.bytes, self.at)? {
                0 if self.at + 1 == self.bytes.len() => return Ok(Step::End),
                0 => return Err(ColumnError("it ends before its bytes do")),
                0xf0..=0xf2 => {
                    self.interleaved = Some(Interleaved::open(&self.bytes, &mut self.at)?);
                }
                _ => return self.regular.load(&self.bytes, &mut self.at),
            }
        }
    }
}

fn control(bytes: &[u8], at: usize) -> Result<u8, ColumnError> {
    bytes.get(at).copied().ok_or(ColumnError("its bytes end early"))
}

enum Step {
    End,
    Gap,
    Value,
    Row,
}

/// The values of one type after a literal.
#[derive(Debug, Default)]
struct Stream {
    /// 0 before the first literal.
    type_byte: u8,
    value: Vec<u8>,
    /// The last value as a number.
    encoded: u128,
    /// The last difference, for types that are stored as delta-of-delta.
    difference: u64,
    scale: Scale,
    words: Words,
}

/// How doubles are converted to integers.
#[derive(Debug, Clone, Copy, Default)]
enum Scale {
    /// As their bits; also used for every other type.
    #[default]
    Bits,
    /// Multiplied by this factor.
    Times(f64),
}

impl Scale {
    fn of(control: u8) -> Option<Self> {
        Some(match control >> 4 {
            0x8 => Self::Bits,
            0x9 => Self::Times(1.0),
            0xa => Self::Times(10.0),
            0xb => Self::Times(100.0),
            0xc => Self::Times(10_000.0),
            0xd => Self::Times(100_000_000.0),
            _ => return None,
        })
    }
}

impl Stream {
    /// A stream that can only repeat a known last value.
    fn after(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Missing => Self { words: Words::none(), ..Self::default() },
            Cell::Value { type_byte, bytes } => {
                Self { type_byte, value: bytes.into(), words: Words::none(), ..Self::default() }
            }
        }
    }

    fn cell(&self) -> Cell<'_> {
        Cell::Value { type_byte: self.type_byte, bytes: &self.value }
    }

    /// Reads a literal, or the first of a block of deltas.
    fn load(&mut self, bytes: &[u8], at: &mut usize) -> Result<Step, ColumnError> {
        let control = control(bytes, *at)?;
        if control & 0xe0 == 0 || matches!(control, 0x7f | 0xff) {
            // The name of a literal is empty: only the terminator.
            let value = bytes.get(*at + 2..).ok_or(ColumnError("a literal ends early"))?;
            let len = value_size(control, value).ok_or(ColumnError("a malformed literal"))?;
            let value = value.get(..len).ok_or(ColumnError("a literal ends early"))?;
            self.set_literal(control, value);
            *at += 2 + len;
            return Ok(Step::Value);
        }
        let scale = Scale::of(control).ok_or(ColumnError("an invalid control byte"))?;
        self.rescale(scale)?;
        let from = *at + 1;
        let end = from + 8 * (usize::from(control & 0xf) + 1);
        if end >= bytes.len() {
            return Err(ColumnError("a block ends early"));
        }
        *at = end;
        self.words = Words::new(from, end, self.words.last());
        match self.words.next(bytes)? {
            Some(value) => self.apply(value),
            None => Err(ColumnError("a block without a value")),
        }
    }

    fn set_literal(&mut self, type_byte: u8, value: &[u8]) {
        self.type_byte = type_byte;
        self.value.clear();
        self.value.extend_from_slice(value);
        self.difference = 0;
        self.scale = Scale::Bits;
        self.words = Words::none();
        self.encoded = encode(type_byte, value);
    }

    /// Sets the scale of doubles, which may change with each block of deltas.
    fn rescale(&mut self, scale: Scale) -> Result<(), ColumnError> {
        self.scale = scale;
        if self.type_byte != 0x01 {
            return match scale {
                Scale::Bits => Ok(()),
                Scale::Times(_) => Err(ColumnError("a scale for a type that has none")),
            };
        }
        let n = self.value.first_chunk().map_or(f64::NAN, |b| f64::from_le_bytes(*b));
        let whole = match scale {
            Scale::Bits => n.to_bits().cast_signed(),
            Scale::Times(by) => scaled(n, by).ok_or(ColumnError("a double that is not exact"))?,
        };
        self.encoded = u128::from(whole.cast_unsigned());
        Ok(())
    }

    fn apply(&mut self, value: Option<u128>) -> Result<Step, ColumnError> {
        let (Some(delta), true) = (value, self.type_byte != 0) else { return Ok(Step::Gap) };
        let second = matches!(self.type_byte, 0x07 | 0x09 | 0x11);
        if delta == 0 && !second {
            return Ok(Step::Value);
        }
        if is_wide(self.type_byte) {
            let delta = (delta >> 1) ^ (delta & 1).wrapping_neg();
            self.encoded = self.encoded.wrapping_add(delta);
        } else {
            let low = low64(delta);
            let mut delta = (low >> 1) ^ (low & 1).wrapping_neg();
            if second {
                self.difference = self.difference.wrapping_add(delta);
                delta = self.difference;
            }
            self.encoded = u128::from(low64(self.encoded).wrapping_add(delta));
        }
        self.materialize()?;
        Ok(Step::Value)
    }

    /// Decodes the number to a value of the stream's type, replacing the last one.
    fn materialize(&mut self) -> Result<(), ColumnError> {
        let n = low64(self.encoded);
        match self.type_byte {
            0x01 => {
                let double = match self.scale {
                    Scale::Bits => f64::from_bits(n),
                    #[allow(clippy::cast_precision_loss, reason = "this is how they are decoded")]
                    Scale::Times(by) => n.cast_signed() as f64 / by,
                };
                self.put(&double.to_le_bytes());
            }
            0x07 => self.put_object_id(n),
            0x08 => self.put(&[u8::from(n != 0)]),
            0x09 | 0x11 | 0x12 => self.put(&n.to_le_bytes()),
            #[allow(clippy::cast_possible_truncation, reason = "an int is the low half")]
            0x10 => self.put(&(n as u32).to_le_bytes()),
            0x13 => self.put(&self.encoded.to_le_bytes()),
            0x02 | 0x0d => self.put_text(),
            0x05 => {
                let bytes = self.encoded.to_le_bytes();
                let len = self.value.len().saturating_sub(5);
                let bytes = bytes.get(..len).ok_or(ColumnError("a delta of long binary data"))?;
                self.value.truncate(5);
                self.value.extend_from_slice(bytes);
            }
            _ => return Err(ColumnError("a delta of a type that has none")),
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        self.value.clear();
        self.value.extend_from_slice(bytes);
    }

    fn put_text(&mut self) {
        let bytes = self.encoded.to_be_bytes();
        let zeros = bytes.iter().take_while(|b| **b == 0).count();
        let text = bytes.get(zeros..).unwrap_or_default();
        let len = u32::try_from(text.len() + 1).unwrap_or(0);
        self.value.clear();
        self.value.extend_from_slice(&len.to_le_bytes());
        self.value.extend_from_slice(text);
        self.value.push(0);
    }

    /// The five bytes in the middle are those of the process and do not change.
    fn put_object_id(&mut self, n: u64) {
        let bytes = n.to_le_bytes();
        for (from, to) in OBJECT_ID_BYTES.into_iter().enumerate() {
            if let (Some(byte), Some(place)) = (bytes.get(from), self.value.get_mut(to)) {
                *place = *byte;
            }
        }
    }
}

/// The byte order of an ObjectId's number: the bytes that change most often are lowest.
const OBJECT_ID_BYTES: [usize; 7] = [11, 3, 10, 2, 9, 1, 0];

fn is_wide(type_byte: u8) -> bool {
    matches!(type_byte, 0x02 | 0x05 | 0x0d | 0x13)
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low64(n: u128) -> u64 {
    n as u64
}

/// Encodes a value as the number that deltas are added to.
fn encode(type_byte: u8, value: &[u8]) -> u128 {
    let number = |bytes: &[u8]| {
        let mut padded = [0; 16];
        padded.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        u128::from_le_bytes(padded)
    };
    match type_byte {
        0x02 | 0x0d => {
            // Text is read with its last byte lowest, since its end changes most; longer text has no number.
            let text = value.get(4..).and_then(|text| text.split_last()).map_or(&[][..], |s| s.1);
            if text.len() > 16 || text.first() == Some(&0) {
                return 0;
            }
            text.iter().fold(0, |n, byte| n << 8 | u128::from(*byte))
        }
        0x05 => value.get(5..).filter(|bytes| bytes.len() <= 16).map_or(0, number),
        0x07 => {
            let bytes = OBJECT_ID_BYTES.map(|at| value.get(at).copied().unwrap_or(0));
            number(&bytes)
        }
        0x10 => {
            let n = value.first_chunk().map_or(0, |b| i32::from_le_bytes(*b));
            u128::from(i64::from(n).cast_unsigned())
        }
        0x08 | 0x09 | 0x11 | 0x12 | 0x13 => number(value),
        _ => 0,
    }
}

/// A double times a power of ten as an integer, if that is exact.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "within 2^53, where both ways are exact"
)]
fn scaled(n: f64, by: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let product = n * by;
    if !(-EXACT..=EXACT).contains(&product) {
        return None;
    }
    let whole = product.round() as i64;
    ((whole as f64 / by).to_bits() == n.to_bits()).then_some(whole)
}

/// Documents whose leaves are separate streams.
#[derive(Debug)]
struct Interleaved {
    streams: Vec<Stream>,
    steps: Vec<Shape>,
    /// The row's document as an element: type, empty name, bytes. Empty if the row has none.
    row: Vec<u8>,
    /// Start offsets of the open documents in `row`.
    open: Vec<usize>,
}

/// The structure of the reference document, in order.
#[derive(Debug)]
enum Shape {
    Enter {
        type_byte: u8,
        name: Box<[u8]>,
    },
    Leaf {
        name: Box<[u8]>,
    },
    /// An empty document of the reference exists in every row; other empty documents are omitted.
    Leave {
        keep_empty: bool,
    },
}

/// mongod's maximum nesting.
const DEPTH_MAX: usize = 200;

impl Interleaved {
    fn open(bytes: &[u8], at: &mut usize) -> Result<Self, ColumnError> {
        let control = control(bytes, *at)?;
        let rest = bytes.get(*at + 1..).unwrap_or_default();
        let malformed = ColumnError("a malformed reference document");
        let len = value_size(0x03, rest).ok_or(malformed)?;
        let reference = rest.get(..len).ok_or(malformed)?;
        *at += 1 + len;
        let mut opened =
            Self { streams: Vec::new(), steps: Vec::new(), row: Vec::new(), open: Vec::new() };
        let root = if control == 0xf2 { 0x04 } else { 0x03 };
        opened.shape(root, b"", reference, control != 0xf0, 0)?;
        if opened.streams.is_empty() {
            return Err(ColumnError("a reference document without a leaf"));
        }
        Ok(opened)
    }

    fn shape(
        &mut self,
        type_byte: u8,
        name: &[u8],
        doc: &[u8],
        arrays: bool,
        depth: usize,
    ) -> Result<(), ColumnError> {
        let malformed = ColumnError("a malformed reference document");
        if depth > DEPTH_MAX {
            return Err(malformed);
        }
        self.steps.push(Shape::Enter { type_byte, name: name.into() });
        let mut elements = Elements::of_bytes(doc);
        let mut keep_empty = true;
        while let Some(element) = elements.next_checked().map_err(|_| malformed)? {
            keep_empty = false;
            match element.type_byte {
                0x03 => self.shape(0x03, element.key, element.value_bytes, arrays, depth + 1)?,
                0x04 if arrays => {
                    self.shape(0x04, element.key, element.value_bytes, arrays, depth + 1)?;
                }
                leaf => {
                    let mut stream = Stream::default();
                    stream.set_literal(leaf, element.value_bytes);
                    self.streams.push(stream);
                    self.steps.push(Shape::Leaf { name: element.key.into() });
                }
            }
        }
        self.steps.push(Shape::Leave { keep_empty });
        Ok(())
    }

    /// Builds the next row; false at the end, after consuming its byte.
    fn row(&mut self, bytes: &[u8], at: &mut usize) -> Result<bool, ColumnError> {
        let mut first = true;
        let mut streams = self.streams.iter_mut();
        let previous = std::mem::take(&mut self.row);
        for step in &self.steps {
            match step {
                Shape::Enter { type_byte, name } => {
                    self.open.push(self.row.len());
                    self.row.push(*type_byte);
                    self.row.extend_from_slice(name);
                    self.row.extend_from_slice(&[0; 5]);
                }
                Shape::Leaf { name } => {
                    let Some(stream) = streams.next() else { continue };
                    let found = match stream.words.next(bytes)? {
                        Some(value) => stream.apply(value)?,
                        None if control(bytes, *at)? == 0 => {
                            if !first {
                                return Err(ColumnError("a row ends early"));
                            }
                            *at += 1;
                            self.row = previous;
                            self.open.clear();
                            return Ok(false);
                        }
                        None => stream.load(bytes, at)?,
                    };
                    first = false;
                    if let Step::Value = found {
                        self.row.push(stream.type_byte);
                        self.row.extend_from_slice(name);
                        self.row.push(0);
                        self.row.extend_from_slice(&stream.value);
                    }
                }
                Shape::Leave { keep_empty } => close(&mut self.row, &mut self.open, *keep_empty),
            }
        }
        Ok(true)
    }

    fn cell(&self) -> Cell<'_> {
        match (self.row.first(), self.row.get(2..)) {
            (Some(type_byte), Some(bytes)) => Cell::Value { type_byte: *type_byte, bytes },
            _ => Cell::Missing,
        }
    }
}

/// Closes the innermost open document, whose length is known now.
fn close(row: &mut Vec<u8>, open: &mut Vec<usize>, keep_empty: bool) {
    let Some(start) = open.pop() else { return };
    // The name ends at the first zero byte after the type.
    let name = row.get(start + 1..).and_then(|rest| rest.iter().position(|b| *b == 0));
    let length_at = start + 2 + name.unwrap_or(0);
    if row.len() == length_at + 4 && !keep_empty {
        row.truncate(start);
        return;
    }
    row.push(0);
    let len = u32::try_from(row.len() - length_at).unwrap_or(u32::MAX);
    if let Some(place) = row.get_mut(length_at..length_at + 4) {
        place.copy_from_slice(&len.to_le_bytes());
    }
}

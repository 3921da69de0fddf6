//! Reads a journal batch by batch. The content is not kept, since a journal may be larger than memory.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use xxhash_rust::xxh3::Xxh3;

use crate::layout;

/// Size of the read buffer.
const BUFFER: usize = 256 << 10;
/// Longer rows cannot be our marks, so their content is skipped.
const LOOK_MAX: u32 = 64;
/// Length of a batch header plus the first byte of its first row.
const BEGIN: usize = 14;

const TAG_BATCH: u8 = 1;
const TAG_ROW: u8 = 2;
const TAG_END: u8 = 3;
const TAG_EMPTIED: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";

/// Reads from an offset on.
pub(super) struct Scan<R> {
    input: BufReader<R>,
    at: u64,
    /// Checksum of this batch's rows so far.
    sum: Xxh3,
}

/// Result of reading a batch.
#[derive(Debug)]
pub(super) enum Step {
    /// A whole batch.
    Batch { at: u64 },
    /// Only zeros follow.
    End,
    /// The bytes are not a whole batch.
    Bad(&'static str),
}

/// One row of a batch that is not verified yet.
pub(super) struct Row<'a> {
    pub(super) keyspace: u64,
    /// The sequence number of its batch.
    pub(super) at: u64,
    /// Key and value, only of short rows.
    short: Option<(&'a [u8], &'a [u8])>,
}

/// Why reading a batch stopped: it is bad, or an I/O error.
enum Stop {
    Bad(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Bad("it is cut short"),
            _ => Self::Io(error),
        }
    }
}

impl<R: Read + Seek> Scan<R> {
    pub(super) fn new(mut input: R, at: u64) -> io::Result<Self> {
        input.seek(SeekFrom::Start(at))?;
        Ok(Self { input: BufReader::with_capacity(BUFFER, input), at, sum: Xxh3::new() })
    }

    /// Offset of the next byte to read.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Reads one batch. `each` sees its rows before the batch is verified.
    pub(super) fn batch(&mut self, each: &mut dyn FnMut(Row<'_>)) -> io::Result<Step> {
        match self.try_batch(each) {
            Ok(step) => Ok(step),
            Err(Stop::Bad(why)) => Ok(Step::Bad(why)),
            Err(Stop::Io(error)) => Err(error),
        }
    }

    fn try_batch(&mut self, each: &mut dyn FnMut(Row<'_>)) -> Result<Step, Stop> {
        match self.input.fill_buf()?.first() {
            None => return Ok(Step::End),
            Some(0) => return self.only_zeros(),
            Some(&TAG_BATCH) => {}
            Some(_) => return Err(Stop::Bad("no batch begins there")),
        }
        self.sum.reset();
        let _tag = self.number::<1>()?;
        let rows = u32::from_le_bytes(self.number()?);
        let at = u64::from_le_bytes(self.number()?);
        for _ in 0..rows {
            self.row(at, each)?;
        }
        if self.number()? != [TAG_END] {
            return Err(Stop::Bad("its end is not where it should be"));
        }
        if u64::from_le_bytes(self.number()?) != self.sum.digest() {
            return Err(Stop::Bad("its checksum is wrong"));
        }
        if self.number()? != TRAILER {
            return Err(Stop::Bad("its end is not whole"));
        }
        Ok(Step::Batch { at })
    }

    /// Checks that only zeros follow: journals are preallocated.
    fn only_zeros(&mut self) -> Result<Step, Stop> {
        loop {
            let part = self.input.fill_buf()?;
            let len = part.len();
            if len == 0 {
                return Ok(Step::End);
            }
            if part.iter().any(|byte| *byte != 0) {
                return Err(Stop::Bad("no batch begins there, but something follows"));
            }
            self.input.consume(len);
        }
    }

    fn row(&mut self, at: u64, each: &mut dyn FnMut(Row<'_>)) -> Result<(), Stop> {
        let tag = self.summed::<1>()?;
        if tag == [TAG_EMPTIED] {
            let keyspace = u64::from_le_bytes(self.summed()?);
            each(Row { keyspace, at, short: None });
            return Ok(());
        }
        let [kind, compression] = match tag {
            [TAG_ROW] => self.summed::<2>()?,
            _ => return Err(Stop::Bad("it has fewer rows than it says")),
        };
        if kind > 2 || compression > 1 {
            return Err(Stop::Bad("it has a row of an unknown kind"));
        }
        let keyspace = u64::from_le_bytes(self.summed()?);
        let key = u32::from(u16::from_le_bytes(self.summed()?));
        let _length = self.summed::<4>()?;
        let value = u32::from_le_bytes(self.summed()?);
        if key.saturating_add(value) > LOOK_MAX || compression != 0 {
            self.pass(u64::from(key) + u64::from(value))?;
            each(Row { keyspace, at, short: None });
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(LOOK_MAX as usize);
        bytes.resize((key + value) as usize, 0);
        self.read(&mut bytes)?;
        self.sum.update(&bytes);
        let short = bytes.split_at_checked(key as usize);
        each(Row { keyspace, at, short });
        Ok(())
    }

    /// Adds bytes to the checksum and discards them.
    fn pass(&mut self, mut len: u64) -> Result<(), Stop> {
        while len > 0 {
            let part = self.input.fill_buf()?;
            let take = part.len().min(usize::try_from(len).unwrap_or(usize::MAX));
            if take == 0 {
                return Err(Stop::Bad("it is cut short"));
            }
            self.sum.update(part.get(..take).unwrap_or_default());
            self.input.consume(take);
            self.at += take as u64;
            len -= take as u64;
        }
        Ok(())
    }

    fn summed<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let bytes = self.number()?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Stop> {
        self.input.read_exact(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// Whole batches found after garbage.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Offset of the first one.
    pub(super) first: u64,
    /// From the last batch with a mark: the sequence number up to which everything was synced before it was written.
    synced: Option<u64>,
    /// A batch that should have this number does not have it, because an older program wrote it.
    silent: bool,
}

impl Rest {
    /// True if data after sequence number `last` was synced.
    pub(super) fn proves_synced_beyond(&self, last: u64) -> bool {
        self.silent || self.synced.is_some_and(|synced| synced > last)
    }
}

/// Searches for whole batches after an offset, at every byte.
pub(super) fn whole_batches_after(path: &Path, from: u64, last: Option<u64>) -> io::Result<Rest> {
    let mut rest = Rest::default();
    let mut at = from + 1;
    while let Some(begin) = next_begin(path, at, last)? {
        let mut scan = Scan::new(File::open(path)?, begin)?;
        let (mut synced, mut silent) = (None, false);
        let step =
            scan.batch(&mut |row| match row.short.and_then(|(k, v)| layout::synced(k, v)) {
                Some(Some(number)) => synced = Some(number),
                Some(None) => silent = true,
                None => {}
            })?;
        at = begin + 1;
        if let Step::Batch { .. } = step {
            if rest.first == 0 {
                rest.first = begin;
            }
            rest.synced = rest.synced.max(synced);
            rest.silent |= silent;
            at = scan.at();
        }
    }
    Ok(rest)
}

/// The next offset at which a batch could begin.
fn next_begin(path: &Path, from: u64, last: Option<u64>) -> io::Result<Option<u64>> {
    let mut input = File::open(path)?;
    let mut at = from;
    let mut part = vec![0; BUFFER];
    loop {
        input.seek(SeekFrom::Start(at))?;
        let len = read_full(&mut input, &mut part)?;
        let part = part.get(..len).unwrap_or_default();
        if let Some(found) = part.windows(BEGIN).position(|bytes| may_begin(bytes, last)) {
            return Ok(Some(at + found as u64));
        }
        if len < BUFFER {
            return Ok(None);
        }
        // A batch header may span two parts.
        at += (len - (BEGIN - 1)) as u64;
    }
}

fn may_begin(bytes: &[u8], last: Option<u64>) -> bool {
    let [TAG_BATCH, rows @ .., TAG_ROW | TAG_EMPTIED] = bytes else { return false };
    let Some((rows, at)) = rows.split_first_chunk::<4>() else { return false };
    let Some(at) = at.first_chunk().map(|at| u64::from_le_bytes(*at)) else { return false };
    u32::from_le_bytes(*rows) > 0 && last.is_none_or(|last| at > last)
}

fn read_full(input: &mut File, part: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = part.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match input.read(rest)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

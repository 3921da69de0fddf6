//! Writes mongodump's archive format, which mongorestore reads.
//!
//! ```text
//!   magic | header | one document of metadata for each collection | end
//!   then for each collection: block* and a last block with EOF and the checksum of its documents
//!   block: {db, collection, EOF, CRC} document* end
//! ```

use std::io::Write;

use anyhow::{Context, Result};
use bson::{Document, RawDocument, doc};

/// Writes an archive.
pub(super) struct Archive<W> {
    out: W,
}

/// The metadata of a collection at the beginning of the archive.
pub(super) struct Metadata {
    pub(super) db: String,
    pub(super) collection: String,
    /// Options and indexes, as canonical extended JSON.
    pub(super) metadata: String,
    pub(super) kind: String,
    pub(super) size: i32,
}

const MAGIC: u32 = 0x8199_e26d;
const END: [u8; 4] = [0xff; 4];

impl<W: Write> Archive<W> {
    /// Starts an archive with the metadata of all its collections.
    pub(super) fn begin(mut out: W, version: &str, content: &[Metadata]) -> Result<Self> {
        out.write_all(&MAGIC.to_le_bytes())?;
        write(
            &mut out,
            &doc! {
                "concurrent_collections": 1,
                "version": "0.1",
                "server_version": version,
                "tool_version": concat!("understudy-tools ", env!("CARGO_PKG_VERSION")),
            },
        )?;
        for one in content {
            write(
                &mut out,
                &doc! {
                    "db": &one.db,
                    "collection": &one.collection,
                    "metadata": &one.metadata,
                    "size": one.size,
                    "type": &one.kind,
                },
            )?;
        }
        out.write_all(&END)?;
        Ok(Self { out })
    }

    /// Writes a block of documents.
    pub(super) fn block<'a>(
        &mut self,
        db: &str,
        collection: &str,
        documents: impl Iterator<Item = &'a RawDocument>,
        crc: &mut Crc64,
    ) -> Result<()> {
        self.head(db, collection, false, 0)?;
        for document in documents {
            crc.update(document.as_bytes());
            self.out.write_all(document.as_bytes())?;
        }
        self.out.write_all(&END)?;
        Ok(())
    }

    /// Writes the end of a collection.
    pub(super) fn end(&mut self, db: &str, collection: &str, crc: Crc64) -> Result<()> {
        self.head(db, collection, true, crc.finish().cast_signed())?;
        self.out.write_all(&END)?;
        Ok(())
    }

    /// Flushes the archive.
    pub(super) fn finish(mut self) -> Result<W> {
        self.out.flush().context("write the archive")?;
        Ok(self.out)
    }

    fn head(&mut self, db: &str, collection: &str, eof: bool, crc: i64) -> Result<()> {
        let head = doc! { "db": db, "collection": collection, "EOF": eof, "CRC": crc };
        write(&mut self.out, &head)
    }
}

fn write(out: &mut impl Write, document: &Document) -> Result<()> {
    out.write_all(&document.to_vec()?).context("write the archive")
}

/// CRC-64 of ECMA-182 in its reflected form, mongodump's checksum of a collection's documents.
pub(super) struct Crc64(u64);

impl Crc64 {
    pub(super) fn new() -> Self {
        Self(u64::MAX)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            #[allow(clippy::indexing_slicing, reason = "a byte is below 256")]
            let step = TABLE[usize::from(self.0.to_le_bytes()[0] ^ byte)];
            self.0 = step ^ (self.0 >> 8);
        }
    }

    pub(super) fn finish(&self) -> u64 {
        !self.0
    }
}

const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

#[allow(clippy::indexing_slicing, reason = "it is evaluated when this is compiled")]
static TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut value = at as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_catalogues() {
        let mut crc = Crc64::new();
        crc.update(b"123456789");
        assert_eq!(crc.finish(), 0x995D_C9BB_DF19_39FA);
    }
}

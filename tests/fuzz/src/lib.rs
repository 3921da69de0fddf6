//! The fuzz targets: properties that must hold for any input.
//!
//! A target takes bytes and panics if its property does not hold. libFuzzer runs one target (`main.rs`). A test runs
//! all of them over their corpora and over seeded mutations of these.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a target answers by a panic")]

mod documents;
mod language;
mod messages;
mod sasl;
mod scram;

use protocol::{Compressor, header::op_code};

pub use sasl::{Walked, walk};

/// A property that must hold for any input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its corpus.
    pub name: &'static str,
    /// Panics if the property does not hold.
    pub run: fn(&[u8]),
}

/// The target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}

const fn row(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    row("framing", messages::stream),
    row("op_msg", |data| messages::message(op_code::MSG, data)),
    row("op_query", |data| messages::message(op_code::QUERY, data)),
    row("op_reply", |data| messages::message(op_code::REPLY, data)),
    row("op_compressed", |data| messages::message(op_code::COMPRESSED, data)),
    row("snappy", |data| messages::packed(Compressor::Snappy, data)),
    row("zlib", |data| messages::packed(Compressor::Zlib, data)),
    row("zstd", |data| messages::packed(Compressor::Zstd, data)),
    row("bson_check", documents::checked),
    row("oplog_entry", documents::oplog_entry),
    row("bson_column", documents::column),
    row("update", documents::update),
    row("scram", scram::conversation),
    row("sasl", |data| {
        walk(data);
    }),
    row("store_rows", storage::fuzzing::rows),
    row("key_order", storage::fuzzing::order),
    row("index_keys", storage::fuzzing::index_keys),
    row("filter", language::filter),
    row("expression", language::expression),
    row("projection", language::projection),
];

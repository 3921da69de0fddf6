//! Hashes of a query's shape and of the indexes that it was planned for. They differ from mongod's.

use bson::{RawBsonRef, RawDocument};
use query::{planner::explain::Shape, source::Source};

/// A hash that queries of one shape share: names and operators matter, values do not.
pub(super) fn shape_hash(shape: &Shape) -> u32 {
    let mut text = Vec::new();
    names(shape.parsed_query(), &mut text);
    for part in [shape.sort(), shape.projection.as_ref()].into_iter().flatten() {
        text.push(b'|');
        text.extend_from_slice(part.as_bytes());
    }
    fnv(&text)
}

fn names(doc: &RawDocument, into: &mut Vec<u8>) {
    for (name, value) in doc.iter().flatten() {
        into.extend_from_slice(name.as_str().as_bytes());
        into.push(b'{');
        match value {
            RawBsonRef::Document(inner) => names(inner, into),
            RawBsonRef::Array(items) if name.as_str().starts_with('$') => {
                items.into_iter().flatten().filter_map(|item| item.as_document()).for_each(
                    |item| {
                        names(item, into);
                    },
                );
            }
            _ => {}
        }
        into.push(b'}');
    }
}

pub(super) fn indexes_hash(source: &dyn Source) -> u32 {
    let text: Vec<u8> =
        source.indexes().iter().flat_map(|index| index.spec.as_bytes().to_vec()).collect();
    fnv(&text)
}

/// FNV-1a, 32 bits.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

//! A document that passes the check can be walked completely.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{Reason, check_bson};

fuzz_target!(|data: &[u8]| match check_bson(data) {
    Ok(()) => walk(bson::RawDocument::from_bytes(data).expect("it passed")),
    Err(fault) => assert!(fault.reason != Reason::TooDeep || data.len() > 200),
});

fn walk(doc: &bson::RawDocument) {
    // Names and strings need not be UTF-8; the library reports those as errors, which are skipped.
    for element in doc.iter().flatten() {
        match element.1 {
            bson::RawBsonRef::Document(inner) => walk(inner),
            bson::RawBsonRef::Array(inner) => inner.into_iter().flatten().for_each(drop),
            _ => {}
        }
    }
}

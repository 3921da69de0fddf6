use bson::rawdoc;

use super::*;
use crate::testdata;

/// Applies every recorded entry to its pre-image: the result must equal the primary's bytes.
fn replay(name: &str) {
    let mut wrong = Vec::new();
    for case in testdata::read(name) {
        let part = |name| case.get_document(name).unwrap();
        let (pre, o, post) = (part("pre"), part("o"), part("post"));
        match apply_update(pre, o) {
            Ok(got) if got.as_bytes() == post.as_bytes() => {}
            got => wrong.push(format!("pre {pre:?}\no {o:?}\nwant {post:?}\ngot  {got:?}")),
        }
    }
    let shown = wrong.iter().take(3).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(wrong.is_empty(), "{name}: {} wrong\n{shown}", wrong.len());
}

#[test]
fn diffs_of_8_2_give_the_primarys_bytes() {
    replay("updates_8.2.bson");
}

#[test]
fn modifiers_of_4_4_give_the_primarys_bytes() {
    replay("updates_4.4.bson");
}

/// U1: an entry applied to its own result changes nothing.
#[test]
fn a_second_application_changes_nothing() {
    for name in ["updates_8.2.bson", "updates_4.4.bson"] {
        for case in testdata::read(name) {
            let (o, post) = (case.get_document("o").unwrap(), case.get_document("post").unwrap());
            let again = apply_update(post, o).unwrap();
            assert_eq!(again.as_bytes(), post.as_bytes(), "{o:?} on {post:?} gave {again:?}");
        }
    }
}

fn diff(pre: RawDocumentBuf, diff: RawDocumentBuf) -> RawDocumentBuf {
    apply_diff(&pre, &diff).unwrap()
}

#[test]
fn an_inserted_field_that_is_there_moves_to_the_end() {
    let got = diff(rawdoc! { "_id": 1, "a": 1, "b": 2 }, rawdoc! { "i": { "a": 5 } });
    assert_eq!(got, rawdoc! { "_id": 1, "b": 2, "a": 5 });
}

#[test]
fn an_updated_field_that_is_missing_comes_before_inserted_ones() {
    let got = diff(rawdoc! { "_id": 1 }, rawdoc! { "u": { "b": 2 }, "i": { "a": 5 } });
    assert_eq!(got, rawdoc! { "_id": 1, "b": 2, "a": 5 });
}

#[test]
fn a_sub_diff_on_another_type_leaves_null_and_on_nothing_does_nothing() {
    let sub = rawdoc! { "sa": { "u": { "x": 1 } } };
    assert_eq!(diff(rawdoc! { "a": 3 }, sub.clone()), rawdoc! { "a": null });
    assert_eq!(diff(rawdoc! { "a": [1] }, sub.clone()), rawdoc! { "a": null });
    assert_eq!(diff(rawdoc! { "b": 3 }, sub), rawdoc! { "b": 3 });
}

#[test]
fn arrays_grow_with_nulls_and_shrink_to_their_length() {
    let grown = diff(rawdoc! { "a": [1] }, rawdoc! { "sa": { "a": true, "l": 4, "u2": 9 } });
    assert_eq!(grown, rawdoc! { "a": [1, null, 9, null] });
    let padded = diff(rawdoc! { "a": [] }, rawdoc! { "sa": { "a": true, "u2": 9 } });
    assert_eq!(padded, rawdoc! { "a": [null, null, 9] });
    let shrunk = diff(rawdoc! { "a": [1, 2, 3] }, rawdoc! { "sa": { "a": true, "l": 1 } });
    assert_eq!(shrunk, rawdoc! { "a": [1] });
}

#[test]
fn the_binary_section_keeps_a_prefix_and_the_subtype() {
    let column = |bytes: &[u8]| bson::Binary {
        subtype: bson::spec::BinarySubtype::Column,
        bytes: bytes.to_vec(),
    };
    let splice = rawdoc! { "b": { "data": { "o": 2, "d": column(b"XYZ") } } };
    let got = diff(rawdoc! { "data": column(b"abcdef") }, splice.clone());
    assert_eq!(got, rawdoc! { "data": column(b"abXYZ") });
    let short = rawdoc! { "data": column(b"a") };
    assert_eq!(diff(short.clone(), splice), short);
}

#[test]
fn wrong_diffs_are_refused_with_mongods_codes() {
    let code = |diff: RawDocumentBuf| apply_diff(&rawdoc! { "a": [1] }, &diff).unwrap_err().code();
    assert_eq!(code(rawdoc! {}).code(), 4_770_500);
    assert_eq!(code(rawdoc! { "x": {} }).code(), 4_770_503);
    assert_eq!(code(rawdoc! { "u": { "a": 1 }, "i": { "a": 1 } }).code(), 4_728_000);
    let huge = rawdoc! { "sa": { "a": true, "u999999999999": 1 } };
    assert!(apply_diff(&rawdoc! { "a": [1] }, &huge).is_err());
}

#[test]
fn malformed_bytes_are_refused() {
    let mut bytes = rawdoc! { "a": "text", "b": { "c": 1 } }.into_bytes();
    let diff = rawdoc! { "u": { "z": 1 } };
    for at in 4..bytes.len() - 1 {
        let kept = bytes[at];
        for wrong in [0u8, 0x02, 0x03, 0x7e, 0xff] {
            bytes[at] = wrong;
            if let Ok(pre) = RawDocument::from_bytes(&bytes) {
                let _ = apply_diff(pre, &diff);
                let _ = apply_diff(&rawdoc! { "a": 1 }, pre);
                let _ = apply_update(&rawdoc! { "a": 1 }, pre);
            }
        }
        bytes[at] = kept;
    }
}

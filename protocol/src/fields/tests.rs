use bson::{RawDocumentBuf, cstr, rawdoc};

use super::*;

fn told(error: FieldError) -> (i32, String) {
    (error.code().code(), error.to_string())
}

/// The expected codes and texts were recorded from a mongod 8.2.
#[test]
fn errors_are_in_the_words_of_mongod() {
    let doc = rawdoc! { "find": "c", "limit": "x", "skip": -1, "lsid": {}, "nosuch": 1 };
    let find = Fields::idl("FindCommandRequest", &doc);
    let limit = find.required("limit").unwrap().safe_i64().unwrap_err();
    assert_eq!(
        told(limit),
        (
            14,
            "BSON field 'FindCommandRequest.limit' is the wrong type 'string', \
             expected types '[long, int, decimal, double]'"
                .into()
        )
    );
    let lsid = find.required("lsid").unwrap().fields().unwrap().required("id").unwrap_err();
    assert_eq!(
        told(lsid),
        (40414, "BSON field 'FindCommandRequest.lsid.id' is missing but a required field".into())
    );
    let skip = find.optional("skip").unwrap().unwrap().non_negative().unwrap_err();
    assert_eq!(told(skip), (2, "BSON field 'skip' value must be >= 0, actual value '-1'".into()));
    let unknown = find.only(&["find", "limit", "skip"]).unwrap_err();
    assert_eq!(
        told(unknown),
        (40415, "BSON field 'FindCommandRequest.nosuch' is an unknown field.".into())
    );

    let doc = rawdoc! { "getMore": 1, "collection": 5 };
    let get_more = Fields::idl("getMore", &doc);
    assert_eq!(
        told(get_more.required("getMore").unwrap().long().unwrap_err()),
        (14, "BSON field 'getMore.getMore' is the wrong type 'int', expected type 'long'".into())
    );
    let doc = rawdoc! { "killCursors": "c", "cursors": ["x"] };
    let cursors = Fields::idl("killCursors", &doc).required("cursors").unwrap();
    let first = cursors.elements().unwrap().next().unwrap().unwrap();
    assert_eq!(
        told(first.long().unwrap_err()),
        (
            14,
            "BSON field 'killCursors.cursors.0' is the wrong type 'string', expected type 'long'"
                .into()
        )
    );
}

#[test]
fn replication_commands_have_words_of_their_own() {
    let doc = rawdoc! { "replSetUpdatePosition": 1, "optimes": 1, "term": "x" };
    let fields = Fields::extract(&doc);
    assert_eq!(
        told(fields.required("optimes").unwrap().array().unwrap_err()),
        (14, "\"optimes\" had the wrong type. Expected array, found int".into())
    );
    assert_eq!(
        told(fields.required("from").unwrap_err()),
        (4, "Missing expected field \"from\"".into())
    );
    assert_eq!(
        told(fields.required("term").unwrap().safe_i64().unwrap_err()),
        (14, "Expected field \"term\" to have numeric type, but found string".into())
    );
}

#[test]
fn duplicates_are_refused() {
    let mut doc = RawDocumentBuf::new();
    doc.append(cstr!("find"), "c");
    doc.append(cstr!("limit"), 1);
    doc.append(cstr!("limit"), 1);
    assert_eq!(
        told(Fields::idl("FindCommandRequest", &doc).only(&["find", "limit"]).unwrap_err()),
        (40413, "BSON field 'FindCommandRequest.limit' is a duplicate field".into())
    );
    let generic = rawdoc! { "ping": 1, "$db": "admin", "lsid": {}, "$replData": 1, "comment": 1 };
    assert_eq!(Fields::idl("ping", &generic).only(&["ping"]), Ok(()));
}

#[test]
fn numbers_become_whole_as_mongod_makes_them() {
    let decimal = |text: &str| text.parse::<bson::Decimal128>().unwrap();
    let doc = rawdoc! {
        "half": 1.5, "nan": f64::NAN, "huge": 1e300, "low": -1e300, "int": 7, "long": 8_i64,
        "decimal": decimal("9007199254740993"), "fraction": decimal("2.5"),
    };
    let fields = Fields::idl("c", &doc);
    let number = |name| fields.required(name).unwrap().safe_i64().unwrap();
    assert_eq!([number("half"), number("nan"), number("int"), number("long")], [1, 0, 7, 8]);
    assert_eq!([number("huge"), number("low")], [i64::MAX, i64::MIN]);
    assert_eq!([number("decimal"), number("fraction")], [9_007_199_254_740_993, 2]);
    assert_eq!(fields.required("huge").unwrap().safe_i32(), Ok(i32::MAX));
}

#[test]
fn a_null_is_absent_where_the_field_is_optional() {
    let doc = rawdoc! { "limit": null };
    let fields = Fields::idl("c", &doc);
    assert!(fields.optional("limit").unwrap().is_none());
    assert!(fields.get("limit").unwrap().is_some());
}

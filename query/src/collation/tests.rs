use bson::{RawDocumentBuf, rawdoc};

use super::*;

fn collator(spec: RawDocumentBuf) -> Collator {
    Collator::new(CollationSpec::parse(&spec).unwrap().unwrap()).unwrap()
}

fn order(spec: RawDocumentBuf, a: &str, b: &str) -> Ordering {
    let c = collator(spec);
    let by_compare = c.compare(a.as_bytes(), b.as_bytes());
    let key = |text: &str| {
        let mut key = Vec::new();
        c.sort_key(text.as_bytes(), &mut key);
        key
    };
    assert_eq!(key(a).cmp(&key(b)), by_compare, "sort keys of {a} and {b}");
    by_compare
}

#[test]
fn options_change_the_order_as_they_do_in_mongod() {
    use Ordering::{Equal, Greater, Less};
    assert_eq!(order(rawdoc! { "locale": "en" }, "a", "B"), Less);
    assert_eq!(order(rawdoc! { "locale": "en", "strength": 1 }, "role", "Rôle"), Equal);
    assert_eq!(order(rawdoc! { "locale": "en", "strength": 2 }, "role", "Rôle"), Less);
    assert_eq!(order(rawdoc! { "locale": "en", "strength": 2 }, "role", "ROLE"), Equal);
    assert_eq!(
        order(rawdoc! { "locale": "en", "strength": 1, "caseLevel": true }, "role", "ROLE"),
        Less
    );
    assert_eq!(order(rawdoc! { "locale": "en", "caseFirst": "upper" }, "a", "A"), Greater);
    assert_eq!(order(rawdoc! { "locale": "en", "numericOrdering": true }, "a10", "a9"), Greater);
    assert_eq!(order(rawdoc! { "locale": "en" }, "a10", "a9"), Less);
    assert_eq!(
        order(rawdoc! { "locale": "en", "alternate": "shifted" }, "black-bird", "blackbird"),
        Equal
    );
    let space = rawdoc! { "locale": "en", "alternate": "shifted", "maxVariable": "space" };
    assert_ne!(order(space, "black-bird", "blackbird"), Equal);
    assert_eq!(order(rawdoc! { "locale": "fr_CA" }, "cote\u{301}", "co\u{302}te"), Greater);
    assert_eq!(order(rawdoc! { "locale": "fr" }, "cote\u{301}", "co\u{302}te"), Less);
    assert_eq!(order(rawdoc! { "locale": "sv" }, "z", "ö"), Less);
    assert_eq!(order(rawdoc! { "locale": "de" }, "z", "ö"), Greater);
}

#[test]
fn errors_are_mongods() {
    let error = |spec: RawDocumentBuf| {
        let e = CollationSpec::parse(&spec).unwrap_err();
        (e.code.code(), e.message)
    };
    for (spec, code, text) in [
        (rawdoc! { "locale": "xx" }, 2, "Field 'locale' is invalid in: { locale: \"xx\" }"),
        (
            rawdoc! { "locale": "en", "foo": 1 },
            40_415,
            "BSON field 'collation.foo' is an unknown field.",
        ),
        (
            rawdoc! { "locale": 1 },
            14,
            "BSON field 'collation.locale' is the wrong type 'int', expected type 'string'",
        ),
        (
            rawdoc! { "locale": "en", "strength": 9 },
            2,
            "BSON field 'strength' value must be <= 5, actual value '9'",
        ),
        (
            rawdoc! { "locale": "en", "strength": "x" },
            14,
            "BSON field 'collation.strength' is the wrong type 'string', expected types '[double, int, decimal, long]'",
        ),
        (
            rawdoc! { "locale": "en", "caseFirst": "x" },
            2,
            "Enumeration value 'x' for field 'collation.caseFirst' is not a valid value.",
        ),
        (
            rawdoc! { "locale": "en", "backwards": true, "strength": 1 },
            2,
            "'backwards' is invalid with 'strength' of 1 in: { locale: \"en\", backwards: true, strength: 1 }",
        ),
        (
            rawdoc! { "locale": "en-US" },
            2,
            "Field 'locale' is invalid in: { locale: \"en-US\" }. Did you mean 'en_US'?",
        ),
        (
            rawdoc! { "locale": "EN" },
            2,
            "Field 'locale' is invalid in: { locale: \"EN\" }. Did you mean 'en'?",
        ),
        (
            rawdoc! { "locale": "en_DE" },
            2,
            "Field 'locale' is invalid in: { locale: \"en_DE\" }. Did you mean 'en'?",
        ),
        (
            rawdoc! { "locale": "" },
            2,
            "Field 'locale' cannot be the empty string in: { locale: \"\" }",
        ),
        (
            rawdoc! { "strength": 1 },
            40_414,
            "BSON field 'collation.locale' is missing but a required field",
        ),
    ] {
        assert_eq!(error(spec), (code, text.to_owned()));
    }
    assert!(CollationSpec::parse(&rawdoc! { "locale": "simple" }).unwrap().is_none());
}

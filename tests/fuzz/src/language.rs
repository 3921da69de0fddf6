//! The query language: everything that parses can be evaluated on any document, to a result or an error.
//!
//! The input bytes choose among the operators and names of the language, so that most inputs get past the first
//! check.

use bson::{Bson, Document, RawDocumentBuf, oid::ObjectId};
use bumpalo::Bump;
use query::{
    context::Context,
    expression::{Env, Expr, Scope},
    matcher::{Matcher, ParseContext},
    projection::Projection,
    value::Elements,
};

/// Maximum depth of generated documents.
const DEPTH_MAX: u32 = 6;

/// Parses a filter and evaluates it on a document.
pub(crate) fn filter(data: &[u8]) {
    let mut words = Words(data);
    let Some((filter, document)) = words.pair() else { return };
    if let Ok(matcher) = Matcher::parse(&filter, &ParseContext::default()) {
        let _ = matcher.check(&document, &Context::default());
    }
}

/// Parses an expression and evaluates it on a document.
pub(crate) fn expression(data: &[u8]) {
    let mut words = Words(data);
    let Some((holder, document)) = words.pair() else { return };
    // `pair` puts the expression at the end.
    let Some(value) = Elements::new(&holder).last() else { return };
    let mut scope = Scope::default();
    let Ok(parsed) = Expr::parse(value.value(), &mut scope) else { return };
    let (arena, context) = (Bump::new(), Context::default());
    let _ = parsed.eval(&mut Env::new(&arena, &context, document.as_bytes()));
}

/// Parses a find's projection and applies it to a document.
pub(crate) fn projection(data: &[u8]) {
    let mut words = Words(data);
    let Some((projection, document)) = words.pair() else { return };
    if let Ok(parsed) = Projection::parse_find(&projection, None, &ParseContext::default())
        && let Ok(shown) = parsed.apply(&document, &Context::default())
    {
        assert!(bson::RawDocument::from_bytes(shown.as_bytes()).is_ok(), "it shows no document");
    }
}

/// The input bytes as a source of choices.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    /// A generated filter or projection, with an expression in its last field, and a generated document.
    fn pair(&mut self) -> Option<(RawDocumentBuf, RawDocumentBuf)> {
        let asked = self.document(0, true);
        let asked =
            Document::from_iter(asked.into_iter().chain([("e".to_owned(), self.value(0, true))]));
        let document = self.document(0, false);
        Some((RawDocumentBuf::try_from(asked).ok()?, RawDocumentBuf::try_from(document).ok()?))
    }

    fn document(&mut self, depth: u32, operators: bool) -> Document {
        let fields = self.byte() % 4;
        (0..fields).map(|_| (self.name(operators), self.value(depth + 1, operators))).collect()
    }

    fn name(&mut self, operators: bool) -> String {
        let byte = usize::from(self.byte());
        let known = if operators && byte >= 48 { OPERATORS } else { FIELDS };
        known.get(byte % known.len()).copied().unwrap_or_default().to_owned()
    }

    fn value(&mut self, depth: u32, operators: bool) -> Bson {
        if self.0.is_empty() || depth > DEPTH_MAX {
            return Bson::Int32(1);
        }
        let kind = self.byte();
        let byte = self.byte();
        let (small, choice) = (i32::from(byte), usize::from(byte));
        match kind % 24 {
            0..6 => Bson::Document(self.document(depth, operators)),
            6..9 => {
                let items = self.byte() % 4;
                Bson::Array((0..items).map(|_| self.value(depth + 1, operators)).collect())
            }
            9 | 10 => Bson::String(format!("${}", self.name(false))),
            11 => Bson::String(STRINGS.get(choice % STRINGS.len()).copied().unwrap_or("").into()),
            12 => Bson::Int32(small - 128),
            13 => Bson::Int64(i64::from(small - 128).wrapping_mul(0x0102_0304_0506_0708)),
            14 => Bson::Double(f64::from(small - 128) / 4.0),
            15 => Bson::Double(
                *[f64::NAN, f64::INFINITY, -0.0, f64::MAX].get(choice % 4).unwrap_or(&0.0),
            ),
            16 => Bson::Boolean(small % 2 == 0),
            17 => Bson::Null,
            18 => {
                Bson::DateTime(bson::DateTime::from_millis(i64::from(small - 128) << (small % 50)))
            }
            19 => Bson::ObjectId(ObjectId::from_bytes([self.byte(); 12])),
            20 => Bson::Decimal128(bson::Decimal128::from_bytes([self.byte(); 16])),
            21 => Bson::Int64(i64::MIN + i64::from(small)),
            22 => {
                Bson::Timestamp(bson::Timestamp { time: u32::MAX, increment: self.byte().into() })
            }
            _ => *[Bson::MinKey, Bson::MaxKey, Bson::Undefined]
                .map(Box::new)
                .into_iter()
                .nth(choice % 3)
                .unwrap_or_default(),
        }
    }
}

const FIELDS: &[&str] = &[
    "a", "b", "a.b", "a.0", "_id", "", "a.b.c", "$a", "x", "on", "date", "input", "as", "in",
    "vars",
];

const STRINGS: &[&str] = &[
    "",
    "a",
    "abc",
    "$$ROOT",
    "$$NOW",
    "$$CURRENT.a",
    "$$this",
    "$a.b",
    "UTC",
    "Europe/Paris",
    "%Y-%m-%d",
    "%",
    "+05:00",
    "year",
    "month",
    "week",
    "2020-02-29",
    "1970-01-01T00:00:00Z",
    "1e400",
    "-1",
    "NaN",
    "é",
    "日本",
    "(a|b)*",
    "[",
    "i",
    "int",
    "double",
    "string",
    "date",
    "base64",
    "hex",
    "auto",
    "long",
    "decimal",
    "array",
];

/// Operators of filters, expressions and projections, and names of their arguments.
const OPERATORS: &[&str] = &[
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$and",
    "$or",
    "$nor",
    "$not",
    "$exists",
    "$type",
    "$expr",
    "$mod",
    "$regex",
    "$options",
    "$all",
    "$elemMatch",
    "$size",
    "$bitsAllSet",
    "$bitsAnyClear",
    "$jsonSchema",
    "$geoWithin",
    "$geoIntersects",
    "$geometry",
    "$box",
    "$center",
    "$polygon",
    "coordinates",
    "type",
    "$slice",
    "$meta",
    "$abs",
    "$add",
    "$subtract",
    "$multiply",
    "$divide",
    "$ceil",
    "$floor",
    "$round",
    "$trunc",
    "$exp",
    "$ln",
    "$log",
    "$log10",
    "$pow",
    "$sqrt",
    "$sin",
    "$cos",
    "$tan",
    "$degreesToRadians",
    "$concat",
    "$substr",
    "$substrBytes",
    "$substrCP",
    "$indexOfBytes",
    "$indexOfCP",
    "$split",
    "$strLenBytes",
    "$strLenCP",
    "$strcasecmp",
    "$toLower",
    "$toUpper",
    "$trim",
    "$ltrim",
    "$rtrim",
    "$replaceOne",
    "$replaceAll",
    "$regexMatch",
    "$regexFind",
    "$regexFindAll",
    "$arrayElemAt",
    "$arrayToObject",
    "$objectToArray",
    "$concatArrays",
    "$filter",
    "$map",
    "$reduce",
    "$zip",
    "$range",
    "$reverseArray",
    "$sortArray",
    "$first",
    "$last",
    "$firstN",
    "$lastN",
    "$maxN",
    "$minN",
    "$isArray",
    "$indexOfArray",
    "$setUnion",
    "$setIntersection",
    "$setDifference",
    "$setEquals",
    "$setIsSubset",
    "$anyElementTrue",
    "$allElementsTrue",
    "$cond",
    "$ifNull",
    "$switch",
    "$let",
    "$literal",
    "$convert",
    "$toInt",
    "$toLong",
    "$toDouble",
    "$toDecimal",
    "$toString",
    "$toDate",
    "$toBool",
    "$toObjectId",
    "$isNumber",
    "$mergeObjects",
    "$getField",
    "$setField",
    "$unsetField",
    "$dateAdd",
    "$dateSubtract",
    "$dateDiff",
    "$dateTrunc",
    "$dateToString",
    "$dateFromString",
    "$dateToParts",
    "$dateFromParts",
    "$year",
    "$month",
    "$dayOfMonth",
    "$dayOfWeek",
    "$isoWeek",
    "$hour",
    "$minute",
    "$second",
    "$millisecond",
    "$tsSecond",
    "$tsIncrement",
    "$bsonSize",
    "$binarySize",
    "$rand",
    "$bitAnd",
    "$bitOr",
    "$bitXor",
    "$bitNot",
    "$sum",
    "$avg",
    "$min",
    "$max",
    "$stdDevPop",
    "$median",
    "$percentile",
    "if",
    "then",
    "else",
    "branches",
    "case",
    "default",
    "vars",
    "in",
    "input",
    "as",
    "cond",
    "limit",
    "initialValue",
    "inputs",
    "useLongestLength",
    "defaults",
    "field",
    "value",
    "sortBy",
    "n",
    "to",
    "onError",
    "onNull",
    "format",
    "timezone",
    "unit",
    "binSize",
    "amount",
    "startDate",
    "endDate",
    "dateString",
    "chars",
    "find",
    "replacement",
    "p",
    "method",
    "properties",
    "required",
    "bsonType",
    "minimum",
    "items",
    "pattern",
    "enum",
];

//! Random aggregation expressions, by result type.
//!
//! Most expressions read a field; the others are constants, which mongod evaluates while parsing. Most arguments have
//! the type that the operator expects; for the others, the errors are compared.

use bson::{Bson, Document, doc};

use super::random::Random;

/// The result type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// Text.
    Text,
    /// True or false.
    Truth,
    /// An array.
    Array,
    /// A date.
    Date,
    /// A document.
    Object,
    /// Any type.
    Any,
}

use Kind::{Any, Array, Date, Number, Object, Text, Truth};

/// Operators with a fixed list of arguments: name, result type, argument types.
const PLAIN: &[(&str, Kind, &[Kind])] = &[
    ("$abs", Number, &[Number]),
    ("$add", Number, &[Number, Number]),
    ("$add", Number, &[Number, Number, Number]),
    ("$add", Date, &[Date, Number]),
    ("$ceil", Number, &[Number]),
    ("$divide", Number, &[Number, Number]),
    ("$exp", Number, &[Number]),
    ("$floor", Number, &[Number]),
    ("$ln", Number, &[Number]),
    ("$log10", Number, &[Number]),
    ("$log", Number, &[Number, Number]),
    ("$mod", Number, &[Number, Number]),
    ("$multiply", Number, &[Number, Number]),
    ("$pow", Number, &[Number, Number]),
    ("$round", Number, &[Number, Number]),
    ("$trunc", Number, &[Number, Number]),
    ("$sqrt", Number, &[Number]),
    ("$subtract", Number, &[Number, Number]),
    ("$subtract", Number, &[Date, Date]),
    ("$atan2", Number, &[Number, Number]),
    ("$degreesToRadians", Number, &[Number]),
    ("$bitAnd", Number, &[Number, Number]),
    ("$bitOr", Number, &[Number, Number]),
    ("$bitXor", Number, &[Number, Number]),
    ("$bitNot", Number, &[Number]),
    ("$cmp", Number, &[Any, Any]),
    ("$strLenCP", Number, &[Text]),
    ("$strLenBytes", Number, &[Text]),
    ("$strcasecmp", Number, &[Text, Text]),
    ("$indexOfCP", Number, &[Text, Text]),
    ("$indexOfBytes", Number, &[Text, Text]),
    ("$size", Number, &[Array]),
    ("$indexOfArray", Number, &[Array, Any]),
    ("$sum", Number, &[Array]),
    ("$avg", Number, &[Array]),
    ("$stdDevPop", Number, &[Array]),
    ("$stdDevSamp", Number, &[Array]),
    ("$max", Any, &[Array]),
    ("$min", Any, &[Array]),
    ("$max", Any, &[Any, Any]),
    ("$min", Any, &[Any, Any, Any]),
    ("$sum", Number, &[Any, Any]),
    ("$toInt", Number, &[Any]),
    ("$toLong", Number, &[Any]),
    ("$toDouble", Number, &[Any]),
    ("$toDecimal", Number, &[Any]),
    ("$bsonSize", Number, &[Object]),
    ("$binarySize", Number, &[Text]),
    ("$year", Number, &[Date]),
    ("$month", Number, &[Date]),
    ("$dayOfMonth", Number, &[Date]),
    ("$dayOfWeek", Number, &[Date]),
    ("$dayOfYear", Number, &[Date]),
    ("$hour", Number, &[Date]),
    ("$minute", Number, &[Date]),
    ("$second", Number, &[Date]),
    ("$millisecond", Number, &[Date]),
    ("$week", Number, &[Date]),
    ("$isoWeek", Number, &[Date]),
    ("$isoWeekYear", Number, &[Date]),
    ("$isoDayOfWeek", Number, &[Date]),
    ("$concat", Text, &[Text, Text]),
    ("$toLower", Text, &[Any]),
    ("$toUpper", Text, &[Any]),
    ("$substrCP", Text, &[Text, Number, Number]),
    ("$substrBytes", Text, &[Text, Number, Number]),
    ("$toString", Text, &[Any]),
    ("$type", Text, &[Any]),
    ("$eq", Truth, &[Any, Any]),
    ("$ne", Truth, &[Any, Any]),
    ("$gt", Truth, &[Any, Any]),
    ("$gte", Truth, &[Any, Any]),
    ("$lt", Truth, &[Any, Any]),
    ("$lte", Truth, &[Any, Any]),
    ("$and", Truth, &[Any, Any]),
    ("$or", Truth, &[Any, Any]),
    ("$not", Truth, &[Any]),
    ("$in", Truth, &[Any, Array]),
    ("$isArray", Truth, &[Any]),
    ("$isNumber", Truth, &[Any]),
    ("$toBool", Truth, &[Any]),
    ("$allElementsTrue", Truth, &[Array]),
    ("$anyElementTrue", Truth, &[Array]),
    ("$setEquals", Truth, &[Array, Array]),
    ("$setIsSubset", Truth, &[Array, Array]),
    ("$split", Array, &[Text, Text]),
    ("$concatArrays", Array, &[Array, Array]),
    ("$reverseArray", Array, &[Array]),
    ("$slice", Array, &[Array, Number]),
    ("$slice", Array, &[Array, Number, Number]),
    ("$range", Array, &[Number, Number]),
    ("$objectToArray", Array, &[Object]),
    ("$setDifference", Array, &[Array, Array]),
    ("$arrayElemAt", Any, &[Array, Number]),
    ("$first", Any, &[Array]),
    ("$last", Any, &[Array]),
    ("$ifNull", Any, &[Any, Any]),
    ("$ifNull", Any, &[Any, Any, Any]),
    ("$mergeObjects", Object, &[Object, Object]),
    ("$arrayToObject", Object, &[Array]),
    ("$toDate", Date, &[Any]),
    ("$tsSecond", Number, &[Any]),
    ("$tsIncrement", Number, &[Any]),
    ("$toObjectId", Any, &[Any]),
    ("$strLenBytes", Number, &[Any]),
    ("$mergeObjects", Object, &[Object, Any]),
    ("$concat", Text, &[Text, Text, Text]),
    ("$concatArrays", Array, &[Array, Array, Array]),
    ("$multiply", Number, &[Number, Number, Number]),
    ("$bitAnd", Number, &[Number, Number, Number]),
    ("$indexOfArray", Number, &[Array, Any, Number]),
    ("$range", Array, &[Number, Number, Number]),
    ("$setEquals", Truth, &[Array, Array, Array]),
    ("$sin", Number, &[Number]),
    ("$cos", Number, &[Number]),
    ("$tan", Number, &[Number]),
    ("$tanh", Number, &[Number]),
    ("$atan", Number, &[Number]),
    ("$radiansToDegrees", Number, &[Number]),
    ("$substr", Text, &[Any, Number, Number]),
    ("$toUUID", Any, &[Text]),
    ("$toHashedIndexKey", Number, &[Any]),
    ("$sigmoid", Number, &[Number]),
];

impl Random {
    /// An expression of any type.
    pub fn expression(&mut self, depth: u32) -> Bson {
        self.expression_of(Any, depth)
    }

    /// An expression that usually has this result type.
    pub fn expression_of(&mut self, kind: Kind, depth: u32) -> Bson {
        let kind = if self.chance(3) { Any } else { kind };
        if depth == 0 || self.chance(30) {
            return self.leaf(kind);
        }
        if self.chance(35) {
            return self.shaped(kind, depth - 1);
        }
        let fits: Vec<_> =
            PLAIN.iter().filter(|(_, gives, _)| kind == Any || *gives == kind).collect();
        if fits.is_empty() {
            return self.leaf(kind);
        }
        let (name, _, takes) = *self.pick(&fits);
        let mut arguments: Vec<Bson> =
            takes.iter().map(|kind| self.expression_of(*kind, depth - 1)).collect();
        if !arguments.iter().any(reads_field)
            && self.chance(70)
            && let (Some(first), Some(kind)) = (arguments.first_mut(), takes.first())
        {
            *first = self.field_of(*kind);
        }
        let single = arguments.len() == 1 && !matches!(arguments.first(), Some(Bson::Array(_)));
        match arguments.pop() {
            Some(only) if single && self.chance(80) => Bson::Document(doc! { name: only }),
            last => {
                arguments.extend(last);
                Bson::Document(doc! { name: arguments })
            }
        }
    }

    /// An expression that fails on no document. It is used where the plan decides which documents are evaluated, and
    /// when.
    pub fn safe_expression(&mut self, depth: u32) -> Bson {
        self.safe_over(depth, |own| Bson::String(format!("${}", own.path())))
    }

    /// Like [`Self::safe_expression`], over fields of common types only: mongod's groups and joins convert code to a
    /// string and MaxKey to a document.
    pub fn plain_expression(&mut self, depth: u32) -> Bson {
        self.safe_over(depth, |own| Bson::String(own.pick(&["$a", "$c", "$n", "$d"]).to_owned()))
    }

    fn safe_over(&mut self, depth: u32, path: fn(&mut Self) -> Bson) -> Bson {
        if depth == 0 || self.chance(35) {
            return path(self);
        }
        let (first, second) = (path(self), self.safe_over(depth - 1, path));
        Bson::Document(match self.below(8) {
            0 => doc! { "$type": first },
            1 => doc! { "$ifNull": [first, second] },
            2 => doc! { self.pick(&["$eq", "$gt", "$lte", "$ne", "$cmp"]): [first, second] },
            3 => doc! { "$cond": [first, second, "$a"] },
            4 => doc! { self.pick(&["$and", "$or"]): [first, second] },
            5 => doc! { self.pick(&["$isNumber", "$isArray", "$not"]): [first] },
            6 => {
                doc! { "$convert": { "input": first, "to": "bool", "onError": "bad", "onNull": second } }
            }
            _ => doc! { "$let": { "vars": { "v": first }, "in": { "$eq": ["$$v", second] } } },
        })
    }

    /// A field that usually has this type.
    fn field_of(&mut self, kind: Kind) -> Bson {
        let names: &[&str] = match kind {
            Number => &["$a", "$n"],
            Text => &["$c"],
            Truth | Any => &["$a", "$b", "$h"],
            Array => &["$arr", "$rows"],
            Date => &["$d"],
            Object => &["$o", "$deep"],
        };
        Bson::String(self.pick(names).to_owned())
    }

    pub(super) fn leaf(&mut self, kind: Kind) -> Bson {
        let path = |own: &mut Self, from: &[&str]| Bson::String(format!("${}", own.pick(from)));
        match (kind, self.below(3)) {
            (Number, 0) => self.small_number(),
            (Number, 1) => self.number(),
            (Number, _) => path(self, &["a", "n", "a", "o.x"]),
            (Text, 0) => Bson::Document(doc! { "$literal": self.text() }),
            (Text, _) => path(self, &["c", "c", "c", "s"]),
            (Truth, 0) => Bson::Boolean(self.chance(50)),
            (Truth, _) => path(self, &["a", "b", "missing"]),
            (Array, 0) => Bson::Array(self.list(0, 4, |own| own.leaf(Any))),
            (Array, _) => path(self, &["arr", "arr", "rows", "rows.q"]),
            (Date, 0) => self.date(),
            (Date, _) => path(self, &["d"]),
            (Object, 0) => Bson::Document(doc! { "x": self.leaf(Any), "y": 1 }),
            (Object, _) => path(self, &["o", "deep", "$ROOT"]),
            (Any, 0) => {
                let value = self.value(1);
                Bson::Document(doc! { "$literal": value })
            }
            (Any, 1) => Bson::String(format!("${}", self.path())),
            (Any, _) => self.small_number(),
        }
    }

    /// Operators with named arguments or a syntax of their own.
    fn shaped(&mut self, kind: Kind, depth: u32) -> Bson {
        for _ in 0..20 {
            let shaped = Bson::Document(self.shape(kind, depth));
            if reads_everywhere(&shaped) || self.chance(20) {
                return shaped;
            }
        }
        self.field_of(kind)
    }

    fn shape(&mut self, kind: Kind, depth: u32) -> Document {
        if self.chance(50) {
            return self.named_operator(kind, depth);
        }
        match kind {
            Number => self.shaped_number(depth),
            Text => self.shaped_text(depth),
            Array => self.shaped_array(depth),
            Date => self.date_of_dates(depth),
            Object => self.shaped_object(depth),
            Truth | Any => match self.below(5) {
                0 => self.shaped_number(depth),
                1 => self.shaped_text(depth),
                2 => self.shaped_array(depth),
                3 => self.shaped_object(depth),
                _ => self.shaped_any(depth),
            },
        }
    }

    /// Operators with many options.
    fn named_operator(&mut self, kind: Kind, depth: u32) -> Document {
        match (kind, self.below(3)) {
            (Number, 0) => self.number_operator(depth),
            (Number, _) => self.number_of_dates(depth),
            (Text, 0) => self.text_operator(depth),
            (Text, 1) => self.regex_operator(depth),
            (Text, _) => self.text_of_dates(depth),
            (Array, 0) => self.regex_operator(depth),
            (Array, _) => self.array_operator(depth),
            (Date, 0) => self.date_of_text(depth),
            (Date, _) => self.date_of_dates(depth),
            (Object, 0) => self.parts_of_date(depth),
            (Object, _) => self.any_operator(depth),
            (Truth | Any, 0) => self.any_operator(depth),
            (Truth | Any, 1) => {
                let kind = self.pick(&[Number, Text, Array, Date, Object]);
                self.named_operator(kind, depth)
            }
            (Truth | Any, _) if self.chance(15) => self.wrong_operator(),
            (Truth | Any, _) => self.any_operator(depth),
        }
    }

    fn shaped_any(&mut self, depth: u32) -> Document {
        match self.below(13) {
            0 => {
                doc! { "$cond": [self.expression_of(Truth, depth), self.expression(depth), self.expression(depth)] }
            }
            1 => doc! { "$cond": {
                "if": self.expression_of(Truth, depth), "then": self.expression(depth), "else": self.expression(depth),
            } },
            2 => doc! { "$switch": { "branches": self.list(1, 3, |own| doc! {
                "case": own.expression_of(Truth, depth), "then": own.expression(depth),
            }), "default": self.expression(depth) } },
            3 => doc! { "$let": {
                "vars": { "v": self.expression(depth) }, "in": { "$ifNull": ["$$v", self.expression(depth)] },
            } },
            4 => doc! { "$reduce": {
                "input": self.expression_of(Array, depth), "initialValue": self.leaf(Number),
                "in": { "$add": ["$$value", { "$cond": [{ "$isNumber": "$$this" }, "$$this", 1] }] },
            } },
            5 => {
                doc! { "$getField": { "field": self.pick(&["x", "a", "a.b"]), "input": self.expression_of(Object, depth) } }
            }
            6 => doc! { "$convert": {
                "input": self.expression(depth),
                "to": self.pick(&["int", "long", "double", "decimal", "string", "bool", "date", "objectId"]),
                "onError": "bad", "onNull": self.leaf(Any),
            } },
            7 => {
                doc! { "$switch": { "branches": [{ "case": self.expression_of(Truth, depth), "then": 1 }] } }
            }
            8 => doc! { "$convert": {
                "input": self.expression(depth),
                "to": self.pick(&["int", "long", "double", "decimal", "string", "bool", "date", "objectId", "foo"]),
            } },
            9 => doc! { "$let": {
                "vars": { "v": self.leaf(Any), "w": self.expression(depth) },
                "in": { self.pick(&["$add", "$concat", "$eq"]): ["$$v", "$$w"] },
            } },
            10 => {
                doc! { "$regexMatch": { "input": self.expression_of(Text, depth), "regex": self.leaf(Text) } }
            }
            11 => {
                doc! { "$ifNull": [self.expression(depth), self.expression(depth), self.leaf(Any)] }
            }
            _ => doc! { "$setField": {
                "field": self.pick(&["x", "new"]), "input": self.expression_of(Object, depth), "value": self.expression(depth),
            } },
        }
    }

    fn shaped_number(&mut self, depth: u32) -> Document {
        match self.below(3) {
            0 => self.number_of_dates(depth),
            1 => {
                doc! { "$indexOfCP": [self.expression_of(Text, depth), self.leaf(Text), self.int(0, 3)] }
            }
            _ => doc! { "$size": { "$filter": {
                "input": self.expression_of(Array, depth), "cond": { "$gt": ["$$this", self.leaf(Any)] },
            } } },
        }
    }

    fn shaped_text(&mut self, depth: u32) -> Document {
        match self.below(6) {
            0 => self.text_of_dates(depth),
            1 => {
                doc! { self.pick(&["$trim", "$ltrim", "$rtrim"]): { "input": self.expression_of(Text, depth) } }
            }
            2 => {
                doc! { "$trim": { "input": self.expression_of(Text, depth), "chars": self.leaf(Text) } }
            }
            3 => doc! { self.pick(&["$replaceOne", "$replaceAll"]): {
                "input": self.expression_of(Text, depth), "find": self.sought(), "replacement": "_",
            } },
            4 => {
                doc! { "$regexFind": { "input": self.expression_of(Text, depth), "regex": self.pattern() } }
            }
            _ => doc! { "$dateToString": { "date": self.expression_of(Date, depth) } },
        }
    }

    fn shaped_array(&mut self, depth: u32) -> Document {
        // CURRENT as a variable changes what a plain path means.
        let (name, value, below) = match depth % 2 {
            0 => ("CURRENT", "$$CURRENT", "$a"),
            _ => ("m", "$$m", "$$m"),
        };
        match self.below(9) {
            0 => {
                doc! { "$map": { "input": self.expression_of(Array, depth), "as": name, "in": { "$type": below } } }
            }
            1 => doc! { "$filter": {
                "input": self.expression_of(Array, depth), "as": name,
                "cond": { self.pick(&["$gt", "$eq", "$ne", "$lte"]): [value, self.leaf(Any)] },
                "limit": self.int(1, 4),
            } },
            2 => {
                let input = self.expression_of(Array, depth);
                let way = self.pick(&[1, -1]);
                let by = if depth.is_multiple_of(2) {
                    Bson::from(doc! { "a": way })
                } else {
                    way.into()
                };
                doc! { "$sortArray": { "input": input, "sortBy": by } }
            }
            3 => doc! { "$zip": {
                "inputs": [self.expression_of(Array, depth), self.expression_of(Array, depth)],
                "useLongestLength": true,
            } },
            4 => {
                doc! { "$regexFindAll": { "input": self.expression_of(Text, depth), "regex": self.pattern() } }
            }
            5 => doc! { self.pick(&["$firstN", "$lastN", "$minN", "$maxN"]): {
                "input": self.expression_of(Array, depth), "n": self.int(1, 4),
            } },
            6 => doc! { "$sortArray": {
                "input": { self.pick(&["$setUnion", "$setIntersection"]): [
                    self.expression_of(Array, depth), self.expression_of(Array, depth),
                ] }, "sortBy": 1,
            } },
            7 => doc! { "$sortArray": { "input": "$rows", "sortBy": { "q": 1, "v": -1 } } },
            _ => doc! { "$range": [0, self.leaf(Number), self.int(-2, 4)] },
        }
    }

    fn shaped_object(&mut self, depth: u32) -> Document {
        match self.below(4) {
            0 => doc! { "x": self.expression(depth), "k": { "y": self.expression(depth) } },
            1 => self.parts_of_date(depth),
            2 => {
                doc! { "$unsetField": { "field": self.pick(&["x", "a"]), "input": self.expression_of(Object, depth) } }
            }
            _ => doc! { "$arrayToObject": { "$objectToArray": self.expression_of(Object, depth) } },
        }
    }
}

/// True if an expression refers to a field or a variable.
fn reads_field(expression: &Bson) -> bool {
    match expression {
        Bson::String(text) => text.starts_with('$'),
        Bson::Array(items) => items.iter().any(reads_field),
        Bson::Document(inner) => {
            !inner.contains_key("$literal") && inner.iter().any(|(_, value)| reads_field(value))
        }
        _ => false,
    }
}

/// True if every operator in an expression refers to a field.
fn reads_everywhere(expression: &Bson) -> bool {
    match expression {
        Bson::Array(items) => items.iter().all(reads_everywhere),
        Bson::Document(inner) if inner.contains_key("$literal") => true,
        Bson::Document(inner) => {
            let operator = inner.keys().next().is_some_and(|name| name.starts_with('$'));
            (!operator || reads_field(expression))
                && inner.iter().all(|(_, value)| reads_everywhere(value))
        }
        _ => true,
    }
}

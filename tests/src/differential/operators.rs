//! Random operators with named arguments, covering all of their arguments.

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};

use super::expressions::Kind;
use super::random::Random;

use Kind::{Array, Number, Object, Text, Truth};

const TYPES: [&str; 14] = [
    "int", "long", "double", "decimal", "string", "bool", "date", "objectId", "binData", "object",
    "array", "null", "regex", "foo",
];

impl Random {
    /// `$convert` with any of its options.
    pub(super) fn conversion(&mut self, depth: u32) -> Document {
        let input = match self.below(5) {
            0 => Bson::Binary(Binary {
                subtype: BinarySubtype::from(self.pick(&[0u8, 4])),
                bytes: vec![self.pick(&[0u8, 65, 255]); self.pick(&[1, 2, 3, 4, 8, 16])],
            }),
            1 => Bson::Document(doc! { "$literal": self.pick(&[
                "0x1F", "1e3", " 7", "1.5", "true", "QUJD", "41424344", "-0", "NaN", "{\"a\": 1}", "[1, 2]",
                "867dee52-c331-484e-92d1-c56479b8e67e", "9223372036854775808", "507f1f77bcf86cd799439011",
            ]) }),
            _ => self.expression(depth),
        };
        let to = match self.below(6) {
            0 => Bson::Document(
                doc! { "type": self.pick(&TYPES), "subtype": self.pick(&[0, 4, 5, 300]) },
            ),
            1 => Bson::Int32(self.int(-2, 21)),
            2 => self.pick(&["$c".into(), Bson::Null, Bson::Double(1.5), "$missing".into()]),
            _ => Bson::String(self.pick(&TYPES).to_owned()),
        };
        let mut spec = doc! { "input": input, "to": to };
        if self.chance(40) {
            let format = self.pick(&["base64", "hex", "uuid", "utf8", "auto", "base64url", "nope"]);
            spec.insert("format", format);
        }
        if self.chance(15) {
            spec.insert("byteOrder", self.pick(&["little", "big", "middle"]));
        }
        if self.chance(50) {
            spec.insert("onError", self.leaf(Kind::Any));
        }
        if self.chance(40) {
            spec.insert("onNull", self.leaf(Kind::Any));
        }
        doc! { "$convert": spec }
    }

    /// `$switch`, `$reduce`, `$getField`, `$setField` and the like.
    pub(super) fn any_operator(&mut self, depth: u32) -> Document {
        match self.below(8) {
            0 | 1 => self.conversion(depth),
            2 => {
                let mut spec = doc! { "branches": self.list(0, 4, |own| doc! {
                    "case": own.expression_of(Truth, depth), "then": own.expression(depth),
                }) };
                if self.chance(60) {
                    spec.insert("default", self.expression(depth));
                }
                doc! { "$switch": spec }
            }
            3 => doc! { "$reduce": {
                "input": self.expression_of(Array, depth), "initialValue": self.leaf(Array),
                "in": { "$concatArrays": ["$$value", ["$$this", { "$type": "$$value" }]] },
            } },
            4 => {
                let field = match self.below(4) {
                    0 => Bson::Document(doc! { "$literal": self.pick(&["$x", "a.b", ""]) }),
                    1 => self.pick(&["$c".into(), Bson::Null, Bson::Int32(3)]),
                    2 => Bson::Document(doc! { "$concat": ["x", self.leaf(Text)] }),
                    _ => Bson::String(self.pick(&["x", "a", "a.b"]).to_owned()),
                };
                if self.chance(30) {
                    return doc! { "$getField": field };
                }
                doc! { "$getField": { "field": field, "input": self.expression_of(Object, depth) } }
            }
            5 => doc! { "$setField": {
                "field": self.pick(&["x", "new", "a.b", "$c"]), "input": self.expression_of(Object, depth),
                "value": self.pick(&[Bson::Null, "$$REMOVE".into(), "$a".into()]),
            } },
            6 => doc! { "$unsetField": {
                "field": self.pick(&["x", "new", "a.b"]), "input": self.expression(depth),
            } },
            _ => doc! { "$let": {
                "vars": { "x": self.expression(depth), "y": { "$let": { "vars": { "z": "$a" }, "in": ["$$z"] } } },
                "in": [{ "$type": "$$x" }, "$$y", self.pick(&["$$x.x", "$$y", "$$CURRENT.a", "$$z"])],
            } },
        }
    }

    /// Regular expression operators with all options.
    pub(super) fn regex_operator(&mut self, depth: u32) -> Document {
        let regex = match self.below(4) {
            0 => self.regex(),
            1 => Bson::String("(a)|(b)|(x)".into()),
            2 => self.pick(&["$c".into(), Bson::Null, "[".into(), Bson::Int32(1)]),
            _ => Bson::String(self.pattern().to_owned()),
        };
        let mut spec = doc! { "input": self.expression_of(Text, depth), "regex": regex };
        if self.chance(40) {
            spec.insert("options", self.pick(&["i", "imsx", "s", "", "z", "u"]));
        }
        doc! { self.pick(&["$regexFind", "$regexFindAll", "$regexMatch"]): spec }
    }

    /// Operators that give arrays.
    pub(super) fn array_operator(&mut self, depth: u32) -> Document {
        match self.below(8) {
            0 => {
                let mut spec =
                    doc! { "inputs": self.list(1, 4, |own| own.expression_of(Array, depth)) };
                if self.chance(50) {
                    spec.insert("useLongestLength", self.chance(70));
                }
                if self.chance(40) {
                    spec.insert("defaults", self.list(0, 4, |own| own.leaf(Kind::Any)));
                }
                doc! { "$zip": spec }
            }
            1 => {
                let by = match self.below(4) {
                    0 => Bson::Document(doc! { "q": self.pick(&[1, -1]), "v": 1 }),
                    1 => Bson::Document(doc! { "v.x": -1, "q": 1 }),
                    2 => self.pick(&[
                        Bson::Int32(0),
                        Bson::Double(1.0),
                        "q".into(),
                        Bson::Document(doc! {}),
                    ]),
                    _ => Bson::Int32(self.pick(&[1, -1])),
                };
                doc! { "$sortArray": { "input": self.expression_of(Array, depth), "sortBy": by } }
            }
            2 => doc! { "$filter": {
                "input": self.expression_of(Array, depth), "cond": { "$gte": ["$$this.q", self.leaf(Number)] },
                "limit": self.pick(&[Bson::Int32(2), Bson::Null, Bson::Int32(0), "$a".into(), Bson::Double(2.0)]),
            } },
            3 => doc! { "$map": {
                "input": self.expression_of(Array, depth),
                "in": { "$cond": [{ "$isNumber": "$$this" }, { "$add": ["$$this", 1] }, { "t": "$$this.q" }] },
            } },
            4 => doc! { self.pick(&["$firstN", "$lastN", "$minN", "$maxN"]): {
                "input": self.expression_of(Array, depth),
                "n": self.pick(&[Bson::Int32(2), Bson::Int32(0), "$a".into(), Bson::Double(1.5), Bson::Int64(3)]),
            } },
            5 => doc! { "$percentile": {
                "input": self.expression_of(Array, depth), "p": [0.25, self.pick(&[0.5, 1.0, 1.5])],
                "method": self.pick(&["approximate", "approximate", "continuous", "discrete", "bad"]),
            } },
            6 => doc! { "$objectToArray": self.expression_of(Object, depth) },
            _ => doc! { "$arrayToObject": [self.pick(&[
                Bson::Array(vec![Bson::Array(vec!["k".into(), "$a".into()])]),
                Bson::Array(vec![Bson::Document(doc! { "k": "x", "v": "$c" }), Bson::Document(doc! { "k": "$c", "v": 1 })]),
                Bson::Array(vec![Bson::Document(doc! { "k": "x", "w": "$c" })]),
                Bson::Array(vec![Bson::Array(vec!["$c".into(), 1.into(), 2.into()])]),
                "$arr".into(),
            ])] },
        }
    }

    /// Operators that give numbers.
    pub(super) fn number_operator(&mut self, depth: u32) -> Document {
        match self.below(4) {
            0 => doc! { "$median": {
                "input": self.expression_of(Array, depth), "method": self.pick(&["approximate", "approximate", "discrete"]),
            } },
            1 => doc! { self.pick(&["$indexOfBytes", "$indexOfCP"]): [
                self.expression_of(Text, depth), self.leaf(Text), self.leaf(Number), self.int(0, 4),
            ] },
            2 => doc! { self.pick(&["$round", "$trunc"]): [
                self.expression_of(Number, depth), self.pick(&[Bson::Int32(1), Bson::Int32(-1), Bson::Int32(20), "$a".into()]),
            ] },
            _ => doc! { "$reduce": {
                "input": self.expression_of(Array, depth), "initialValue": 0,
                "in": { "$add": ["$$value", { "$ifNull": ["$$this.q", 1] }] },
            } },
        }
    }

    /// Text to search for. Never empty: mongod finds the empty text between the bytes of a character and then returns
    /// invalid UTF-8.
    pub(super) fn sought(&mut self) -> Bson {
        self.pick(&["a".into(), "x y".into(), "ä".into(), "$s".into(), Bson::Null, Bson::Int32(1)])
    }

    /// Operators that change text.
    pub(super) fn text_operator(&mut self, depth: u32) -> Document {
        match self.below(3) {
            0 => doc! { self.pick(&["$replaceOne", "$replaceAll"]): {
                "input": self.expression_of(Text, depth), "find": self.sought(),
                "replacement": self.pick(&[Bson::Null, "".into(), "$c".into(), "$missing".into(), Bson::Int32(1)]),
            } },
            1 => doc! { self.pick(&["$ltrim", "$rtrim", "$trim"]): {
                "input": self.expression_of(Text, depth),
                "chars": self.pick(&["a".into(), "ä😀".into(), "".into(), Bson::Null, "$c".into(), Bson::Int32(1)]),
            } },
            _ => doc! { self.pick(&["$substrBytes", "$substrCP"]): [
                self.expression_of(Text, depth), self.int(-1, 4), self.int(-2, 6),
            ] },
        }
    }
}

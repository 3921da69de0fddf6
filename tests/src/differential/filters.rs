//! Random filters.

use bson::{Bson, Document, doc};

use super::random::Random;

impl Random {
    /// A filter of a few clauses.
    pub fn filter(&mut self, depth: u32) -> Document {
        let mut filter = Document::new();
        let clauses = self.pick(&[0, 1, 1, 1, 1, 2, 2, 3]);
        for _ in 0..clauses {
            self.clause(depth, &mut filter);
        }
        filter
    }

    fn clause(&mut self, depth: u32, filter: &mut Document) {
        if depth > 0 && self.chance(22) {
            let name = self.pick(&["$and", "$or", "$or", "$nor"]);
            let branches = self.list(1, 4, |own| own.filter(depth - 1));
            filter.insert(name, branches);
            return;
        }
        match self.below(30) {
            0 => {
                let expression = self.safe_expression(2);
                filter.insert("$expr", expression);
            }
            29 => {
                // A comparison that an index may answer.
                let name = self.pick(&["$eq", "$gt", "$gte", "$lt", "$lte"]);
                let path = format!("${}", self.pick(&["a", "o.x", "d", "n", "_id"]));
                let operand = doc! { "$literal": self.operand() };
                filter.insert("$expr", doc! { name: [path, operand] });
            }
            1 => {
                filter.insert("$comment", "why");
            }
            2 => {
                filter.insert("$jsonSchema", self.schema());
            }
            3..=9 => {
                let path = self.path();
                filter.insert(path, self.operand());
            }
            _ => {
                let path = self.path();
                let mut operators = Document::new();
                for _ in 0..self.pick(&[1, 1, 1, 2]) {
                    self.operator(depth, &mut operators);
                }
                filter.insert(path, operators);
            }
        }
    }

    /// A value to compare with.
    pub fn operand(&mut self) -> Bson {
        match self.below(10) {
            0..=4 => self.small_number(),
            5 => Bson::String(self.text()),
            _ => self.value(2),
        }
    }

    fn operator(&mut self, depth: u32, into: &mut Document) {
        match self.below(36) {
            0..=9 => {
                let name = self.pick(&["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]);
                into.insert(name, self.operand());
            }
            10..=13 => {
                let name = self.pick(&["$in", "$in", "$nin"]);
                into.insert(name, self.list(0, 5, Self::operand));
            }
            14 | 15 => {
                into.insert("$exists", self.chance(50));
            }
            16 | 17 => {
                into.insert("$type", self.types());
            }
            18 => {
                let (divisor, rest) = (self.int(-3, 5), self.int(-2, 4));
                into.insert("$mod", vec![self.number_of(divisor), self.number_of(rest)]);
            }
            19..=21 => {
                into.insert("$regex", self.pattern());
                if self.chance(40) {
                    into.insert("$options", self.pick(&["i", "s", "m", "im"]));
                }
            }
            22 | 23 => {
                into.insert("$all", self.list(0, 3, Self::operand));
            }
            24 | 25 => {
                let size = self.int(0, 4);
                into.insert("$size", self.number_of(size));
            }
            26 | 27 => {
                let name =
                    self.pick(&["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"]);
                let mask = if self.chance(50) {
                    Bson::Int32(self.int(0, 16))
                } else {
                    Bson::Array(self.list(0, 3, |own| Bson::Int32(own.int(0, 6))))
                };
                into.insert(name, mask);
            }
            28 | 29 if depth > 0 => {
                let mut inner = Document::new();
                self.operator(depth - 1, &mut inner);
                into.insert("$not", inner);
            }
            30..=34 if depth > 0 => {
                into.insert("$elemMatch", self.element_filter(depth - 1));
            }
            _ => {
                into.insert("$gte", self.operand());
            }
        }
    }

    fn element_filter(&mut self, depth: u32) -> Document {
        if self.chance(50) {
            let mut operators = Document::new();
            self.operator(depth, &mut operators);
            return operators;
        }
        let mut filter = Document::new();
        for _ in 0..self.pick(&[1, 1, 2]) {
            let name = self.pick(&["q", "v", "x", "y.z", "0"]);
            let mut operators = Document::new();
            self.operator(0, &mut operators);
            filter.insert(name, operators);
        }
        filter
    }

    fn types(&mut self) -> Bson {
        let one = |own: &mut Self| {
            if own.chance(50) {
                Bson::String(
                    own.pick(&[
                        "number",
                        "string",
                        "object",
                        "array",
                        "null",
                        "double",
                        "int",
                        "long",
                        "decimal",
                        "date",
                        "bool",
                        "objectId",
                        "binData",
                        "regex",
                        "undefined",
                        "minKey",
                        "missing?",
                    ])
                    .to_owned(),
                )
            } else {
                Bson::Int32(own.int(-1, 20))
            }
        };
        if self.chance(70) { one(self) } else { Bson::Array(self.list(1, 3, one)) }
    }

    fn schema(&mut self) -> Document {
        let field = self.field();
        let rule = match self.below(10) {
            6 => doc! { "maximum": self.int(0, 5), "exclusiveMaximum": self.chance(50) },
            7 => doc! { "multipleOf": self.int(1, 4) },
            8 => doc! { "minLength": self.int(0, 3), "maxLength": self.int(2, 5) },
            9 => doc! { "items": { "bsonType": "number" }, "maxItems": self.int(0, 4) },
            0 => {
                doc! { "bsonType": self.pick(&["int", "string", "array", "object", "number", "null"]) }
            }
            1 => doc! { "minimum": self.int(0, 5) },
            2 => doc! { "enum": [self.operand()] },
            3 => doc! { "minItems": self.int(0, 3), "uniqueItems": true },
            4 => doc! { "pattern": self.pattern() },
            _ => doc! { "type": self.pick(&["string", "number", "array", "object", "boolean"]) },
        };
        let mut schema = doc! { "properties": { field: rule } };
        if self.chance(30) {
            schema.insert("required", vec![self.field()]);
        }
        match self.below(16) {
            0 => doc! { "anyOf": [schema] },
            1 => doc! { "not": schema },
            2 => doc! { self.pick(&["oneOf", "allOf"]): [schema, { "required": [self.field()] }] },
            3 => self.nested_schema(),
            4 => self.wrong_schema(),
            _ => schema,
        }
    }

    /// Schema rules for nested documents and arrays, and for additional fields.
    fn nested_schema(&mut self) -> Document {
        let kind = self.pick(&["int", "number", "string", "array", "object"]);
        match self.below(7) {
            0 => doc! { "properties": { "o": { "properties": { "x": { "bsonType": kind } } } } },
            1 => doc! { "properties": { "rows": { "items": { "required": ["v"] } } } },
            2 => doc! { "properties": { "arr": {
                "items": [{ "bsonType": kind }], "additionalItems": self.chance(50),
            } } },
            3 => doc! { "patternProperties": { "^[ad]$": { "bsonType": [kind, "null"] } } },
            4 => doc! { "dependencies": { "a": ["c"], "n": { "required": ["d"] } } },
            5 => doc! { "minProperties": self.int(0, 8), "maxProperties": self.int(6, 12) },
            _ => doc! { "properties": { "o": {
                "bsonType": "object", "additionalProperties": { "bsonType": kind },
            } } },
        }
    }

    /// An invalid schema.
    fn wrong_schema(&mut self) -> Document {
        let rule = self.pick(&[
            "bsonType",
            "type",
            "minimum",
            "exclusiveMinimum",
            "multipleOf",
            "minLength",
            "pattern",
            "items",
            "additionalItems",
            "uniqueItems",
            "required",
            "properties",
            "patternProperties",
            "additionalProperties",
            "dependencies",
            "enum",
            "anyOf",
            "not",
            "minProperties",
            "title",
            "format",
        ]);
        let value = self.pick(&[
            Bson::Null,
            Bson::Int32(-1),
            Bson::String("x".into()),
            Bson::Array(vec![]),
            Bson::Document(doc! {}),
            Bson::Boolean(true),
            Bson::Array(vec![Bson::Int32(1), Bson::Int32(1)]),
            Bson::Document(doc! { "x": 1 }),
        ]);
        doc! { "properties": { self.field(): { rule: value } } }
    }
}

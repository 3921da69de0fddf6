//! Random values of every BSON type.

use anyhow::Result;
use bson::oid::ObjectId;
use bson::raw::CString;
use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc,
};
use rand::RngExt;

use super::Workload;

impl Workload {
    /// An `_id` from a small pool, so that writes hit existing documents: numbers of four types, text, dates,
    /// documents.
    pub(super) fn id(&mut self) -> Bson {
        let n: i32 = self.rng.random_range(0..400);
        match self.rng.random_range(0..10) {
            0 => Bson::Int64(n.into()),
            1 => Bson::Double(f64::from(n) / 2.0),
            2 => Bson::String(format!("id {n}")),
            3 => Bson::Document(doc! { "a": n % 20, "b": "x" }),
            4 => Bson::DateTime(DateTime::from_millis(i64::from(n) * 1000)),
            5 => Bson::ObjectId(self.object_id()),
            _ => Bson::Int32(n),
        }
    }

    /// A document with the fields that updates and indexes use.
    pub(super) fn document(&mut self) -> Document {
        let mut document = doc! { "_id": self.id(), "n": self.rng.random_range(-50..50) };
        if self.chance(80) {
            document.insert("tags", self.numbers());
        }
        if self.chance(60) {
            document.insert("sub", doc! { "x": self.value(1), "y": { "z": self.value(1) } });
        }
        if self.chance(50) {
            document.insert("rows", self.rows());
        }
        if self.chance(50) {
            document.insert("text", self.words());
        }
        if self.chance(20) {
            let (x, y) = (self.rng.random_range(-170..170), self.rng.random_range(-80..80));
            document.insert("place", doc! { "type": "Point", "coordinates": [x, y] });
        }
        if self.chance(10) {
            document.insert("at", DateTime::from_millis(4_000_000_000_000));
        }
        for _ in 0..self.rng.random_range(0..4) {
            let name = self.field();
            document.insert(name, self.value(2));
        }
        document
    }

    /// A field name used by documents and updates.
    pub(super) fn field(&mut self) -> &'static str {
        self.pick(&["v", "w", "x", "long name with spaces", "é", "0", "k1", "k2"])
    }

    /// Any value, nested at most `depth` deep.
    pub(super) fn value(&mut self, depth: u32) -> Bson {
        match self.rng.random_range(0..if depth == 0 { 18 } else { 22 }) {
            0 => Bson::Null,
            1 => Bson::Boolean(self.chance(50)),
            2 => Bson::Int32(self.rng.random()),
            3 => Bson::Int64(self.rng.random()),
            4 => self.double(),
            5 => self.decimal().unwrap_or(Bson::Null),
            6 => Bson::String(self.words()),
            7 => Bson::String(String::new()),
            8 => Bson::DateTime(DateTime::from_millis(self.rng.random_range(-1 << 40..1 << 41))),
            9 => Bson::ObjectId(self.object_id()),
            10 => self.binary(),
            11 => Bson::Timestamp(Timestamp { time: self.rng.random(), increment: 1 }),
            12 => Bson::Undefined,
            13 => Bson::MinKey,
            14 => Bson::MaxKey,
            15 => self.regex(),
            16 => Bson::JavaScriptCode("function () { return 1 }".to_owned()),
            17 => Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
                code: "x".to_owned(),
                scope: doc! { "x": 1 },
            }),
            18 | 19 => {
                let n = self.rng.random_range(0..4);
                Bson::Array((0..n).map(|_| self.value(depth - 1)).collect())
            }
            _ => {
                let mut document = Document::new();
                for _ in 0..self.rng.random_range(0..4) {
                    let name = self.field();
                    document.insert(name, self.value(depth - 1));
                }
                Bson::Document(document)
            }
        }
    }

    pub(super) fn numbers(&mut self) -> Vec<i32> {
        let n = self.rng.random_range(0..8);
        (0..n).map(|_| self.rng.random_range(0..20)).collect()
    }

    fn rows(&mut self) -> Vec<Document> {
        let n = self.rng.random_range(0..6);
        (0..n)
            .map(|i| doc! { "i": i, "q": self.rng.random_range(0..10), "v": self.value(0) })
            .collect()
    }

    pub(super) fn words(&mut self) -> String {
        let n = self.rng.random_range(1..6);
        let words: Vec<&str> = (0..n)
            .map(|_| {
                self.pick(&[
                    "blue", "whale", "Über", "straße", "naïve", "zzz", "ABC", "abc", "日本",
                ])
            })
            .collect();
        words.join(" ")
    }

    /// An ObjectId from the seed, instead of clock and process id.
    fn object_id(&mut self) -> ObjectId {
        ObjectId::from_bytes(self.rng.random())
    }

    fn double(&mut self) -> Bson {
        let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, 0.1, 5.0];
        Bson::Double(self.pick(&special))
    }

    fn decimal(&mut self) -> Result<Bson> {
        let text = self.pick(&["0", "-0", "1.50", "1.5", "1E+6000", "NaN", "-Infinity", "5"]);
        Ok(Bson::Decimal128(text.parse::<Decimal128>()?))
    }

    fn binary(&mut self) -> Bson {
        let subtype = self.pick(&[0u8, 4, 5, 128]);
        let len = if subtype == 4 { 16 } else { self.rng.random_range(0..40) };
        let bytes = (0..len).map(|_| self.rng.random()).collect();
        Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes })
    }

    fn regex(&mut self) -> Bson {
        let (pattern, options) = (self.pick(&["^a", "b+$", ""]), self.pick(&["", "i", "im"]));
        match (CString::try_from(pattern), CString::try_from(options)) {
            (Ok(pattern), Ok(options)) => Bson::RegularExpression(Regex { pattern, options }),
            _ => Bson::Null,
        }
    }
}

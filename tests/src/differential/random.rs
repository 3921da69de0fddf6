//! Random choices, and the values that documents and queries share. The pool is small, so that queries match
//! documents.

use bson::oid::ObjectId;
use bson::raw::CString;
use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A seeded random generator.
#[derive(Debug)]
pub struct Random(StdRng);

impl Random {
    /// The generator of one case, determined only by the run's seed and the case number.
    pub fn of_case(seed: u64, case: u64) -> Self {
        Self(StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(case)))
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n.max(1))
    }

    /// A number in `from..to`.
    pub fn int(&mut self, from: i32, to: i32) -> i32 {
        self.0.random_range(from..to)
    }

    /// One of the given values.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let at = self.below(from.len());
        from.get(at).cloned().unwrap_or_else(|| unreachable!("an empty choice"))
    }

    /// A list of random length with elements from `make`.
    pub fn list<T>(
        &mut self,
        from: usize,
        to: usize,
        mut make: impl FnMut(&mut Self) -> T,
    ) -> Vec<T> {
        let n = from + self.below(to - from);
        (0..n).map(|_| make(self)).collect()
    }

    /// A path into the documents of [`super::data`].
    pub fn path(&mut self) -> &'static str {
        self.pick(&[
            "a", "a", "b", "b", "c", "c", "n", "n", "d", "h", "s", "arr", "arr", "o", "o.x", "o.x",
            "o.y.z", "rows", "rows.q", "rows.q", "rows.v", "rows.0.q", "arr.0", "arr.1",
            "deep.x.y", "missing", "_id",
        ])
    }

    /// A top-level field name.
    pub fn field(&mut self) -> &'static str {
        self.pick(&[
            "a", "b", "c", "n", "d", "h", "s", "arr", "o", "rows", "deep", "missing", "_id",
        ])
    }

    /// A small integer in one of the four number types.
    pub fn small_number(&mut self) -> Bson {
        let n = self.int(-1, 8);
        self.number_of(n)
    }

    /// This number in one of the four number types.
    pub fn number_of(&mut self, n: i32) -> Bson {
        match self.below(6) {
            0 => Bson::Int64(n.into()),
            1 => Bson::Double(n.into()),
            2 => decimal(&n.to_string()),
            _ => Bson::Int32(n),
        }
    }

    /// Any number, including extreme values.
    pub fn number(&mut self) -> Bson {
        match self.below(12) {
            0 => Bson::Int32(self.pick(&[i32::MIN, i32::MAX, 0, -1])),
            1 => Bson::Int64(self.pick(&[
                i64::MIN,
                i64::MAX,
                1 << 53,
                (1 << 53) + 1,
                i64::from(i32::MAX) + 1,
            ])),
            2 | 3 => Bson::Double(self.pick(&[
                0.0,
                -0.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                1e300,
                0.1,
                2.5,
                -3.75,
                1e-310,
                9_007_199_254_740_993.0,
                f64::MAX,
            ])),
            4 => decimal(self.pick(&[
                "0",
                "-0",
                "0.1",
                "2.50",
                "1E+6000",
                "1E-6000",
                "NaN",
                "Infinity",
                "-Infinity",
                "9223372036854775808",
                "2.5",
            ])),
            _ => self.small_number(),
        }
    }

    /// Text from a small pool: upper and lower case, accents, other scripts, digits, the empty string.
    pub fn text(&mut self) -> String {
        self.pick(&[
            "",
            "a",
            "A",
            "abc",
            "ABC",
            "abd",
            "ä",
            "Äpfel",
            "apfel",
            "résumé",
            "resume",
            "10",
            "9",
            "x y z",
            "日本語",
            "😀",
            "Straße",
            "strasse",
            "a.b",
            "$x",
            "line\nbreak",
            "2026-11-16T05:05:55Z",
            "zzz",
        ])
        .to_owned()
    }

    /// A date.
    pub fn date(&mut self) -> Bson {
        let millis = self.pick(&[
            0,
            1,
            -1000,
            1_700_000_000_000,
            1_709_164_800_000,
            951_782_400_000,
            -62_135_596_800_000,
            4_102_444_799_999,
            1_678_003_200_123,
            253_402_300_799_999,
        ]);
        Bson::DateTime(DateTime::from_millis(millis))
    }

    /// An ObjectId from a small pool.
    pub fn object_id(&mut self) -> Bson {
        let byte = self.pick(&[0u8, 1, 0x65, 0xff]);
        Bson::ObjectId(ObjectId::from_bytes([byte; 12]))
    }

    /// A value that is neither document nor array.
    pub fn scalar(&mut self) -> Bson {
        match self.below(26) {
            0 | 1 => Bson::Null,
            2 => Bson::Boolean(self.chance(50)),
            3 => self.date(),
            4 => self.object_id(),
            5 => self.binary(),
            6 => Bson::Timestamp(Timestamp { time: self.pick(&[0, 1, u32::MAX]), increment: 1 }),
            7 => self.pick(&[Bson::MinKey, Bson::MaxKey, Bson::Undefined]),
            8 => self.regex(),
            9 => Bson::JavaScriptCode("function () { return 1 }".to_owned()),
            10..=13 => Bson::String(self.text()),
            14..=17 => self.number(),
            _ => self.small_number(),
        }
    }

    /// Any value, nested at most `depth` deep.
    pub fn value(&mut self, depth: u32) -> Bson {
        if depth == 0 || self.chance(70) {
            return self.scalar();
        }
        if self.chance(55) {
            return Bson::Array(self.list(0, 4, |own| own.value(depth - 1)));
        }
        let mut document = Document::new();
        for _ in 0..self.below(4) {
            let name = self.pick(&["x", "y", "z", "q", "a", "0", "ü", "with space"]);
            document.insert(name, self.value(depth - 1));
        }
        Bson::Document(document)
    }

    fn binary(&mut self) -> Bson {
        let subtype = self.pick(&[0u8, 4, 5, 128]);
        let len = if subtype == 4 { 16 } else { self.below(6) };
        let byte = self.pick(&[0u8, 7, 0xff]);
        Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes: vec![byte; len] })
    }

    /// A regular expression.
    pub fn regex(&mut self) -> Bson {
        let (pattern, options) = (self.pattern(), self.pick(&["", "", "i", "im", "s", "x"]));
        match (CString::try_from(pattern), CString::try_from(options)) {
            (Ok(pattern), Ok(options)) => Bson::RegularExpression(Regex { pattern, options }),
            _ => Bson::Null,
        }
    }

    /// The pattern of a regular expression.
    pub fn pattern(&mut self) -> &'static str {
        self.pick(&[
            "^a",
            "^ab",
            "^A",
            "b",
            "c$",
            "",
            ".*",
            "^[ab]",
            "ä",
            "^abc$",
            "^a|b",
            "z{2}",
            "^\\Qa.b\\E",
            "^x y",
        ])
    }

    /// A value of a deprecated type. mongod cannot sort by some of them under a collation.
    pub fn odd(&mut self) -> Bson {
        match self.below(3) {
            0 => Bson::JavaScriptCode("function () { return 1 }".to_owned()),
            1 => Bson::Symbol(self.text()),
            _ => Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
                code: "x".to_owned(),
                scope: doc! { "x": self.int(0, 3) },
            }),
        }
    }
}

/// Parses a decimal128.
pub fn decimal(text: &str) -> Bson {
    text.parse::<Decimal128>().map_or(Bson::Null, Bson::Decimal128)
}

//! Random measurements in a time-series collection, and queries on them.

use bson::{Bson, DateTime, Document, doc};

use super::random::Random;
use super::{Case, Order};

/// The time-series collection.
pub const COLLECTION: &str = "ts";

const START_MILLIS: i64 = 1_700_000_000_000;

impl Random {
    /// A measurement: time, meta field, values.
    pub fn measurement(&mut self, n: i32) -> Document {
        let mut document = doc! { "t": self.time(), "_id": n };
        if self.chance(90) {
            let meta = match self.below(3) {
                0 => Bson::Document(doc! { "s": self.int(0, 3), "u": "x" }),
                1 => Bson::String(self.text()),
                _ => self.small_number(),
            };
            document.insert("m", meta);
        }
        for name in ["v", "w"] {
            if self.chance(80) {
                let value = match self.below(6) {
                    0 => self.scalar(),
                    1 => Bson::Document(doc! { "x": self.small_number() }),
                    _ => self.small_number(),
                };
                document.insert(name, value);
            }
        }
        document
    }

    fn time(&mut self) -> Bson {
        let minutes = i64::from(self.int(0, 240));
        Bson::DateTime(DateTime::from_millis(START_MILLIS + minutes * 60_000))
    }

    fn about_measurement(&mut self) -> Document {
        match self.below(8) {
            0 => doc! { "t": { self.pick(&["$gte", "$lt", "$gt", "$lte"]): self.time() } },
            1 => doc! { "t": { "$gte": self.time(), "$lt": self.time() } },
            2 => doc! { "m": self.operand() },
            3 => doc! { "m.s": { "$in": [self.int(0, 3), self.int(0, 3)] } },
            4 => doc! { "v": { self.pick(&["$gt", "$lte", "$eq", "$ne"]): self.operand() } },
            5 => doc! { "v.x": { "$gte": self.small_number() } },
            6 => doc! { "w": { "$exists": self.chance(50) }, "m": { "$ne": self.small_number() } },
            _ => doc! { "$or": [{ "v": self.small_number() }, { "t": self.time() }] },
        }
    }

    /// A find, count, distinct or pipeline over measurements.
    pub fn about_series(&mut self) -> Case {
        let filter = self.about_measurement();
        match self.below(6) {
            0 => {
                Case { command: doc! { "count": COLLECTION, "query": filter }, order: Order::Exact }
            }
            1 => {
                let key = self.pick(&["m", "m.s", "v", "w"]);
                let command = doc! { "distinct": COLLECTION, "key": key, "query": filter };
                Case { command, order: Order::Set }
            }
            2 => {
                let command = doc! { "find": COLLECTION, "filter": filter,
                "sort": { "t": self.pick(&[1, -1]), "_id": 1 }, "limit": self.int(1, 30) };
                Case { command, order: Order::Exact }
            }
            3 => {
                let by = match self.below(3) {
                    0 => Bson::String("$m".into()),
                    1 => Bson::Null,
                    _ => Bson::Document(doc! { "$dateTrunc": { "date": "$t", "unit": "hour" } }),
                };
                let pipeline = vec![
                    doc! { "$match": filter },
                    doc! { "$group": {
                        "_id": by, "n": { "$sum": 1 }, "least": { "$min": "$t" },
                        "most": { "$max": "$_id" }, "all": { "$sum": "$_id" },
                    } },
                ];
                let command = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} };
                Case { command, order: Order::Set }
            }
            _ => {
                let mut pipeline = vec![doc! { "$match": filter }];
                if self.chance(50) {
                    // No projection: mongod's second executor (SBE) orders the fields differently.
                    pipeline.push(doc! { "$addFields": { "sum": { "$ifNull": ["$v.x", "$m"] } } });
                }
                pipeline.push(doc! { "$sort": { "_id": 1 } });
                let command = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} };
                Case { command, order: Order::Exact }
            }
        }
    }
}

//! Random stages that combine neighbouring documents: `$setWindowFields`, `$fill`, `$densify`.
//!
//! They need a total order, so most sort by `_id` or by a time computed from it.

use bson::{Bson, DateTime, Document, doc};

use super::pipelines::Growing;
use super::random::Random;

/// Sort key of a window: a unique number, a unique time, or another field first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Number,
    Time,
    Field,
}

impl Random {
    /// Keeps documents with a numeric `_id` and adds a time `t` computed from it.
    fn with_time(&mut self, growing: &mut Growing) {
        let start = Bson::DateTime(DateTime::from_millis(1_709_000_000_000));
        let step = self.pick(&[60_000, 5_400_000, 86_400_000]);
        growing.push(doc! { "$match": { "_id": { "$type": "number" } } });
        growing.push(
            doc! { "$set": { "t": { "$add": [start, { "$multiply": [{ "$toInt": "$_id" }, step] }] } } },
        );
    }

    /// A window stage over a total order.
    pub(super) fn window(&mut self, growing: &mut Growing) {
        let by = self.pick(&[By::Number, By::Time, By::Field]);
        if by != By::Field {
            self.with_time(growing);
        }
        let way = if self.chance(70) { 1 } else { -1 };
        let sort = match by {
            By::Number => doc! { "_id": way },
            By::Time => doc! { "t": way },
            By::Field => doc! { self.pick(&["a", "n", "c", "d"]): way, "_id": 1 },
        };
        let mut output = Document::new();
        let mut sets = Document::new();
        for name in ["w", "w2"].iter().take(self.pick(&[1, 1, 2])) {
            let mut function = self.window_function(by);
            let set = function.contains_key("$addToSet") || function.contains_key("$setUnion");
            if set {
                let sorted = doc! { "$sortArray": { "input": format!("${name}"), "sortBy": 1 } };
                sets.insert(*name, sorted);
            }
            if self.chance(75) {
                function.insert("window", self.window_bounds(by));
            }
            output.insert(*name, function);
        }
        let mut spec = doc! { "sortBy": sort, "output": output };
        if self.chance(40) {
            let partition = match self.below(4) {
                0 => self.safe_expression(1),
                1 => Bson::Document(doc! { "$type": "$c" }),
                _ => Bson::String(self.pick(&["$a", "$c", "$missing"]).to_owned()),
            };
            spec.insert("partitionBy", partition);
        }
        growing.push(doc! { "$setWindowFields": spec });
        if !sets.is_empty() {
            growing.push(doc! { "$set": sets });
        }
        growing.sort_by_id();
    }

    fn window_bounds(&mut self, by: By) -> Document {
        let one = |own: &mut Self, from: i32, to: i32| match own.below(6) {
            0 => Bson::String("unbounded".into()),
            1 => Bson::String("current".into()),
            _ => Bson::Int32(own.int(from, to)),
        };
        let bounds = |own: &mut Self| vec![one(own, -4, 2), one(own, -1, 5)];
        match by {
            By::Number if self.chance(50) => {
                let mut bounds = bounds(self);
                if self.chance(20) {
                    bounds = vec![Bson::Double(-1.5), self.small_number()];
                }
                doc! { "range": bounds }
            }
            By::Time if self.chance(60) => {
                let mut window = doc! { "range": bounds(self) };
                if self.chance(90) {
                    window.insert("unit", self.unit());
                }
                window
            }
            _ => doc! { "documents": bounds(self) },
        }
    }

    /// A numeric expression. Not `n`: when numbers differ greatly in size or are not finite, mongod's sliding sums
    /// keep rounding errors of removed values, and its percentiles are wrong.
    fn measured(&mut self) -> Bson {
        match self.below(6) {
            0 => Bson::String("$o.x".into()),
            1 => Bson::String("$rows.q".into()),
            2 => Bson::Document(doc! { "$size": { "$ifNull": ["$rows", []] } }),
            3 => Bson::Document(doc! { "$toInt": "$_id" }),
            _ => Bson::String("$a".into()),
        }
    }

    fn window_function(&mut self, by: By) -> Document {
        let count = self.int(1, 4);
        match self.below(18) {
            0 => {
                doc! { "$shift": { "output": "$c", "by": self.int(-2, 3), "default": self.text() } }
            }
            1 => doc! { self.pick(&["$documentNumber", "$rank", "$denseRank"]): {} },
            2 => {
                doc! { self.pick(&["$first", "$last", "$min", "$max"]): self.plain_expression(1) }
            }
            3 => doc! { self.pick(&["$firstN", "$lastN", "$minN", "$maxN"]): {
                "input": self.pick(&["$c", "$a"]), "n": count,
            } },
            4 => {
                doc! { self.pick(&["$push", "$addToSet"]): self.pick(&["$a", "$c", "$d", "$rows.q"]) }
            }
            5 => doc! { "$count": {} },
            6 => doc! { self.pick(&["$locf", "$linearFill"]): self.measured() },
            7 => {
                let mut spec = doc! { "input": self.measured() };
                if self.chance(60) {
                    spec.insert("N", self.int(1, 6));
                } else {
                    spec.insert("alpha", self.pick(&[0.5, 0.25, 0.9, 1.5]));
                }
                doc! { "$expMovingAvg": spec }
            }
            8 => {
                let mut spec = doc! { "input": { "$toInt": "$_id" } };
                if by == By::Time || self.chance(10) {
                    let unit = self.pick(&["week", "day", "hour", "minute", "second", "month"]);
                    spec.insert("unit", unit);
                }
                doc! { self.pick(&["$derivative", "$integral"]): spec }
            }
            9 => doc! { self.pick(&["$covariancePop", "$covarianceSamp"]): [
                self.measured(), { "$toInt": "$_id" },
            ] },
            10 => {
                doc! { self.pick(&["$top", "$bottom"]): { "sortBy": { "c": 1, "_id": 1 }, "output": ["$c", "$a"] } }
            }
            11 => doc! { self.pick(&["$topN", "$bottomN"]): {
                "sortBy": { "a": -1, "_id": 1 }, "output": "$_id", "n": count,
            } },
            12 => doc! { "$median": { "input": self.measured(), "method": "approximate" } },
            13 => doc! { "$percentile": {
                "input": self.measured(), "p": [0.5, 0.9, 0.0], "method": "approximate",
            } },
            14 => {
                doc! { self.pick(&["$concatArrays", "$setUnion"]): { "$ifNull": ["$rows.q", []] } }
            }
            15 => doc! { "$minMaxScaler": { "input": self.measured(), "min": 1, "max": 5 } },
            16 => doc! { self.pick(&["$stdDevPop", "$stdDevSamp"]): self.measured() },
            _ => doc! { self.pick(&["$sum", "$avg"]): self.measured() },
        }
    }

    /// `$fill` by value, by the last value, or linearly.
    pub(super) fn fill(&mut self, growing: &mut Growing) {
        let dated = self.chance(30);
        if dated || self.chance(30) {
            self.with_time(growing);
        }
        let field = self.pick(&["filled", "a", "rows.q", "c", "o.x"]);
        let output = match self.below(4) {
            0 => doc! { "method": "locf" },
            1 => doc! { "method": "linear" },
            2 => doc! { "value": self.plain_expression(1) },
            _ => doc! { "value": self.small_number() },
        };
        let sort = if dated {
            doc! { "t": 1 }
        } else {
            doc! { "_id": 1 }
        };
        let mut spec = doc! { "sortBy": sort, "output": { field: output } };
        match self.below(5) {
            0 => drop(spec.insert("partitionBy", doc! { "kind": { "$type": "$a" } })),
            1 => drop(spec.insert("partitionByFields", ["c"].to_vec())),
            _ => {}
        }
        growing.push(doc! { "$fill": spec });
        growing.sort_by_id();
    }

    /// `$densify`. The inserted documents have no `_id`.
    pub(super) fn densify(&mut self, growing: &mut Growing) {
        self.with_time(growing);
        growing.push(doc! { "$project": {
            "e": { "$mod": [{ "$toInt": "$_id" }, 3] }, "t": 1, "k": { "$toInt": "$_id" },
        } });
        let dated = self.chance(50);
        let at = |own: &mut Self| match dated {
            true => Bson::DateTime(DateTime::from_millis(
                1_709_000_000_000 + i64::from(own.int(-4, 40)) * 3_600_000,
            )),
            false => Bson::Int32(own.int(-4, 40)),
        };
        let bounds = match self.below(4) {
            0 => Bson::String("full".into()),
            1 => Bson::String("partition".into()),
            _ => Bson::Array(vec![at(self), at(self)]),
        };
        let step = if self.chance(80) {
            Bson::Int32(self.int(1, 8))
        } else {
            self.pick(&[Bson::Double(0.5), Bson::Double(2.5), Bson::Int64(3), Bson::Int32(0)])
        };
        let mut range = doc! { "step": step, "bounds": bounds };
        if dated {
            range.insert("unit", self.pick(&["hour", "day", "week", "month", "quarter", "minute"]));
        }
        let field = if dated { "t" } else { "k" };
        let mut spec = doc! { "field": field, "range": range };
        if self.chance(40) {
            // Partition fields are not text: under a collation, different texts can be equal, and any of them may
            // represent the partition.
            spec.insert("partitionByFields", self.pick(&[vec!["e"], vec!["e", "k"], vec![]]));
        }
        growing.push(doc! { "$densify": spec });
        growing.push(doc! { "$sort": { field: 1, "e": 1, "_id": 1 } });
        growing.unique = false;
        growing.ordered = false;
        growing.grouped = true;
    }
}

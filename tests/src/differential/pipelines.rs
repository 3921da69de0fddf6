//! Random pipelines, with what is known about the order of their results.

use bson::{Bson, Document, doc};

use super::Order;
use super::expressions::Kind;
use super::random::Random;

/// A pipeline under construction.
#[derive(Debug, Default)]
pub(super) struct Growing {
    pub(super) stages: Vec<Document>,
    /// The order of the documents is known.
    pub(super) ordered: bool,
    /// No two documents have the same `_id`.
    pub(super) unique: bool,
    /// Documents are no longer those of the collection.
    pub(super) grouped: bool,
    /// The number of documents depends on an unknown order.
    pub(super) cut: bool,
    /// This is a sub-pipeline, which must not contain stages with sub-pipelines.
    inner: bool,
}

impl Growing {
    pub(super) fn push(&mut self, stage: Document) {
        self.stages.push(stage);
    }

    pub(super) fn union(&mut self, union: Document) {
        self.push(doc! { "$unionWith": union });
        self.unique = false;
        self.ordered = false;
    }

    pub(super) fn sort_by_id(&mut self) {
        self.push(doc! { "$sort": { "_id": 1 } });
        self.ordered = self.unique;
    }
}

impl Random {
    /// A pipeline, and how its results are compared.
    pub fn pipeline(&mut self) -> (Vec<Document>, Order) {
        self.grown(Growing { unique: true, ..Growing::default() })
    }

    /// A sub-pipeline for a stage.
    pub(super) fn inner_pipeline(&mut self) -> (Vec<Document>, Order) {
        self.grown(Growing { unique: true, inner: true, ..Growing::default() })
    }

    fn grown(&mut self, mut growing: Growing) -> (Vec<Document>, Order) {
        if self.chance(50) {
            let filter = self.filter(2);
            growing.push(doc! { "$match": filter });
        }
        if self.chance(75) {
            growing.sort_by_id();
        }
        let stages = self.pick(&[0, 1, 1, 1, 2, 2, 3, 4]);
        for at in 1..=stages {
            self.stage(&mut growing, at == stages);
        }
        let order = match growing {
            Growing { cut: true, .. } => Order::Count,
            Growing { ordered: true, .. } => Order::Exact,
            _ => Order::Set,
        };
        (growing.stages, order)
    }

    /// Appends a stage. mongod reorders stages, so only the last one may have an expression that fails on some
    /// documents.
    fn stage(&mut self, growing: &mut Growing, last: bool) {
        // The fields are new ones. If a stage overwrites a field, mongod may drop the old one earlier, which changes
        // the field order.
        let at = growing.stages.len();
        let names = [format!("e{at}"), format!("f{at}"), format!("g{at}.h")];
        let fails = last && !growing.grouped;
        let computed =
            |own: &mut Self| if fails { own.expression(2) } else { own.safe_expression(2) };
        match self.below(32) {
            0 | 1 => growing.push(doc! { "$match": self.filter(2) }),
            2..=4 => {
                let spec = self.computed_projection(fails, &names);
                growing.unique &= !spec.contains_key("_id");
                growing.push(doc! { "$project": spec });
            }
            5..=7 => {
                let mut spec = Document::new();
                for _ in 0..=self.below(2) {
                    let path = self.pick(&names);
                    spec.insert(path, computed(self));
                }
                growing.push(doc! { self.pick(&["$addFields", "$set"]): spec });
            }
            8..=11 => self.group(growing),
            12 => {
                let mut sort = Document::new();
                // If mongod drops unneeded fields before a sort, it ignores array positions in the sort.
                let positions = ["arr.0", "arr.1", "rows.1.q"];
                let path = if last && !growing.grouped && self.chance(30) {
                    self.pick(&positions)
                } else {
                    self.pick(&["a", "c", "n", "d", "h", "arr", "o.x", "rows.q", "o.y.z"])
                };
                sort.insert(path, self.pick(&[1, -1]));
                sort.insert("_id", 1);
                growing.push(doc! { "$sort": sort });
                growing.ordered = growing.unique;
            }
            // After a cut of an unknown order, later stages must not depend on the content of the documents.
            13 if growing.ordered || last => {
                let name = self.pick(&["$limit", "$skip"]);
                growing.push(doc! { name: self.int(1, 20) });
                growing.cut |= !growing.ordered;
            }
            14 | 15 => self.unwind(growing),
            16 => {
                growing.grouped = true;
                growing.push(doc! { "$count": "n" });
                growing.ordered = true;
            }
            17 if growing.unique => {
                // Which of several equal values represents a group depends on which was read first.
                if !growing.ordered {
                    growing.sort_by_id();
                }
                growing.push(doc! { "$sortByCount": self.plain_expression(1) });
                growing.push(doc! { "$sort": { "count": 1, "_id": 1 } });
                growing.ordered = false;
                growing.grouped = true;
            }
            18 => {
                let root = if fails {
                    self.expression_of(Kind::Object, 1)
                } else {
                    Bson::String("$$ROOT".into())
                };
                let stage = if self.chance(50) {
                    doc! { "$replaceWith": root }
                } else {
                    doc! { "$replaceRoot": { "newRoot": root } }
                };
                growing.push(stage);
                growing.unique = false;
            }
            19 => {
                let paths = self.list(1, 3, |own| own.path().to_owned());
                growing.unique &= !paths.iter().any(|path| path == "_id");
                growing.push(doc! { "$unset": paths });
            }
            20 | 27 if !growing.inner => self.join(growing),
            23 | 24 | 28 if growing.unique && !growing.grouped => self.window(growing),
            25 if growing.unique && !growing.grouped => self.fill(growing),
            29 if growing.unique && !growing.grouped => self.densify(growing),
            26 if !growing.inner => self.graph(growing),
            21 => self.bucket(growing),
            22 => {
                // `$$ROOT` stays the whole document while sub-documents are looked at.
                let test =
                    doc! { "$and": [self.safe_expression(1), { "$ne": ["$$ROOT.a", "$b"] }] };
                growing.push(doc! { "$redact": { "$cond": [
                    test, self.pick(&["$$DESCEND", "$$KEEP"]), "$$PRUNE",
                ] } });
                // `$$DESCEND` removes the `_id` of some documents, which then sort as equal.
                growing.unique = false;
                growing.ordered = false;
            }
            _ => {
                if growing.ordered && growing.unique && !growing.inner {
                    self.facet(growing);
                }
            }
        }
    }

    fn group(&mut self, growing: &mut Growing) {
        let id = match self.below(6) {
            0 => Bson::Null,
            // One field alone groups by its value, and there what is missing is null.
            1 if growing.ordered => Bson::Document(doc! { "x": self.plain_expression(1) }),
            1 => Bson::Document(doc! { "x": self.plain_expression(1), "y": "$a" }),
            2 => self.plain_expression(2),
            _ => Bson::String(format!("${}", self.pick(&["a", "c", "n", "d"]))),
        };
        let simple_id = matches!(&id, Bson::Null)
            || matches!(&id, Bson::String(path) if ["$a", "$c", "$n", "$d"].contains(&path.as_str()));
        if !growing.ordered {
            growing.sort_by_id();
        }
        let known = growing.ordered;
        let mut spec = doc! { "_id": id };
        let mut sets = Document::new();
        for at in 0..self.below(4) {
            let name = format!("f{at}");
            let simple = self.pick(&["$sum", "$avg", "$stdDevPop", "$stdDevSamp"]);
            let accumulator = match self.below(9) {
                0 if known => {
                    doc! { self.pick(&["$push", "$first", "$last"]): self.plain_expression(1) }
                }
                1 if known => doc! { self.pick(&["$firstN", "$lastN", "$minN", "$maxN"]): {
                    "input": "$c", "n": self.int(1, 4),
                } },
                3 => {
                    sets.insert(
                        &name,
                        doc! { "$sortArray": { "input": format!("${name}"), "sortBy": 1 } },
                    );
                    doc! { "$addToSet": format!("${}", self.pick(&["c", "a"])) }
                }
                4 => doc! { "$count": {} },
                2 => {
                    let by = self.pick(&["a", "n", "c", "d"]);
                    let sort = doc! { by: self.pick(&[1, -1]), "_id": 1 };
                    if self.chance(50) {
                        doc! { self.pick(&["$top", "$bottom"]): {
                            "sortBy": sort, "output": self.plain_expression(1),
                        } }
                    } else {
                        doc! { self.pick(&["$topN", "$bottomN"]): {
                            "sortBy": sort, "output": ["$_id", "$c"], "n": self.int(1, 4),
                        } }
                    }
                }
                5 if known => doc! { "$mergeObjects": { "c": "$c" } },
                _ => doc! { simple: format!("${}", self.pick(&["a", "rows.q"])) },
            };
            spec.insert(name, accumulator);
        }
        growing.grouped = true;
        growing.push(doc! { "$group": spec });
        if !sets.is_empty() {
            growing.push(doc! { "$addFields": sets });
        }
        // An array sorts by one of its elements, so two arrays can tie.
        growing.unique = simple_id;
        growing.cut |= !known;
        growing.sort_by_id();
        growing.unique = true;
    }

    fn unwind(&mut self, growing: &mut Growing) {
        let path = format!("${}", self.pick(&["arr", "rows", "o", "b", "missing", "rows.v"]));
        let stage = if self.chance(50) {
            doc! { "$unwind": path }
        } else {
            doc! { "$unwind": { "path": path, "preserveNullAndEmptyArrays": self.chance(50), "includeArrayIndex": "at" } }
        };
        growing.push(stage);
        growing.unique = false;
    }

    fn bucket(&mut self, growing: &mut Growing) {
        growing.grouped = true;
        // Equal numbers of different types could each become a bucket boundary, so all are converted to double.
        let number =
            doc! { "$convert": { "input": "$a", "to": "double", "onError": 0.5, "onNull": 2.0 } };
        match self.below(4) {
            0 => growing.push(doc! { "$bucket": {
                "groupBy": format!("${}", self.pick(&["a", "n"])), "boundaries": [-1, 0, 2, 5], "default": "rest",
                "output": { "n": { "$sum": 1 } },
            } }),
            1 => growing.push(doc! { "$bucket": {
                "groupBy": number, "boundaries": self.pick(&[vec![-1, 3, 9], vec![3, 5], vec![5, 3], vec![1]]),
                "output": { "n": { "$sum": "$a" }, "most": { "$max": "$c" } },
            } }),
            2 => growing.push(doc! { "$bucketAuto": { "groupBy": "$_id", "buckets": self.int(1, 6) } }),
            _ => {
                let granularity = self.pick(&[
                    "R5", "R10", "R20", "R40", "R80", "1-2-5", "E6", "E12", "E24", "E48", "E96", "E192",
                    "POWERSOF2", "R7",
                ]);
                let by = doc! { "$abs": number };
                growing.push(doc! { "$bucketAuto": {
                    "groupBy": by, "buckets": self.int(1, 6), "granularity": granularity,
                    "output": { "n": { "$sum": 1 }, "least": { "$min": "$c" } },
                } });
            }
        }
        growing.ordered = true;
        growing.unique = true;
    }

    /// A projection that is valid in both `$project` and find.
    pub fn computed_projection(&mut self, may_fail: bool, names: &[String]) -> Document {
        let mut spec = Document::new();
        match self.below(4) {
            0 => {
                for _ in 0..=self.below(3) {
                    let path = self.path();
                    spec.insert(path, 0);
                }
            }
            1 => {
                for _ in 0..=self.below(3) {
                    let path = self.path();
                    spec.insert(
                        path,
                        self.pick(&[Bson::Int32(1), Bson::Boolean(true), Bson::Double(2.5)]),
                    );
                }
            }
            _ => {
                for _ in 0..=self.below(3) {
                    let path = self.pick(names);
                    let value = if self.chance(30) {
                        Bson::Int32(1)
                    } else if may_fail {
                        self.expression(2)
                    } else {
                        self.safe_expression(2)
                    };
                    spec.insert(path, value);
                }
            }
        }
        if self.chance(20) {
            spec.insert("_id", 0);
        }
        spec
    }
}

//! Random commands.

use bson::{Bson, Document, doc};

use super::data::COLLECTIONS;
use super::random::Random;
use super::{Case, Order};

impl Random {
    /// A random command.
    pub fn command(&mut self) -> Case {
        let mut case = match self.below(23) {
            20 => self.about_places(),
            21 => self.about_series(),
            22 => self.about_view(),
            0 if self.chance(40) => self.by_keys(),
            0 if self.chance(60) => self.text_search(),
            0..=9 => self.find(),
            10 | 11 => self.count(),
            12 | 13 => self.distinct(),
            _ if self.chance(8) => self.wrong_pipeline(),
            _ => self.aggregate(),
        };
        if self.chance(4) {
            self.spoil(&mut case.command);
            let cuts = ["skip", "limit"].iter().any(|name| case.command.contains_key(name));
            case.order = Order::Set.cut_if(cuts || case.command.contains_key("pipeline"));
        }
        case
    }

    fn find(&mut self) -> Case {
        let coll = if self.chance(8) { "twice" } else { self.pick(&COLLECTIONS) };
        // Collection `p` has only the `_id` index, so only one plan is possible and documents are read in one order.
        // Only there may an expression fail on a document.
        let filter = if coll == "p" && self.chance(15) {
            doc! { "$expr": self.expression(2) }
        } else {
            self.filter(3)
        };
        let mut command = doc! { "find": coll, "filter": filter };
        let mut order = Order::Set;
        if self.chance(45) {
            let (sort, total) = self.sort();
            command.insert("sort", sort);
            if total {
                order = Order::Exact;
            }
        }
        if coll != "twice" && coll != "v" && self.chance(6) {
            let (filter, projection) = self.positional();
            command.insert("filter", filter);
            command.insert("projection", projection);
        } else if coll != "twice" && self.chance(40) {
            // The order of documents with equal sort keys is unspecified, so no projection may fail then.
            let may_fail = coll == "p" && (order == Order::Exact || !command.contains_key("sort"));
            let projection = self.projection(coll, may_fail);
            command.insert("projection", projection);
        }
        // If mongod removes fields before it sorts, because a projection or view hides them, it ignores array
        // positions in the sort.
        if coll == "v" || command.contains_key("projection") {
            without_positions(&mut command);
        }
        // The same holds for array elements without such a field.
        if coll == "v"
            && let Ok(sort) = command.get_document_mut("sort")
            && let Some(way) = sort.remove("deep.x.y")
        {
            let rest = std::mem::take(sort);
            sort.insert("a", way);
            sort.extend(rest.into_iter().filter(|(path, _)| path != "a"));
        }
        if self.chance(25) {
            command.insert("skip", self.int(0, 12));
            order = order.cut();
        }
        if self.chance(30) {
            command.insert("limit", self.int(0, 15));
            order = order.cut();
        }
        if self.chance(20) {
            command.insert("batchSize", self.int(1, 30));
        }
        if coll != "v" && self.chance(10) {
            command.insert("collation", self.collation());
        }
        if self.chance(8) {
            command.insert("let", doc! { "v": self.small_number(), "w": self.text() });
            if coll != "v" && self.chance(60) {
                let name = self.pick(&["$lt", "$gte", "$eq", "$ne"]);
                let pair = self.pick(&[["$a", "$$v"], ["$c", "$$w"], ["$$v", "$o.x"]]);
                command.insert("filter", doc! { "$expr": { name: pair.to_vec() } });
            }
        }
        if self.chance(4) {
            command.insert("singleBatch", true);
            order = order.cut();
        }
        match self.below(24) {
            0 | 1 => {
                command.insert("hint", self.hint());
            }
            2 if coll == "x" && !command.contains_key("collation") => {
                self.bounded(&mut command);
                let cuts = ["skip", "limit", "singleBatch"];
                order = Order::Set.cut_if(cuts.iter().any(|name| command.contains_key(name)));
            }
            _ => {}
        }
        Case { command, order }
    }

    /// Adds `min` and `max` for an index; sometimes they do not fit the index.
    fn bounded(&mut self, command: &mut Document) {
        let number = |own: &mut Self| own.small_number();
        let (hint, min, max) = match self.below(6) {
            0 => (Bson::String("arr_1".into()), doc! { "arr": number(self) }, doc! { "arr": 6 }),
            1 => (
                Bson::Document(doc! { "o.x": 1, "a": 1 }),
                doc! { "o.x": number(self), "a": number(self) },
                doc! { "o.x": 7, "a": 0 },
            ),
            2 => (
                Bson::String("d_-1".into()),
                doc! { "d": self.date(), "_id": 0 },
                doc! { "d": self.date(), "_id": 9 },
            ),
            3 => (
                self.hint(),
                doc! { "a": number(self), "c": self.text() },
                doc! { "a": number(self), "b": 0 },
            ),
            _ => (
                Bson::String("a_1_c_-1".into()),
                doc! { "a": number(self), "c": self.text() },
                doc! { "a": 6, "c": "" },
            ),
        };
        if self.chance(95) {
            command.insert("hint", hint);
        }
        if self.chance(80) {
            command.insert("min", min);
        }
        if self.chance(50) {
            command.insert("max", max);
        }
    }

    /// A find that an index can answer alone, or that asks for index keys.
    fn by_keys(&mut self) -> Case {
        let number = self.small_number();
        let filter = match self.below(5) {
            0 => doc! { "a": number },
            1 => doc! { "a": { "$gte": number } },
            2 => doc! { "a": { "$in": [number, 3, 5] }, "c": { "$ne": self.text() } },
            3 => doc! { "a": { "$lt": number }, "c": { "$regex": self.pattern() } },
            _ => doc! { "o.x": number },
        };
        let mut command = doc! { "find": "x", "filter": filter };
        let projection = self.pick(&[
            doc! { "a": 1, "c": 1, "_id": 0 },
            doc! { "c": 1, "_id": 0 },
            doc! { "a": 1, "_id": 0 },
            doc! { "c": 1, "a": true },
            doc! { "o.x": 1, "a": 1, "_id": 0 },
        ]);
        if self.chance(30) {
            command.insert("returnKey", true);
        } else {
            command.insert("projection", projection);
        }
        if self.chance(30) {
            command.insert("sort", doc! { self.pick(&["a", "c"]): self.pick(&[1, -1]) });
        }
        Case { command, order: Order::Set }
    }

    fn sort(&mut self) -> (Document, bool) {
        if self.chance(4) {
            return (doc! { "$natural": self.pick(&[1, -1]) }, true);
        }
        let mut sort = Document::new();
        for _ in 0..self.pick(&[1, 1, 2]) {
            // A sort over two arrays fails on the first document that has both.
            let path = self.pick(&["a", "c", "n", "d", "h", "s", "missing", "_id", "missing"]);
            let path = if sort.is_empty() && self.chance(30) {
                self.pick(&[
                    "arr", "o.x", "rows.q", "rows.v", "deep.x.y", "arr.0", "arr.1", "rows.0.q",
                    "rows.1.v", "deep.x.0",
                ])
            } else {
                path
            };
            sort.insert(path, self.pick(&[1, 1, -1]));
        }
        let total = self.chance(80);
        if total && !sort.contains_key("_id") {
            sort.insert("_id", self.pick(&[1, -1]));
        }
        let total = sort.contains_key("_id");
        (sort, total)
    }

    /// A filter on an array, with a positional projection of the matching element.
    fn positional(&mut self) -> (Document, Document) {
        let (path, shown, condition) = match self.below(6) {
            0 => ("rows.q", "rows.$", doc! { "$gte": self.small_number() }),
            1 => ("rows", "rows.$", doc! { "$elemMatch": { "q": self.small_number() } }),
            2 => (
                "rows",
                "rows.$",
                doc! { "$elemMatch": { "v": { "$exists": true }, "q": { "$lt": 5 } } },
            ),
            3 => ("rows.v", "rows.$", doc! { "$type": "number" }),
            4 => ("arr", "arr.$", doc! { "$in": [self.small_number(), self.small_number()] }),
            _ => ("arr", "arr.$", doc! { "$elemMatch": { "$gt": self.small_number() } }),
        };
        let mut projection = doc! { shown: 1 };
        match self.below(4) {
            0 => drop(projection.insert("a", 1)),
            1 => drop(projection.insert("_id", 0)),
            2 => drop(projection.insert("o.x", 1)),
            _ => {}
        }
        (doc! { path: condition }, projection)
    }

    fn projection(&mut self, coll: &str, may_fail: bool) -> Document {
        let names = ["e", "f", "g.h"].map(str::to_owned);
        let mut projection = self.computed_projection(may_fail, &names);
        if coll == "v" {
            return projection;
        }
        match self.below(8) {
            0 => {
                let window = if self.chance(50) {
                    Bson::Int32(self.int(-3, 4))
                } else {
                    Bson::Array(vec![self.int(-3, 3).into(), self.int(1, 4).into()])
                };
                projection = doc! { self.pick(&["arr", "rows", "o.y"]): { "$slice": window }, "a": self.pick(&[0, 1]) };
            }
            1 => {
                let inner = doc! { "q": { "$gte": self.small_number() } };
                projection = doc! { "rows": { "$elemMatch": inner }, "c": 1 };
            }
            2 => {
                let shown = self.pick(&[0, 1]);
                projection =
                    doc! { "o": { "x": shown, "y": { "z": shown } }, "rows": { "q": shown } };
            }
            3 => {
                let (one, other) = (self.path(), self.path());
                let shown = self.pick(&[0, 1]);
                projection = doc! { one: shown, other: shown };
            }
            _ => {}
        }
        projection
    }

    /// A find, count, distinct or pipeline on the view with a collation, comparing text.
    fn about_view(&mut self) -> Case {
        let filter = match self.below(4) {
            0 => doc! { "c": self.text() },
            1 => doc! { "c": { self.pick(&["$gt", "$lte", "$ne"]): self.text() } },
            2 => doc! { "$expr": { "$eq": ["$c", self.text()] } },
            _ => self.filter(1),
        };
        match self.below(4) {
            0 => Case { command: doc! { "count": "vc", "query": filter }, order: Order::Exact },
            1 => {
                // Which of two texts that are equal under the collation is returned depends on which was read first.
                let key = self.pick(&["a", "n", "d"]);
                Case {
                    command: doc! { "distinct": "vc", "key": key, "query": filter },
                    order: Order::Set,
                }
            }
            2 => {
                let pipeline = vec![
                    doc! { "$match": filter },
                    doc! { "$group": { "_id": { "$toLower": "$c" }, "n": { "$sum": 1 } } },
                    doc! { "$sort": { "n": 1, "_id": 1 } },
                ];
                let command = doc! { "aggregate": "vc", "pipeline": pipeline, "cursor": {} };
                Case { command, order: Order::Count }
            }
            _ => {
                let sort = doc! { "c": self.pick(&[1, -1]), "_id": 1 };
                let command = doc! { "find": "vc", "filter": filter, "sort": sort };
                Case { command, order: Order::Exact }
            }
        }
    }

    fn hint(&mut self) -> Bson {
        self.pick(&[
            Bson::String("_id_".into()),
            Bson::String("arr_1".into()),
            Bson::String("a_1_c_-1".into()),
            Bson::String("none".into()),
            Bson::String("s_sparse".into()),
            Bson::String("n_partial".into()),
            Bson::String("b_hidden".into()),
            Bson::Document(doc! { "_id": 1 }),
            Bson::Document(doc! { "rows.q": 1, "rows.v": -1 }),
            Bson::Document(doc! { "$natural": 1 }),
            Bson::Document(doc! { "$natural": -1 }),
            Bson::Document(doc! { "a": 1 }),
            Bson::Document(doc! { "a": 1, "c": -1 }),
            Bson::Document(doc! { "arr": 1 }),
            Bson::Document(doc! { "d": -1, "_id": 1 }),
            Bson::Document(doc! { "$natural": 2 }),
            Bson::Document(doc! {}),
        ])
    }

    fn collation(&mut self) -> Document {
        match self.below(9) {
            0 => doc! { "locale": "simple" },
            1 => doc! { "locale": "en", "strength": 2 },
            2 => doc! { "locale": "de", "strength": 1 },
            3 => doc! { "locale": "fr", "numericOrdering": true },
            4 => doc! { "locale": "en", "caseFirst": "upper" },
            5 => doc! { "locale": "en", "strength": 1, "caseLevel": true },
            6 => doc! { "locale": "en", "alternate": "shifted", "strength": self.int(1, 5) },
            7 => doc! { "locale": "fr_CA", "caseFirst": self.pick(&["lower", "off"]) },
            _ => doc! { "locale": self.pick(&["sv", "nowhere"]) },
        }
    }

    fn count(&mut self) -> Case {
        let coll = self.pick(&COLLECTIONS);
        let mut command = doc! { "count": coll, "query": self.filter(3) };
        if self.chance(25) {
            command.insert("limit", self.pick(&[-3, 1, 5, 20]));
        }
        if self.chance(25) {
            command.insert("skip", self.int(0, 20));
        }
        if coll != "v" && self.chance(10) {
            command.insert("collation", self.collation());
        }
        if self.chance(8) {
            command.insert("hint", self.hint());
        }
        Case { command, order: Order::Exact }
    }

    fn distinct(&mut self) -> Case {
        let coll = self.pick(&COLLECTIONS);
        // With an index, mongod's distinct returns null for documents without the field; without one, it does not. If
        // several plans are possible, the plan trial decides.
        let key = match coll {
            "x" => self.pick(&["n", "h", "b", "a", "d"]),
            "v" => self.pick(&["a", "c", "n", "d", "rows.q"]),
            _ => self.path(),
        };
        let mut command = doc! { "distinct": coll, "key": key };
        if self.chance(70) {
            command.insert("query", self.filter(2));
        }
        if coll != "v" && self.chance(10) {
            let collation = self.collation();
            // When mongod skips through an index from value to value, it uses the index's collation instead of the
            // requested one.
            if (coll, key) != ("ci", "c") {
                command.insert("collation", collation);
            }
        }
        // distinct returns the values of a collection in a defined order, but those of a view in the order of a hash
        // table.
        let order = if coll == "v" { Order::Set } else { Order::Exact };
        Case { command, order }
    }

    fn aggregate(&mut self) -> Case {
        let (pipeline, order) = self.pipeline();
        let coll = self.pick(&COLLECTIONS);
        let mut command = doc! { "aggregate": coll, "pipeline": pipeline };
        // mongod computes linear fill values lazily, so it is unspecified in which batch an error occurs.
        let lines = command.to_string().contains("\"linear\"");
        let cursor = if !lines && self.chance(15) {
            doc! { "batchSize": self.int(1, 20) }
        } else {
            doc! {}
        };
        command.insert("cursor", cursor);
        if coll != "v" && self.chance(8) {
            command.insert("collation", self.collation());
        }
        if self.chance(8) {
            command.insert("let", doc! { "v": self.small_number() });
        }
        Case { command, order }
    }
}

/// Replaces array positions in the sort by the whole arrays.
fn without_positions(command: &mut Document) {
    let Ok(sort) = command.get_document("sort") else { return };
    let named = |(path, way): (&String, &Bson)| {
        let parts = path.split('.').filter(|part| part.parse::<u32>().is_err());
        (parts.collect::<Vec<_>>().join("."), way.clone())
    };
    let sort: Document = sort.iter().map(named).collect();
    command.insert("sort", sort);
}

//! Random stages that read other collections or run sub-pipelines.

use bson::{Bson, Document, doc};

use super::Order;
use super::pipelines::Growing;
use super::random::Random;

impl Random {
    /// `$lookup` in one of its forms, or `$unionWith`.
    pub(super) fn join(&mut self, growing: &mut Growing) {
        // mongod's joins convert unusual types (code becomes a string, MaxKey a document), so only common ones are
        // kept.
        growing.push(doc! { "$project": { "a": 1, "c": 1, "n": 1, "d": 1, "rows.q": 1 } });
        let lookup = match self.below(10) {
            0 => doc! {
                "from": "other", "localField": self.pick(&["c", "n", "d", "rows.q", "missing"]),
                "foreignField": self.pick(&["k", "q", "_id", "t"]),
            },
            1 => doc! {
                "from": self.pick(&["other", "x"]), "let": { "own": self.plain_expression(1) },
                "pipeline": [{ "$match": { "$expr": { "$eq": ["$q", "$$own"] } } }, { "$project": { "q": 1 } }],
            },
            2 => doc! {
                "from": "other", "localField": "c", "foreignField": "t",
                "pipeline": [{ "$match": self.filter(1) }],
            },
            3 => doc! {
                "let": { "own": "$a" },
                "pipeline": [{ "$documents": [{ "_id": 1, "is": { "$type": "$$own" } }, { "_id": 2 }] }],
            },
            4 => self.lookup_of_sums(),
            5 => self.lookup_in_lookup(),
            6 => doc! {
                "from": self.pick(&["nowhere", "other", "vc"]), "localField": "a", "foreignField": "_id",
                "let": { "own": "$c", "number": { "$ifNull": ["$a", 0] } },
                "pipeline": [
                    { "$match": { "$expr": { "$ne": ["$t", "$$own"] } } },
                    { "$set": { "is": { "$cmp": ["$$number", "$q"] } } },
                    { "$project": { "is": 1, "t": 1 } },
                ],
            },
            7 => {
                return growing.union(doc! { "coll": "other", "pipeline": [
                    { "$match": { "q": self.operand() } }, { "$sort": { "_id": 1 } },
                ] });
            }
            8 => {
                let document = doc! { "_id": self.int(0, 9), "a": self.operand() };
                let union = doc! { "pipeline": [{ "$documents": [document] }] };
                return growing.union(union);
            }
            _ => {
                let pipeline = self.sorted_pipeline();
                let coll = self.pick(&["p", "x", "other", "v", "nowhere"]);
                return growing.union(doc! { "coll": coll, "pipeline": pipeline });
            }
        };
        let mut lookup = lookup;
        let field = self.pick(&["joined", "joined", "o.joined"]);
        lookup.insert("as", field);
        growing.push(doc! { "$lookup": lookup });
        if field == "joined" {
            growing.push(doc! { "$addFields": {
                "joined": { "$sortArray": { "input": "$joined", "sortBy": { "_id": 1 } } },
            } });
        }
        if self.chance(15) {
            growing.push(doc! { "$unwind": "$joined" });
            growing.push(doc! { "$project": { "a": 1, "joined._id": 1 } });
            growing.unique = false;
        }
    }

    /// A join whose sub-pipeline aggregates the joined documents.
    fn lookup_of_sums(&mut self) -> Document {
        doc! {
            "from": "other", "let": { "own": self.pick(&["$a", "$n", "$missing"]) },
            "pipeline": [
                { "$match": { "$expr": { self.pick(&["$lte", "$gte", "$eq"]): ["$q", "$$own"] } } },
                { "$sort": { "_id": self.pick(&[1, -1]) } },
                { "$limit": self.int(1, 12) },
                { "$group": { "_id": null, "n": { "$sum": 1 }, "all": { "$push": "$t" }, "of": { "$first": "$$own" } } },
            ],
        }
    }

    /// A nested join that uses variables of both levels.
    fn lookup_in_lookup(&mut self) -> Document {
        let inner = doc! {
            "from": "other", "let": { "mine": "$q" }, "as": "inner",
            "pipeline": [
                { "$match": { "$expr": { "$and": [
                    { "$eq": ["$q", "$$mine"] }, { self.pick(&["$gt", "$ne"]): ["$_id", "$$own"] },
                ] } } },
                { "$project": { "_id": 1, "own": { "$type": "$$own" } } },
                { "$sort": { "_id": 1 } },
            ],
        };
        doc! {
            "from": "other", "let": { "own": self.pick(&["$a", "$c"]) },
            "pipeline": [{ "$match": { "_id": { "$lt": self.int(1, 5) } } }, { "$lookup": inner }],
        }
    }

    /// A pipeline whose result order is fully specified.
    fn sorted_pipeline(&mut self) -> Vec<Document> {
        for _ in 0..8 {
            if let (pipeline, Order::Exact) = self.inner_pipeline() {
                return pipeline;
            }
        }
        vec![doc! { "$sort": { "_id": 1 } }]
    }

    /// Several pipelines over the same documents.
    pub(super) fn facet(&mut self, growing: &mut Growing) {
        growing.grouped = true;
        let mut spec = doc! { "one": [{ "$match": self.filter(1) }, { "$project": { "a": 1 } }] };
        if self.chance(50) {
            let mut pipeline = self.sorted_pipeline();
            let counted = doc! { "$limit": self.int(1, 9) };
            pipeline.push(counted);
            spec.insert("two", pipeline);
        } else {
            spec.insert("two", vec![doc! { "$limit": 3 }, doc! { "$count": "n" }]);
        }
        growing.push(doc! { "$facet": spec });
    }

    /// `$graphLookup`.
    pub(super) fn graph(&mut self, growing: &mut Growing) {
        growing.push(doc! { "$project": { "a": 1, "c": 1, "n": 1, "d": 1 } });
        let start = match self.below(6) {
            0 => Bson::Array(vec!["$a".into(), "$n".into()]),
            1 => self.plain_expression(1),
            2 => self.small_number(),
            _ => Bson::String(self.pick(&["$a", "$n", "$c"]).to_owned()),
        };
        let mut spec = doc! {
            "from": self.pick(&["other", "other", "other", "x", "nowhere"]), "startWith": start,
            "connectFromField": self.pick(&["q", "_id", "k"]),
            "connectToField": self.pick(&["q", "_id", "t"]),
            "as": "reached",
        };
        if self.chance(70) {
            spec.insert("maxDepth", self.int(0, 3));
        }
        if self.chance(60) {
            spec.insert("depthField", self.pick(&["depth", "at.depth"]));
        }
        if self.chance(30) {
            let filter = doc! { "_id": { self.pick(&["$gt", "$lte", "$ne"]): self.int(0, 25) } };
            spec.insert("restrictSearchWithMatch", filter);
        }
        growing.push(doc! { "$graphLookup": spec });
        growing.push(doc! { "$addFields": {
            "reached": { "$sortArray": { "input": "$reached", "sortBy": { "_id": 1 } } },
        } });
    }
}

//! Random text searches.

use bson::{Document, doc};

use super::random::Random;
use super::{Case, Order};

impl Random {
    /// A text search of `x`, which has a text index; sometimes of a collection without one.
    pub fn text_search(&mut self) -> Case {
        let coll = self.pick(&["x", "x", "x", "x", "x", "x", "p"]);
        let mut filter = doc! { "$text": self.search() };
        if self.chance(30) {
            let more = self.filter(1);
            filter.extend(more.into_iter().filter(|(name, _)| name != "$text"));
        }
        if self.chance(10) {
            filter = doc! { "$or": [filter, { "a": self.small_number() }] };
        }
        let meta = doc! { "$meta": "textScore" };
        let command = match self.below(6) {
            0 => doc! { "find": coll, "filter": filter },
            1 => doc! { "count": coll, "query": filter },
            2 => {
                // Which of several equal numbers represents a group is unspecified.
                let group = doc! { "_id": "$c", "most": { "$max": meta }, "n": { "$sum": 1 } };
                let pipeline = [doc! { "$match": filter }, doc! { "$group": group }];
                doc! { "aggregate": coll, "pipeline": pipeline.to_vec(), "cursor": {} }
            }
            3 => {
                let pipeline = [
                    doc! { "$match": filter },
                    doc! { "$sort": { "s": meta.clone(), "_id": 1 } },
                    doc! { "$project": { "c": 1, "score": meta } },
                ];
                doc! { "aggregate": coll, "pipeline": pipeline.to_vec(), "cursor": {} }
            }
            _ => {
                let projection = doc! { "c": 1, "score": meta };
                doc! { "find": coll, "filter": filter, "projection": projection }
            }
        };
        Case { command, order: Order::Set }
    }

    fn search(&mut self) -> Document {
        let mut parts = Vec::new();
        for _ in 0..self.int(0, 4) {
            let word = self.text();
            parts.push(match self.below(8) {
                0 => format!("-{word}"),
                1 => format!("\"{word}\""),
                2 => format!("-\"{word}\""),
                _ => word,
            });
        }
        let mut search = doc! { "$search": parts.join(" ") };
        if self.chance(30) {
            let language = self.pick(&["none", "german", "fr", "tr", "en", "klingon"]);
            search.insert("$language", language);
        }
        if self.chance(15) {
            search.insert("$caseSensitive", self.chance(70));
        }
        if self.chance(15) {
            search.insert("$diacriticSensitive", self.chance(70));
        }
        search
    }
}

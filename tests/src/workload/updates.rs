//! Random updates: every operator, array forms, pipelines.

use bson::{Bson, Document, doc};
use rand::RngExt;

use super::Workload;

impl Workload {
    /// A filter that matches one document or a few.
    pub(super) fn filter(&mut self) -> Document {
        match self.rng.random_range(0..6) {
            0 => doc! { "n": self.rng.random_range(-50..50) },
            1 => doc! { "tags": self.rng.random_range(0..20) },
            2 => doc! { "n": { "$gte": self.rng.random_range(30..50) } },
            _ => doc! { "_id": self.id() },
        }
    }

    /// An update with operators, including the array filters and the filter that a positional `$` needs.
    pub(super) fn update(&mut self) -> Update {
        let field = self.field();
        let value = self.value(2);
        let n = self.rng.random_range(-5..20);
        let plain = match self.rng.random_range(0..22) {
            0 => doc! { "$set": { field: value } },
            1 => doc! { "$set": { "sub.x": value, "sub.y.z": n, "new.deep.er": n } },
            2 => doc! { "$inc": { "n": n } },
            3 => doc! { "$inc": { "n": f64::from(n) / 4.0 }, "$set": { field: value } },
            4 => doc! { "$mul": { "n": n } },
            5 => doc! { "$min": { "n": n }, "$max": { "sub.x": n } },
            6 => doc! { "$unset": { field: 1, "sub.y": 1 } },
            7 => doc! { "$rename": { field: "renamed", "sub.x": "moved.x" } },
            8 => doc! { "$push": { "tags": n } },
            9 => doc! { "$push": { "tags": { "$each": self.numbers(), "$position": 1 } } },
            10 => {
                doc! { "$push": { "tags": { "$each": self.numbers(), "$slice": -6, "$sort": 1 } } }
            }
            11 => doc! { "$push": { "rows": { "i": n, "q": n, "v": value } } },
            12 => doc! { "$addToSet": { "tags": { "$each": self.numbers() } } },
            13 => doc! { "$pull": { "tags": { "$gt": n } } },
            14 => doc! { "$pull": { "rows": { "q": n } }, "$set": { "n": n } },
            15 => doc! { "$pop": { "tags": self.pick(&[1, -1]) } },
            16 => doc! { "$bit": { "n": { "xor": 5 } } },
            17 => doc! { "$currentDate": { "changed": true } },
            18 => doc! { "$set": { "rows.0.v": value, "tags.2": n } },
            19 => doc! { "$set": { "rows.$[].v": n } },
            20 => return self.filtered_update(n, value),
            _ => return self.positional_update(n, value),
        };
        Update { filter: self.filter(), update: plain.into(), array_filters: Vec::new() }
    }

    fn filtered_update(&mut self, n: i32, value: Bson) -> Update {
        Update {
            filter: self.filter(),
            update: doc! { "$set": { "rows.$[row].v": value }, "$inc": { "rows.$[row].q": 1 } }
                .into(),
            array_filters: vec![doc! { "row.q": { "$lt": n } }],
        }
    }

    fn positional_update(&mut self, n: i32, value: Bson) -> Update {
        Update {
            filter: doc! { "rows.q": n },
            update: doc! { "$set": { "rows.$.v": value }, "$unset": { "rows.$.i": 1 } }.into(),
            array_filters: Vec::new(),
        }
    }

    /// An update by an aggregation pipeline.
    pub(super) fn pipeline(&mut self) -> Vec<Document> {
        let n: i32 = self.rng.random_range(0..10);
        match self.rng.random_range(0..5) {
            0 => vec![doc! { "$set": { "sum": { "$add": [{ "$ifNull": ["$sum", 0] }, n] } } }],
            1 => vec![doc! { "$set": { "tags": { "$slice": ["$tags", 3] } } }],
            2 => vec![
                doc! { "$unset": ["sub.x", "text"] },
                doc! { "$set": { "sub.w": { "$literal": self.value(1) } } },
            ],
            3 => vec![doc! { "$replaceWith": { "_id": "$_id", "n": n, "was": "$sub" } }],
            _ => vec![doc! { "$set": { "rows": { "$concatArrays": [
                { "$cond": [{ "$isArray": "$rows" }, "$rows", []] }, [{ "i": n, "q": n }],
            ] } } }],
        }
    }
}

/// One update statement.
pub(super) struct Update {
    pub(super) filter: Document,
    pub(super) update: Bson,
    pub(super) array_filters: Vec<Document>,
}

impl Update {
    /// As an element of the update command's `updates`.
    pub(super) fn statement(self, multi: bool, upsert: bool) -> Document {
        let mut statement =
            doc! { "q": self.filter, "u": self.update, "multi": multi, "upsert": upsert };
        if !self.array_filters.is_empty() {
            statement.insert("arrayFilters", self.array_filters);
        }
        statement
    }
}

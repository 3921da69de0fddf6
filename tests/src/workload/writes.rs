//! Inserts, updates, deletes, find-and-modify, bulk writes, `$out` and `$merge`.
//!
//! The driver's collection methods send retryable writes (`lsid`, `txnNumber`), plain commands do not: every run has
//! both forms.

use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};
use mongodb::options::{FindOneAndUpdateOptions, ReturnDocument, UpdateModifications};
use mongodb::sync::Collection;
use rand::RngExt;

use super::Workload;
use crate::servers::Version;

impl Workload {
    pub(super) fn insert_one(&mut self) -> Result<()> {
        let document = self.document();
        let inserted = self.target().insert_one(document).run();
        self.settle(inserted)
    }

    pub(super) fn insert_many(&mut self) -> Result<()> {
        let n = self.rng.random_range(2..30);
        let documents: Vec<Document> = (0..n).map(|_| self.document()).collect();
        let ordered = self.chance(50);
        let (db, collection) = (self.db(), self.collection());
        let insert = doc! { "insert": collection, "documents": documents, "ordered": ordered };
        self.run_command(&db, insert)
    }

    pub(super) fn update_one(&mut self) -> Result<()> {
        let update = self.update();
        let UpdateModifications::Document(change) = modifications(&update.update) else {
            return Ok(());
        };
        let target = self.target();
        let mut request = target.update_one(update.filter, change);
        if !update.array_filters.is_empty() {
            request = request.array_filters(update.array_filters);
        }
        let updated = request.run();
        self.settle(updated)
    }

    pub(super) fn update_many(&mut self) -> Result<()> {
        let update = self.update().statement(true, false);
        let (db, collection) = (self.db(), self.collection());
        self.run_command(&db, doc! { "update": collection, "updates": [update] })
    }

    pub(super) fn upsert(&mut self) -> Result<()> {
        let mut update = self.update();
        update.filter = doc! { "_id": self.id() };
        let (db, collection) = (self.db(), self.collection());
        let statement = update.statement(false, true);
        self.run_command(&db, doc! { "update": collection, "updates": [statement] })
    }

    pub(super) fn replace(&mut self) -> Result<()> {
        let (filter, mut document) = (doc! { "_id": self.id() }, self.document());
        document.remove("_id");
        let upsert = self.chance(30);
        let replaced = self.target().replace_one(filter, document).upsert(upsert).run();
        self.settle(replaced)
    }

    pub(super) fn update_by_pipeline(&mut self) -> Result<()> {
        let (filter, pipeline) = (self.filter(), self.pipeline());
        let multi = self.chance(20);
        let (db, collection) = (self.db(), self.collection());
        let statement = doc! { "q": filter, "u": pipeline, "multi": multi };
        self.run_command(&db, doc! { "update": collection, "updates": [statement] })
    }

    pub(super) fn delete(&mut self) -> Result<()> {
        let filter = self.filter();
        if self.chance(70) {
            let deleted = self.target().delete_one(filter).run();
            return self.settle(deleted);
        }
        let (db, collection) = (self.db(), self.collection());
        let delete = doc! { "q": filter, "limit": 0 };
        self.run_command(&db, doc! { "delete": collection, "deletes": [delete] })
    }

    /// find-and-modify. A retryable one stores an image of the document before or after the change.
    pub(super) fn find_and_modify(&mut self) -> Result<()> {
        let update = self.update();
        let target = self.target();
        if self.chance(30) {
            let found = target.find_one_and_delete(update.filter).run();
            return self.settle(found);
        }
        let which = if self.chance(50) { ReturnDocument::After } else { ReturnDocument::Before };
        let mut options = FindOneAndUpdateOptions::default();
        options.return_document = Some(which);
        options.upsert = Some(self.chance(20));
        if !update.array_filters.is_empty() {
            options.array_filters = Some(update.array_filters);
        }
        let change = modifications(&update.update);
        let found = target.find_one_and_update(update.filter, change).with_options(options).run();
        self.settle(found)
    }

    /// Several statements in one command, some of which fail.
    pub(super) fn mixed_bulk(&mut self) -> Result<()> {
        let n = self.rng.random_range(2..12);
        let (db, collection) = (self.db(), self.collection());
        if self.version < Version::V8_2 || self.chance(50) {
            let updates: Vec<Document> = (0..n)
                .map(|_| {
                    let (multi, upsert) = (self.chance(20), self.chance(20));
                    self.update().statement(multi, upsert && !multi)
                })
                .collect();
            let command = doc! { "update": collection, "updates": updates, "ordered": false };
            return self.run_command(&db, command);
        }
        let ops: Vec<Document> = (0..n).map(|i| self.bulk_op(i % 3)).collect();
        let ns = [doc! { "ns": format!("{db}.{collection}") }, doc! { "ns": format!("{db}.b") }];
        let command = doc! { "bulkWrite": 1, "ops": ops, "nsInfo": ns.to_vec(), "ordered": false };
        self.run_command("admin", command)
    }

    fn bulk_op(&mut self, kind: i32) -> Document {
        let ns = self.rng.random_range(0..2);
        match kind {
            0 => doc! { "insert": ns, "document": self.document() },
            1 => {
                let update = self.update();
                let mut op =
                    doc! { "update": ns, "filter": update.filter, "updateMods": update.update };
                if !update.array_filters.is_empty() {
                    op.insert("arrayFilters", update.array_filters);
                }
                op
            }
            _ => doc! { "delete": ns, "filter": self.filter() },
        }
    }

    /// Writes to a time-series collection if the release has them; updates and deletes by the meta field.
    pub(super) fn measurements(&mut self) -> Result<()> {
        if self.version < Version::V5_0 {
            return self.insert_many();
        }
        let db = self.db();
        let sensor: i32 = self.rng.random_range(0..4);
        if self.chance(10) {
            let delete = doc! { "q": { "m.sensor": sensor }, "limit": 0 };
            return self.run_command(&db, doc! { "delete": "series", "deletes": [delete] });
        }
        if self.chance(10) {
            let change = doc! { "$set": { "m.place": self.words() } };
            let update = doc! { "q": { "m.sensor": sensor }, "u": change, "multi": true };
            return self.run_command(&db, doc! { "update": "series", "updates": [update] });
        }
        let n = self.rng.random_range(1..20);
        let base: i64 = 1_700_000_000_000;
        let documents: Vec<Document> = (0..n)
            .map(|_| {
                let at = base + self.rng.random_range(0..7_200_000);
                doc! {
                    "t": DateTime::from_millis(at), "m": { "sensor": self.rng.random_range(0..4) },
                    "v": self.rng.random_range(0..1000), "w": self.words(),
                }
            })
            .collect();
        self.run_command(&db, doc! { "insert": "series", "documents": documents })
    }

    /// `$out` and `$merge`: replaces a whole collection through a temporary one, or writes document by document.
    pub(super) fn out_and_merge(&mut self) -> Result<()> {
        let (db, from) = (self.db(), self.collection());
        let select = doc! { "$match": { "n": { "$gt": self.rng.random_range(-50..50) } } };
        let add = doc! { "$set": { "copied": self.rng.random_range(0..5) } };
        let into = self.pick(&["a", "b", "c", "f"]);
        let write = if self.chance(50) {
            doc! { "$out": into }
        } else {
            let matched = self.pick(&["replace", "merge", "keepExisting", "fail"]);
            doc! { "$merge": { "into": into, "whenMatched": matched, "whenNotMatched": "insert" } }
        };
        let pipeline = [select, add, write].to_vec();
        self.run_command(&db, doc! { "aggregate": from, "pipeline": pipeline, "cursor": {} })
    }

    /// User and role changes; `admin.system.users` and `admin.system.roles` are replicated through the oplog like
    /// other data.
    pub(super) fn users(&mut self) -> Result<()> {
        let name = format!("user{}", self.rng.random_range(0..4));
        let roles = [doc! { "role": self.pick(&["read", "readWrite", "dbAdmin"]), "db": "w0" }];
        let command = match self.rng.random_range(0..4) {
            0 | 1 => doc! { "createUser": name, "pwd": "secret", "roles": roles.to_vec() },
            2 => doc! { "dropUser": name },
            _ => {
                doc! { "createRole": format!("role of {name}"), "roles": roles.to_vec(), "privileges": [] }
            }
        };
        self.run_command("admin", command)
    }

    /// Inserts documents of some hundred kilobytes with very long index keys.
    pub(super) fn insert_large(&mut self) -> Result<()> {
        let mut document = self.document();
        let len = self.rng.random_range(1000..300_000);
        document.insert("large", "x".repeat(len));
        if self.chance(20) {
            document.insert("_id", format!("{}{len}", "k".repeat(len / 2)));
        }
        let inserted = self.target().insert_one(document).run();
        self.settle(inserted)
    }

    pub(super) fn target(&mut self) -> Collection<Document> {
        let (db, collection) = (self.db(), self.collection());
        self.client.database(&db).collection(&collection)
    }
}

pub(super) fn modifications(update: &Bson) -> UpdateModifications {
    UpdateModifications::Document(update.as_document().cloned().unwrap_or_default())
}

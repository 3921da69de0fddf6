//! Creates, changes, renames and drops collections and indexes with every option.

use anyhow::Result;
use bson::{Bson, Document, doc};
use rand::RngExt;

use super::Workload;
use crate::servers::Version;

impl Workload {
    /// Creates one of the collections with options; most exist already after a while.
    pub(super) fn create(&mut self) -> Result<()> {
        let db = self.db();
        let command = match self.rng.random_range(0..14) {
            0 => doc! { "create": "capped", "capped": true, "size": 100_000, "max": 300 },
            1 => doc! { "create": "collated", "collation": { "locale": "de", "strength": 1 } },
            2 => doc! {
                "create": "checked", "validator": { "n": { "$type": "number" } },
                "validationLevel": "moderate", "validationAction": "error",
            },
            3 => doc! {
                "create": "checked", "validationAction": "warn",
                "validator": { "$jsonSchema": { "required": ["n"], "properties": { "n": { "bsonType": "number" } } } },
            },
            4 => doc! {
                "create": "capped", "capped": true, "size": 70_000,
                "collation": { "locale": "fr", "strength": 2 },
            },
            5 => doc! { "create": self.collection(), "validator": {} },
            6 => doc! { "create": "a", "storageEngine": { "wiredTiger": {
            "configString": "block_compressor=zlib" } } },
            7 => doc! { "create": "d", "indexOptionDefaults": { "storageEngine": { "wiredTiger": {
            "configString": "prefix_compression=false" } } } },
            8 | 9 if self.version >= Version::V5_0 => self.time_series(),
            10 if self.version >= Version::V8_2 => {
                let index = doc! { "key": { "_id": 1 }, "unique": true, "name": "by id" };
                let mut create = doc! { "create": "clustered", "clusteredIndex": index };
                if self.chance(30) {
                    create.insert("expireAfterSeconds", 1_000_000_000i64);
                }
                create
            }
            11 if self.version >= Version::V8_2 => {
                doc! { "create": "imaged", "changeStreamPreAndPostImages": { "enabled": true } }
            }
            12 if self.version < Version::V8_2 => {
                doc! { "create": "imaged", "recordPreImages": true }
            }
            _ => doc! { "create": self.collection() },
        };
        self.run_command(&db, command)
    }

    fn time_series(&mut self) -> Document {
        let mut options = doc! { "timeField": "t", "metaField": "m" };
        if self.version >= Version::V8_2 && self.chance(30) {
            options.insert("bucketMaxSpanSeconds", 1800);
            options.insert("bucketRoundingSeconds", 1800);
        } else {
            options.insert("granularity", self.pick(&["seconds", "minutes", "hours"]));
        }
        let mut create = doc! { "create": "series", "timeseries": options };
        if self.chance(30) {
            create.insert("expireAfterSeconds", 1_000_000_000i64);
        }
        create
    }

    /// Creates one or several indexes in one command; on a collection with documents this is a two-phase build.
    pub(super) fn create_index(&mut self) -> Result<()> {
        let (db, collection) = (self.db(), self.collection());
        let n = if self.chance(80) { 1 } else { self.rng.random_range(2..4) };
        let specs: Vec<Document> = (0..n).map(|_| self.index()).collect();
        if self.chance(8) {
            let spec = doc! { "key": { "m.sensor": 1, "t": -1 }, "name": "sensor" };
            return self.run_command(&db, doc! { "createIndexes": "series", "indexes": [spec] });
        }
        self.run_command(&db, doc! { "createIndexes": collection, "indexes": specs })
    }

    fn index(&mut self) -> Document {
        match self.rng.random_range(0..24) {
            0 => doc! { "key": { "n": 1 }, "name": "n" },
            1 => doc! { "key": { "n": -1, "text": 1 }, "name": "n_text" },
            2 => doc! { "key": { "tags": 1 }, "name": "tags" },
            3 => doc! { "key": { "rows.q": 1, "n": -1 }, "name": "rows" },
            4 => doc! { "key": { "k1": 1 }, "name": "k1_unique", "unique": true, "sparse": true },
            5 => doc! { "key": { "x": 1 }, "name": "x_sparse", "sparse": true },
            6 => doc! {
                "key": { "v": 1 }, "name": "v_partial",
                "partialFilterExpression": { "n": { "$gt": 0 } },
            },
            7 => doc! { "key": { "at": 1 }, "name": "at_ttl", "expireAfterSeconds": 3600 },
            8 => doc! { "key": { "text": "text" }, "name": "words" },
            9 => doc! { "key": { "place": "2dsphere" }, "name": "place" },
            10 => doc! { "key": { "w": "hashed" }, "name": "w_hashed" },
            11 => doc! { "key": { "$**": 1 }, "name": "all" },
            12 => doc! { "key": { "sub.$**": 1 }, "name": "sub_all" },
            13 => doc! {
                "key": { "text": 1 }, "name": "text_fr", "collation": { "locale": "fr", "strength": 2 },
            },
            14 => doc! { "key": { "k2": 1 }, "name": "k2_hidden", "hidden": true },
            15 => {
                doc! { "key": { "flat": "2d" }, "name": "flat", "bits": 20, "min": -200, "max": 200 }
            }
            16 => doc! {
                "key": { "n": 1, "text": "text", "sub.x": "text" }, "name": "weighed",
                "weights": { "text": 3 }, "default_language": "german", "language_override": "tongue",
            },
            17 => doc! {
                "key": { "$**": 1 }, "name": "some", "wildcardProjection": { "sub": 1, "rows": 1 },
            },
            18 => doc! { "key": { "n": 1, "w": "hashed" }, "name": "n_w_hashed" },
            19 => doc! {
                "key": { "k2": 1 }, "name": "k2_partial_unique", "unique": true,
                "partialFilterExpression": { "k2": { "$gt": 5 } },
            },
            20 if self.version >= Version::V8_2 => {
                doc! { "key": { "n": 1, "sub.$**": 1 }, "name": "n_sub_all" }
            }
            21 => {
                doc! { "key": { "place": "2dsphere", "n": -1 }, "name": "place_n", "2dsphereIndexVersion": 3 }
            }
            22 => doc! {
                "key": { "v": 1, "w": -1, "x": 1 }, "name": "three", "background": true,
                "storageEngine": { "wiredTiger": { "configString": "prefix_compression=false" } },
            },
            _ => doc! { "key": { "n": 1 }, "name": "n_mine", "sparse": true, "unique": false },
        }
    }

    pub(super) fn drop_index(&mut self) -> Result<()> {
        let (db, collection) = (self.db(), self.collection());
        let names = ["n", "n_text", "tags", "rows", "x_sparse", "all", "words", "weighed", "*"];
        let index: Bson = match self.rng.random_range(0..10) {
            0 => doc! { "n": 1 }.into(),
            1 => vec![self.pick(&names), "k1_unique"].into(),
            _ => self.pick(&names).into(),
        };
        self.run_command(&db, doc! { "dropIndexes": collection, "index": index })
    }

    pub(super) fn coll_mod(&mut self) -> Result<()> {
        let (db, collection) = (self.db(), self.collection());
        let command = match self.rng.random_range(0..16) {
            0 => {
                let hidden = self.chance(50);
                doc! { "collMod": collection, "index": { "name": "n", "hidden": hidden } }
            }
            1 => doc! {
                "collMod": collection,
                "index": { "name": "at_ttl", "expireAfterSeconds": self.rng.random_range(3600..9999) },
            },
            2 => doc! { "collMod": collection, "validator": { "n": { "$exists": true } },
            "validationLevel": "moderate" },
            3 => doc! { "collMod": collection, "validator": {}, "validationLevel": "off" },
            4 => doc! { "collMod": "view", "viewOn": "b", "pipeline": [{ "$match": { "n": 1 } }] },
            5 => doc! { "collMod": collection, "validator": { "n": { "$gt": -1000 } } },
            6 => doc! { "collMod": collection, "validationAction": "warn" },
            7 => doc! { "collMod": collection, "index": {
            "keyPattern": { "n": 1 }, "hidden": self.chance(50) } },
            8 => {
                doc! { "collMod": "series", "expireAfterSeconds": self.rng.random_range(900_000_000..1_000_000_000) }
            }
            9 => doc! { "collMod": "series", "expireAfterSeconds": "off" },
            10 => {
                doc! { "collMod": "series", "timeseries": { "granularity": self.pick(&["minutes", "hours"]) } }
            }
            _ if self.version < Version::V8_2 => {
                doc! { "collMod": collection, "recordPreImages": self.chance(50) }
            }
            11 => {
                doc! { "collMod": collection, "index": { "name": "n", "prepareUnique": self.chance(60) } }
            }
            12 => {
                doc! { "collMod": collection, "index": { "name": "x_sparse", "prepareUnique": true, "hidden": true } }
            }
            13 => doc! { "collMod": collection, "index": { "name": "n", "unique": true } },
            14 => {
                doc! { "collMod": "capped", "cappedSize": 60_000, "cappedMax": self.rng.random_range(200..400) }
            }
            _ => {
                let enabled = self.chance(70);
                doc! { "collMod": collection, "changeStreamPreAndPostImages": { "enabled": enabled } }
            }
        };
        self.run_command(&db, command)
    }

    /// Renames within a database or across databases, with or without replacing a target.
    pub(super) fn rename(&mut self) -> Result<()> {
        let from = format!("{}.{}", self.db(), self.collection());
        let to = format!("{}.{}", self.db(), self.pick(&["a", "b", "c", "d", "e", "f", "g"]));
        let drop_target = self.chance(60);
        self.run_command(
            "admin",
            doc! { "renameCollection": from, "to": to, "dropTarget": drop_target },
        )
    }

    pub(super) fn drop_collection(&mut self) -> Result<()> {
        let db = self.db();
        let collection = if self.chance(15) {
            self.pick(&["series", "view"]).to_owned()
        } else {
            self.collection()
        };
        self.run_command(&db, doc! { "drop": collection })
    }

    pub(super) fn create_view(&mut self) -> Result<()> {
        let db = self.db();
        let pipeline = [doc! { "$match": { "n": { "$gt": 0 } } }, doc! { "$project": { "n": 1 } }];
        let mut view = doc! { "create": "view", "viewOn": "a", "pipeline": pipeline.to_vec() };
        if self.chance(30) {
            view.insert("collation", doc! { "locale": "de", "strength": 1 });
        }
        self.run_command(&db, view)
    }

    pub(super) fn convert_to_capped(&mut self) -> Result<()> {
        let db = self.db();
        if self.chance(50) {
            return self.run_command(&db, doc! { "convertToCapped": "e", "size": 200_000 });
        }
        if self.chance(20) {
            return self.run_command(&db, doc! { "emptycapped": "capped" });
        }
        let clone = doc! { "cloneCollectionAsCapped": "b", "toCollection": "g", "size": 100_000 };
        self.run_command(&db, clone)
    }

    /// Operations that would destroy too much if they were frequent.
    pub(super) fn rare(&mut self) -> Result<()> {
        let db = self.db();
        match self.rng.random_range(0..5) {
            0 => self.run_command(&db, doc! { "dropDatabase": 1 }),
            1 => {
                let ns = format!("{db}.{}", self.collection());
                let insert = doc! { "op": "i", "ns": &ns, "o": self.document() };
                let delete = doc! { "op": "d", "ns": &ns, "o": { "_id": self.id() } };
                self.run_command("admin", doc! { "applyOps": [insert, delete] })
            }
            _ => self.insert_many(),
        }
    }
}

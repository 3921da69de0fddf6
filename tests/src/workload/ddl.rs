//! Collections and indexes with every option, changed, renamed, dropped.

use anyhow::Result;
use bson::{Document, doc};
use rand::RngExt;

use super::Workload;
use crate::servers::Version;

impl Workload {
    /// Creates one of the collections that have options; most exist already after a while.
    pub(super) fn create(&mut self) -> Result<()> {
        let db = self.db();
        let command = match self.rng.random_range(0..8) {
            0 => doc! { "create": "capped", "capped": true, "size": 100_000, "max": 300 },
            1 => doc! { "create": "collated", "collation": { "locale": "de", "strength": 1 } },
            2 => doc! {
                "create": "checked", "validator": { "n": { "$type": "number" } },
                "validationLevel": "moderate", "validationAction": "error",
            },
            3 if self.version >= Version::V5_0 => doc! {
                "create": "series",
                "timeseries": { "timeField": "t", "metaField": "m", "granularity": "minutes" },
            },
            4 if self.version >= Version::V8_2 => doc! {
                "create": "clustered", "clusteredIndex": { "key": { "_id": 1 }, "unique": true },
            },
            5 if self.version >= Version::V8_2 => {
                doc! { "create": "imaged", "changeStreamPreAndPostImages": { "enabled": true } }
            }
            6 => doc! { "create": "a", "storageEngine": { "wiredTiger": {
            "configString": "block_compressor=zlib" } } },
            _ => doc! { "create": self.collection() },
        };
        self.run_command(&db, command)
    }

    pub(super) fn create_index(&mut self) -> Result<()> {
        let (db, collection, spec) = (self.db(), self.collection(), self.index());
        self.run_command(&db, doc! { "createIndexes": collection, "indexes": [spec] })
    }

    fn index(&mut self) -> Document {
        match self.rng.random_range(0..15) {
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
            _ => doc! { "key": { "k2": 1 }, "name": "k2_hidden", "hidden": true },
        }
    }

    pub(super) fn drop_index(&mut self) -> Result<()> {
        let (db, collection) = (self.db(), self.collection());
        let name = self.pick(&["n", "n_text", "tags", "rows", "x_sparse", "all", "words", "*"]);
        self.run_command(&db, doc! { "dropIndexes": collection, "index": name })
    }

    pub(super) fn coll_mod(&mut self) -> Result<()> {
        let (db, collection) = (self.db(), self.collection());
        let command = match self.rng.random_range(0..6) {
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
            _ if self.version >= Version::V8_2 => {
                let enabled = self.chance(70);
                doc! { "collMod": collection, "changeStreamPreAndPostImages": { "enabled": enabled } }
            }
            _ => doc! { "collMod": collection, "validationAction": "warn" },
        };
        self.run_command(&db, command)
    }

    /// Within a database and across, over a target or not.
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
        let view = doc! { "create": "view", "viewOn": "a", "pipeline": pipeline.to_vec() };
        self.run_command(&db, view)
    }

    pub(super) fn convert_to_capped(&mut self) -> Result<()> {
        let db = self.db();
        if self.chance(50) {
            return self.run_command(&db, doc! { "convertToCapped": "e", "size": 200_000 });
        }
        let clone = doc! { "cloneCollectionAsCapped": "b", "toCollection": "g", "size": 100_000 };
        self.run_command(&db, clone)
    }

    /// What would leave too little for the others if it came often.
    pub(super) fn rare(&mut self) -> Result<()> {
        if !self.chance(20) {
            return self.insert_many();
        }
        let db = self.db();
        self.run_command(&db, doc! { "dropDatabase": 1 })
    }
}

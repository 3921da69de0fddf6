//! The collections of a run.
//!
//! ```text
//!   p       documents of every type, only the _id index
//!   x       the same documents with indexes of every kind
//!   ci      the same in a collection with a collation
//!   twice   the same with a duplicate field
//!   other   few documents, for joins
//!   v       a view on x
//!   vc      a view on v, with a collation
//!   geo     places
//!   ts      measurements: a time-series collection
//! ```
//! `_id` grows in insertion order, first numbers and then the types that sort after them, so natural order equals
//! `_id` order on every server.

use anyhow::{Context, Result};
use bson::oid::ObjectId;
use bson::raw::CString;
use bson::{Bson, DateTime, Document, RawBson, RawDocumentBuf, doc};

use super::random::{Random, decimal};
use super::{places, series};
use crate::node::Node;

/// Number of documents in `p`, `x` and `ci`; fewer than a first batch, so that most answers fit in one reply.
const DOCUMENTS: i32 = 90;

const PLACES: i32 = 80;
const MEASUREMENTS: i32 = 90;

/// The collections that commands may name.
pub const COLLECTIONS: [&str; 5] = ["p", "x", "x", "ci", "v"];

/// Fills the database of a seed on the primary.
pub fn fill(primary: &Node, db: &str, seed: u64) -> Result<()> {
    let mut random = Random::of_case(seed, u64::MAX);
    let documents = (0..DOCUMENTS).map(|n| document(&mut random, n)).collect::<Result<Vec<_>>>()?;
    let collation = doc! { "locale": "en", "strength": 2, "numericOrdering": true };
    primary.run(db, doc! { "create": "ci", "collation": collation })?;
    primary.run(db, doc! { "createIndexes": "x", "indexes": indexes() })?;
    primary.run(
        db,
        doc! { "createIndexes": "ci", "indexes": [
            { "key": { "c": 1 }, "name": "c_1" },
            { "key": { "c": 1, "a": 1 }, "name": "simple", "collation": { "locale": "simple" } },
        ] },
    )?;
    for name in ["p", "x", "ci"] {
        let collection = primary.client().database(db).collection::<RawDocumentBuf>(name);
        collection.insert_many(&documents).run().with_context(|| format!("fill {db}.{name}"))?;
    }
    let doubled = documents
        .iter()
        .map(|document| with_a_field_twice(&mut random, document))
        .collect::<Result<Vec<_>>>()?;
    primary
        .client()
        .database(db)
        .collection::<RawDocumentBuf>("twice")
        .insert_many(doubled)
        .run()?;
    let other: Vec<Document> = (0..25)
        .map(|n| doc! { "_id": n, "k": random.value(1), "q": random.small_number(), "t": random.text() })
        .collect();
    primary.client().database(db).collection("other").insert_many(other).run()?;
    let pipeline = vec![doc! { "$match": { "a": { "$exists": true } } }, doc! { "$unset": "h" }];
    primary.run(db, doc! { "create": "v", "viewOn": "x", "pipeline": pipeline })?;
    let collation = doc! { "locale": "de", "strength": 1 };
    let pipeline = vec![doc! { "$match": { "c": { "$ne": "ABC" } } }];
    primary.run(
        db,
        doc! { "create": "vc", "viewOn": "p", "pipeline": pipeline, "collation": collation },
    )?;
    let client = primary.client().database(db);
    let places: Vec<Document> = (0..PLACES).map(|n| random.place(n)).collect();
    primary.run(db, doc! { "createIndexes": places::COLLECTION, "indexes": places::indexes() })?;
    client.collection(places::COLLECTION).insert_many(places).run()?;
    let series = doc! { "timeField": "t", "metaField": "m" };
    primary.run(db, doc! { "create": series::COLLECTION, "timeseries": series })?;
    let measurements: Vec<Document> = (0..MEASUREMENTS).map(|n| random.measurement(n)).collect();
    client.collection(series::COLLECTION).insert_many(measurements).run()?;
    Ok(())
}

/// One index of every kind.
fn indexes() -> Vec<Document> {
    vec![
        doc! { "key": { "a": 1, "c": -1 }, "name": "a_1_c_-1" },
        doc! { "key": { "arr": 1 }, "name": "arr_1" },
        doc! { "key": { "o.x": 1, "a": 1 }, "name": "ox_a" },
        doc! { "key": { "s": 1 }, "name": "s_sparse", "sparse": true },
        doc! { "key": { "n": 1 }, "name": "n_partial", "partialFilterExpression": { "n": { "$gt": 0 } } },
        doc! { "key": { "h": "hashed" }, "name": "h_hashed" },
        doc! { "key": { "rows.q": 1, "rows.v": -1 }, "name": "rows" },
        doc! { "key": { "deep.$**": 1 }, "name": "deep_wild" },
        doc! { "key": { "c": 1 }, "name": "c_ci", "collation": { "locale": "en", "strength": 2 } },
        doc! { "key": { "d": -1, "_id": 1 }, "name": "d_-1" },
        doc! { "key": { "b": 1 }, "name": "b_hidden", "hidden": true },
        doc! { "key": { "c": "text", "b": "text", "o.x": "text" }, "name": "words", "weights": { "c": 3 }, "language_override": "tongue" },
    ]
}

fn document(random: &mut Random, n: i32) -> Result<RawDocumentBuf> {
    let mut document = Document::new();
    document.insert("_id", id(random, n)?);
    if random.chance(85) {
        let a = match random.below(10) {
            0 => Bson::String(random.text()),
            1 => Bson::Null,
            _ => random.small_number(),
        };
        document.insert("a", a);
    }
    if random.chance(80) {
        document.insert("b", random.value(2));
    }
    if random.chance(80) {
        document.insert("c", random.text());
    }
    if random.chance(80) {
        document.insert("n", random.number());
    }
    if random.chance(60) {
        document.insert("d", random.date());
    }
    if random.chance(70) {
        document.insert("h", random.scalar());
    }
    if random.chance(50) {
        document.insert("s", random.scalar());
    }
    if random.chance(75) {
        document.insert("arr", array(random));
    }
    if random.chance(75) {
        document.insert("o", object(random));
    }
    if random.chance(70) {
        let rows = random.list(0, 5, |own| {
            let mut row = doc! { "q": own.small_number() };
            if own.chance(70) {
                row.insert("v", own.scalar());
            }
            row
        });
        document.insert("rows", rows);
    }
    if random.chance(60) {
        document.insert("deep", doc! { "x": random.value(2), "k": random.scalar() });
    }
    Ok(RawDocumentBuf::try_from(&document)?)
}

/// Adds a field twice. Drivers never write such a document, but servers store it. No query refers to the field or
/// changes the document, since mongod's treatment of the duplicate depends on its plan.
fn with_a_field_twice(random: &mut Random, document: &RawDocumentBuf) -> Result<RawDocumentBuf> {
    let mut raw = document.clone();
    for _ in 0..2 {
        raw.append(CString::try_from("twice")?, RawBson::try_from(random.odd())?);
    }
    Ok(raw)
}

/// An `_id` that grows with `n` in MongoDB's sort order.
fn id(random: &mut Random, n: i32) -> Result<Bson> {
    Ok(match n {
        0..60 => match random.below(8) {
            0 => Bson::Int64(n.into()),
            1 => Bson::Double(n.into()),
            2 => decimal(&format!("{n}.5")),
            _ => Bson::Int32(n),
        },
        60..70 => Bson::String(format!("k{n}")),
        70..76 => Bson::Document(doc! { "k": n }),
        76..82 => Bson::ObjectId(ObjectId::from_bytes([u8::try_from(n)?; 12])),
        82 => Bson::Boolean(false),
        83 => Bson::Boolean(true),
        _ => Bson::DateTime(DateTime::from_millis(i64::from(n) * 1000)),
    })
}

fn array(random: &mut Random) -> Bson {
    match random.below(5) {
        0 => random.value(2),
        1 => Bson::Array(random.list(0, 4, |own| own.value(2))),
        _ => Bson::Array(random.list(0, 5, Random::small_number)),
    }
}

fn object(random: &mut Random) -> Bson {
    let one = |random: &mut Random| {
        let mut one = Document::new();
        if random.chance(85) {
            let x = if random.chance(50) { random.small_number() } else { random.value(1) };
            one.insert("x", x);
        }
        if random.chance(60) {
            one.insert("y", doc! { "z": random.scalar() });
        }
        Bson::Document(one)
    };
    match random.below(6) {
        0 => random.value(1),
        1 => Bson::Array(random.list(0, 3, one)),
        _ => one(random),
    }
}

//! Seeded data and operations.

use anyhow::Result;
use bson::{Document, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tests::node::Node;

/// Documents in one insert command.
const INSERT_BATCH: usize = 2_000;
/// Operations in one bulk command.
const BULK: u64 = 1_000;

/// A document of about 500 bytes: numbers, short strings, an array, and text that compresses like natural text.
fn document(id: u64, rng: &mut StdRng) -> Document {
    const WORDS: [&str; 16] = [
        "amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty",
        "knoll", "lagoon", "mesa", "north", "ocean", "prairie",
    ];
    let mut word = |of: usize| WORDS.get(rng.random_range(0..of)).copied().unwrap_or_default();
    let mut text = String::new();
    while text.len() < 300 {
        text.push_str(word(WORDS.len()));
        text.push(' ');
    }
    let (status, tags) = (word(4), [word(16), word(16)]);
    doc! {
        "_id": i64::try_from(id).unwrap_or(i64::MAX),
        "customer": rng.random_range(0..100_000_i64),
        "amount": f64::from(rng.random_range(0..1_000_000_u32)) / 100.0,
        "status": status,
        "tags": tags.to_vec(),
        "text": text,
    }
}

/// Fills a collection with `n` documents and three secondary indexes.
pub(super) fn load_documents(primary: &Node, coll: &str, n: u64, seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    primary.run(
        "bench",
        doc! { "createIndexes": coll, "indexes": [
            { "key": { "customer": 1 }, "name": "customer_1" },
            { "key": { "status": 1, "amount": -1 }, "name": "status_1_amount_-1" },
            { "key": { "tags": 1 }, "name": "tags_1" },
        ] },
    )?;
    for first in (0..n).step_by(INSERT_BATCH) {
        let documents: Vec<Document> =
            (first..n.min(first + INSERT_BATCH as u64)).map(|id| document(id, &mut rng)).collect();
        primary.run(
            "bench",
            doc! {
                "insert": coll, "documents": documents, "writeConcern": { "w": 1 },
            },
        )?;
    }
    Ok(())
}

/// Fills the collection of customers that the orders refer to.
pub(super) fn load_customers(primary: &Node) -> Result<()> {
    for first in (0..100_000_i64).step_by(INSERT_BATCH) {
        let documents: Vec<Document> = (first..first + INSERT_BATCH as i64)
            .map(|id| doc! { "_id": id, "name": format!("customer {id}"), "discount": id % 7 })
            .collect();
        primary.run("bench", doc! { "insert": "customers", "documents": documents })?;
    }
    Ok(())
}

/// Makes collections with a few documents and one index each.
pub(super) fn load_small_collections(primary: &Node, n: u32) -> Result<()> {
    for i in 0..n {
        let name = format!("small{i}");
        primary.run(
            "bench_small",
            doc! { "createIndexes": &name, "indexes": [
                { "key": { "n": 1 }, "name": "n_1" },
            ] },
        )?;
        let documents: Vec<Document> = (0..20).map(|n| doc! { "_id": n, "n": n * 7 }).collect();
        primary.run("bench_small", doc! { "insert": &name, "documents": documents })?;
    }
    Ok(())
}

/// A random mix of 40% inserts, 50% updates, 10% deletes.
pub(super) struct Workload {
    rng: StdRng,
    /// Updates and deletes choose ids below this.
    existing: u64,
    next_id: u64,
}

impl Workload {
    pub(super) fn new(seed: u64, documents: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed ^ 0x5eed),
            existing: documents,
            next_id: documents * 4,
        }
    }

    pub(super) fn run(mut self, primary: &Node, operations: u64) -> Result<()> {
        // Start at ids that no earlier run of this workload has used.
        let base = primary.run("bench", doc! { "count": "orders" })?.get_i32("n").unwrap_or(0);
        self.next_id += u64::try_from(base).unwrap_or(0) * 16;
        for _ in 0..operations / BULK {
            self.step(primary, BULK)?;
        }
        Ok(())
    }

    /// Runs this many operations, as one command of each kind.
    pub(super) fn step(&mut self, primary: &Node, operations: u64) -> Result<()> {
        let (mut inserts, mut updates, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..operations {
            let id = self.rng.random_range(0..self.existing.max(1));
            let id = i64::try_from(id).unwrap_or(0);
            match self.rng.random_range(0..10) {
                0..4 => {
                    self.next_id += 1;
                    inserts.push(document(self.next_id, &mut self.rng));
                }
                4..9 => updates.push(doc! {
                    "q": { "_id": id },
                    "u": { "$set": { "customer": self.rng.random_range(0..100_000_i64) }, "$inc": { "amount": 1.0 } },
                }),
                _ => deletes.push(doc! { "q": { "_id": id }, "limit": 1 }),
            }
        }
        for (command, field, operations) in [
            ("insert", "documents", inserts),
            ("update", "updates", updates),
            ("delete", "deletes", deletes),
        ] {
            if !operations.is_empty() {
                let concern = doc! { "w": 1 };
                primary.run(
                    "bench",
                    doc! { command: "orders", field: operations, "writeConcern": concern },
                )?;
            }
        }
        Ok(())
    }
}

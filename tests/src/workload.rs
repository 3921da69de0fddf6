//! A seeded random workload with every kind of write.
//!
//! A seed determines the run: the same operations with the same values, in the same order, on a new set. `SEED=71`
//! replays a seed that a failing test printed. Operations that the server refuses (a duplicate key, a missing
//! collection) are part of the run; a missing reply is an error.

mod ddl;
mod transactions;
mod updates;
mod values;
mod writes;

use anyhow::{Context, Result};
use bson::{Binary, Document, spec::BinarySubtype};
use mongodb::sync::Client;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::driver;
use crate::node::Node;
use crate::servers::Version;

/// A run of random operations against one primary.
#[derive(Debug)]
pub struct Workload {
    rng: StdRng,
    client: Client,
    version: Version,
    counts: Counts,
}

/// Counts of a run's operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that succeeded.
    pub done: u32,
    /// Operations that the server refused.
    pub refused: u32,
}

impl Workload {
    /// A workload with this seed for the primary.
    pub fn new(seed: u64, primary: &Node) -> Result<Self> {
        Ok(Self {
            rng: StdRng::seed_from_u64(seed),
            client: driver::connect_with_retries(primary.port())?,
            version: primary.version().context("a workload needs a real primary")?,
            counts: Counts::default(),
        })
    }

    /// Runs `n` operations.
    pub fn run(&mut self, n: u32) -> Result<Counts> {
        for _ in 0..n {
            self.step()?;
        }
        Ok(self.counts)
    }

    fn step(&mut self) -> Result<()> {
        let mut draw = self.rng.random_range(0..KINDS.iter().map(|(weight, _)| weight).sum());
        let kind = KINDS.iter().find(|(weight, _)| {
            let here = draw < *weight;
            draw = draw.saturating_sub(*weight);
            here
        });
        match kind {
            Some((_, operation)) => operation(self),
            None => Ok(()),
        }
    }

    /// Runs a command. A refusal is counted, a lost reply is an error. `maxTimeMS` ends a command that hangs: an
    /// insert into a 4.4 primary once never returned.
    fn run_command(&mut self, db: &str, mut command: Document) -> Result<()> {
        command.insert("maxTimeMS", LONGEST_MILLIS);
        let told = format!("{command}");
        let answer = driver::answer(&self.client, db, command)
            .with_context(|| told.chars().take(300).collect::<String>())?;
        let failed =
            answer.get_f64("ok").is_ok_and(|ok| ok == 0.0) || answer.contains_key("writeErrors");
        self.count(!failed);
        Ok(())
    }

    /// Handles a result of the driver: a refusal by the server is counted, other errors are returned.
    fn settle<T>(&mut self, result: mongodb::error::Result<T>) -> Result<()> {
        match result {
            Ok(_) => self.count(true),
            Err(error) if driver::is_refusal(&error) => self.count(false),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn count(&mut self, done: bool) {
        if done {
            self.counts.done += 1;
        } else {
            self.counts.refused += 1;
        }
    }

    fn db(&mut self) -> String {
        format!("w{}", self.rng.random_range(0..2))
    }

    fn collection(&mut self) -> String {
        self.pick(&COLLECTIONS).to_owned()
    }

    fn pick<T: Copy + Default>(&mut self, choices: &[T]) -> T {
        let at = self.rng.random_range(0..choices.len());
        choices.get(at).copied().unwrap_or_default()
    }

    fn chance(&mut self, in_a_hundred: u32) -> bool {
        self.rng.random_range(0..100) < in_a_hundred
    }
}

/// Much longer than any operation takes.
const LONGEST_MILLIS: i32 = 60_000;

/// The seeds of a test: that of `SEED`, or 1 to `n`.
pub fn seeds(n: u64) -> Vec<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=n).collect(),
    }
}

/// Random bytes, which do not compress.
pub fn noise(len: usize) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: (0..len).map(|_| rand::random()).collect() }
}

type Operation = fn(&mut Workload) -> Result<()>;

/// Relative frequencies of the operations.
const KINDS: [(u32, Operation); 25] = [
    (20, Workload::insert_one),
    (8, Workload::insert_many),
    (24, Workload::update_one),
    (5, Workload::update_many),
    (4, Workload::upsert),
    (6, Workload::replace),
    (5, Workload::update_by_pipeline),
    (8, Workload::delete),
    (6, Workload::find_and_modify),
    (3, Workload::mixed_bulk),
    (3, Workload::transaction),
    (1, Workload::prepared_transaction),
    (3, Workload::measurements),
    (2, Workload::out_and_merge),
    (1, Workload::users),
    (1, Workload::create),
    (2, Workload::create_index),
    (1, Workload::drop_index),
    (1, Workload::coll_mod),
    (1, Workload::rename),
    (1, Workload::drop_collection),
    (1, Workload::create_view),
    (1, Workload::convert_to_capped),
    (1, Workload::insert_large),
    (1, Workload::rare),
];

/// Ordinary collections, and ones that `create` makes with options.
const COLLECTIONS: [&str; 10] =
    ["a", "b", "c", "d", "e", "capped", "clustered", "collated", "checked", "imaged"];

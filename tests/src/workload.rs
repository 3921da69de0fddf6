//! A seeded random workload: every form of write that a primary knows.
//!
//! One seed is one run: the same operations with the same values, in the same order, on a new set. `SEED=71`
//! replays a seed that a failing test printed. Operations that the server refuses (a duplicate key, a collection
//! that is not there) are part of the run; an answer that does not come is an error.

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

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that the server did.
    pub done: u32,
    /// Operations that it refused.
    pub refused: u32,
}

impl Workload {
    /// Operations from this seed for the primary.
    pub fn new(seed: u64, primary: &Node) -> Result<Self> {
        Ok(Self {
            rng: StdRng::seed_from_u64(seed),
            client: driver::connect_with_retries(primary.port())?,
            version: primary.version().context("a workload needs a real primary")?,
            counts: Counts::default(),
        })
    }

    /// Does `n` operations.
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

    /// Runs a command; a refusal counts, a lost answer is an error. One that the primary does not get done is ended: an
    /// insert into a 4.4 was seen that waited for nobody and never came back.
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

    /// Takes a result of the driver: what the server refused is counted, the rest is an error.
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

/// Far more than any of them takes.
const LONGEST_MILLIS: i32 = 60_000;

/// The seeds of a test: the one of `SEED`, or the first `n`.
pub fn seeds(n: u64) -> Vec<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=n).collect(),
    }
}

/// Random bytes, so that they do not compress.
pub fn noise(len: usize) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: (0..len).map(|_| rand::random()).collect() }
}

type Operation = fn(&mut Workload) -> Result<()>;

/// How often what happens.
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

/// Ordinary ones, and ones that `create` makes with options.
const COLLECTIONS: [&str; 10] =
    ["a", "b", "c", "d", "e", "capped", "clustered", "collated", "checked", "imaged"];

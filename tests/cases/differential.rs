//! Random commands of every kind: our answers must equal a real primary's.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tests::differential::accepted::{Accepted, AcceptedCases};
use tests::differential::judge::{Answer, parting};
use tests::differential::random::Random;
use tests::differential::{Case, data};
use tests::node::Node;
use tests::repl_set::ReplSet;

/// Number of cases in a run; `CASES` overrides it.
const CASES: u64 = 20_000;
const SEED: u64 = 5;
/// Number of data sets in a run.
const DATABASES: u64 = 4;
const CONNECTIONS: usize = 4;
/// Maximum number of printed differences.
const SHOWN: u64 = 20;

#[test]
fn our_answers_equal_the_primarys() -> Result<()> {
    let seed = number("SEED")?.unwrap_or(SEED);
    let cases = number("CASES")?.unwrap_or(CASES);
    let set =
        ReplSet::named("differential").ours_hidden(1).limit(Duration::from_secs(3600)).start()?;
    let primary = set.primary()?;
    for n in 0..DATABASES {
        data::fill(primary, &database(n), seed.wrapping_add(n))?;
    }
    set.await_caught_up()?;
    let accepted = Accepted::load()?;
    let run = Run { seed, primary, ours: set.ours()?, accepted };
    run.check_examples()?;
    match number("CASE")? {
        Some(case) => run.one(case)?.map_or(Ok(()), |text| Err(anyhow!("{text}")))?,
        None => run.many(cases)?,
    }
    set.finish()
}

fn number(variable: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("{variable} must be a number"))
}

fn database(n: u64) -> String {
    format!("diff{n}")
}

struct Run<'a> {
    seed: u64,
    primary: &'a Node,
    ours: &'a Node,
    accepted: Vec<Accepted>,
}

impl Run<'_> {
    /// Checks that every accepted difference still exists.
    fn check_examples(&self) -> Result<()> {
        let mut gone = Vec::new();
        for entry in &self.accepted {
            let case = entry.case()?;
            let (want, got) = self.ask(&database(0), &case)?;
            if want.agrees(&got, case.order) {
                gone.push(format!("is equal now: strike it off the list: {}", entry.example));
            } else if !entry.covers(&case.command, &want, &got) {
                gone.push(format!("is not covered by its own words: {}", entry.example));
            }
        }
        ensure!(gone.is_empty(), "{}", gone.join("\n"));
        Ok(())
    }

    fn many(&self, cases: u64) -> Result<()> {
        let next = AtomicU64::new(0);
        let known = AcceptedCases::load(self.seed)?;
        let differing = Mutex::new(BTreeSet::new());
        let shown = Mutex::new(Vec::new());
        let shown_max = usize::try_from(number("SHOWN")?.unwrap_or(SHOWN))?;
        let work = || -> Result<()> {
            loop {
                let case = next.fetch_add(1, Ordering::Relaxed);
                if case >= cases {
                    return Ok(());
                }
                let Some(text) = self.one(case)? else { continue };
                let mut differing =
                    differing.lock().map_err(|_| anyhow!("another thread panicked"))?;
                differing.insert(case);
                drop(differing);
                if known.contains(&case) {
                    continue;
                }
                let mut shown = shown.lock().map_err(|_| anyhow!("another thread panicked"))?;
                if shown.len() < shown_max {
                    shown.push(text);
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().map_err(|_| anyhow!("a worker panicked")).and_then(|done| done)
            })
        })?;
        let differing = differing.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
        let shown = shown.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
        let new = differing.difference(&known).count();
        let seed = self.seed;
        ensure!(new == 0, "{new} of {cases} cases differ, seed {seed}\n{}", shown.join("\n"));
        let gone: Vec<_> = known.difference(&differing).filter(|case| **case < cases).collect();
        ensure!(gone.is_empty(), "are equal now: strike them off the list: seed {seed}, {gone:?}");
        Ok(())
    }

    /// Runs a case; returns the difference if it is not accepted.
    fn one(&self, number: u64) -> Result<Option<String>> {
        let case = Random::of_case(self.seed, number).command();
        let db = database(number % DATABASES);
        let shown = &case.command;
        let asked = self.ask(&db, &case);
        let (want, got) =
            asked.with_context(|| format!("SEED={} CASE={number} {db} {shown}", self.seed))?;
        if want.agrees(&got, case.order)
            || self.accepted.iter().any(|entry| entry.covers(&case.command, &want, &got))
        {
            return Ok(None);
        }
        let parting = parting(&want, &got, case.order);
        Ok(Some(format!(
            "SEED={} CASE={number} {db} {:?}\n    {shown}\n{parting}",
            self.seed, case.order
        )))
    }

    fn ask(&self, db: &str, case: &Case) -> Result<(Answer, Answer)> {
        Ok((
            Answer::of(self.primary.client(), db, case)?,
            Answer::of(self.ours.client(), db, case)?,
        ))
    }
}

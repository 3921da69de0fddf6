//! Runs every target over its corpus and over seeded mutations of it: a bounded part of what `tests/fuzz/run` does.
//!
//! `FUZZ_RUNS=n` sets the number of inputs per target, `SEED=n` the seed of the mutations.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test answers by a panic")]

use std::{env, fs, panic::catch_unwind, path::Path, sync::mpsc, thread};

use fuzz::{TARGETS, Target};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Filters and expressions are processed recursively. The server's threads have the same stack size.
const STACK_BYTES: usize = 64 << 20;
const LEN_MAX: usize = 4 << 10;

#[test]
fn every_target_holds_over_its_corpus_and_changes_of_it() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seed, runs) = (number("SEED").unwrap_or(1), number("FUZZ_RUNS").unwrap_or(5_000));
    println!("SEED={seed} FUZZ_RUNS={runs}");
    let (sender, failures) = mpsc::channel();
    thread::scope(|scope| {
        for half in TARGETS.chunks(TARGETS.len().div_ceil(2)) {
            let sender = sender.clone();
            let work = move || {
                for target in half {
                    if let Err(failure) = run(*target, seed, runs) {
                        sender.send(failure).unwrap();
                    }
                }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).unwrap();
        }
    });
    drop(sender);
    let failures: Vec<String> = failures.into_iter().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn run(target: Target, seed: u64, runs: u64) -> Result<(), String> {
    let mut known = corpus(target.name);
    for input in &known {
        hold(target, input)?;
    }
    let mut rng = StdRng::seed_from_u64(seed);
    if known.is_empty() {
        known.push(Vec::new());
    }
    for _ in 0..runs {
        let input = changed(&known, &mut rng);
        hold(target, &input)?;
    }
    Ok(())
}

fn hold(target: Target, input: &[u8]) -> Result<(), String> {
    catch_unwind(|| (target.run)(input)).map_err(|_| {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} does not hold of {hex}", target.name)
    })
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let Ok(entries) = fs::read_dir(&dir) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Mutates one or two known inputs: some bytes are changed, inserted, removed or repeated.
fn changed(known: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    let mut input = known.choose(rng).cloned().unwrap_or_default();
    if rng.random_bool(0.2) {
        let other = known.choose(rng).cloned().unwrap_or_default();
        let (from, to) = (place(&input, rng), place(&other, rng));
        input.truncate(from);
        input.extend_from_slice(&other[to..]);
    }
    for _ in 0..rng.random_range(1..8) {
        let at = place(&input, rng);
        match rng.random_range(0..5) {
            0 if at < input.len() => input[at] = rng.random(),
            1 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
            2 if at < input.len() => drop(input.remove(at)),
            3 => {
                let word = [0, 1, 0x7F, 0x80, 0xFF, rng.random()][rng.random_range(0..6)];
                let count = rng.random_range(1..9);
                input.splice(at..at, std::iter::repeat_n(word, count));
            }
            _ => {
                let end = (at + rng.random_range(0..16)).min(input.len());
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
        }
    }
    input.truncate(LEN_MAX);
    input
}

fn place(bytes: &[u8], rng: &mut StdRng) -> usize {
    rng.random_range(0..=bytes.len())
}

//! Simulates our node among fake mongods that write, elect, crash and lose connections; everything is derived from
//! one seed.
//!
//! ```text
//!   world: the event queue                     network: which messages arrive, and how late
//!   fake_set: members that elect with our vote and commit with our acknowledgements
//!   our_node: the real Node with a data plane that keeps its log in memory
//!   checker: what must hold after every step
//! ```
//! `SEED=n` replays one run, `SEEDS=n` runs more of them.

mod checker;
mod fake_set;
mod network;
mod our_node;
mod world;

use world::World;

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => {
            let count =
                std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(count);
            (1..=count).collect()
        }
    }
}

#[test]
fn elections_crashes_and_partitions_never_make_us_lie_vote_twice_or_stay_behind() {
    for seed in seeds(30) {
        println!("SEED={seed}");
        let mut world = World::new(seed);
        world.run_for_secs(240);
        world.heal();
        world.run_for_secs(60);
        world.check_settled();
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut world = World::new(7);
        world.run_for_secs(120);
        world.digest()
    };
    assert_eq!(run(), run());
}

/// Regression: a sync source that had left our branch sent its new commit point by heartbeat, and it was accepted.
#[test]
fn seed_113_the_commit_point_of_a_source_that_rolled_back() {
    let mut world = World::new(113);
    world.run_for_secs(240);
}

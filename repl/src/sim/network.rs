//! Message loss and delay. Endpoints are numbered like the members of the set; ours is the last.

use std::{collections::BTreeSet, time::Duration};

use rand::{RngExt, rngs::StdRng};

/// Links that are cut, in both directions.
pub(super) struct Network {
    cut: BTreeSet<(usize, usize)>,
    /// One in this many messages is lost; 0 loses none.
    pub(super) lose_one_in: u32,
}

impl Network {
    pub(super) fn new(lose_one_in: u32) -> Self {
        Self { cut: BTreeSet::new(), lose_one_in }
    }

    pub(super) fn connected(&self, a: usize, b: usize) -> bool {
        !self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// The delay of a message, or `None` if it is lost.
    pub(super) fn send(&self, rng: &mut StdRng, from: usize, to: usize) -> Option<Duration> {
        let lost = self.lose_one_in > 0 && rng.random_range(0..self.lose_one_in) == 0;
        if lost || !self.connected(from, to) {
            return None;
        }
        let slow = rng.random_range(0..20) == 0;
        let millis = if slow { rng.random_range(50..3_000) } else { rng.random_range(0..20) };
        Some(Duration::from_millis(millis))
    }

    /// Splits the members into two groups.
    pub(super) fn partition(&mut self, rng: &mut StdRng, members: usize) {
        self.heal();
        let side: Vec<bool> = (0..members).map(|_| rng.random_bool(0.5)).collect();
        for a in 0..members {
            for b in a + 1..members {
                if side[a] != side[b] {
                    self.cut.insert((a, b));
                }
            }
        }
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }
}

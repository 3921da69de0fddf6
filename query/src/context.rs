//! What evaluation takes from outside: time and chance.

use std::cell::RefCell;

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// The surroundings of one query.
#[derive(Debug)]
pub struct Context {
    random: RefCell<StdRng>,
}

impl Default for Context {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Context {
    /// A context whose chance comes from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { random: RefCell::new(StdRng::seed_from_u64(seed)) }
    }

    /// A number in [0, 1).
    pub fn random(&self) -> f64 {
        self.random.borrow_mut().random()
    }
}

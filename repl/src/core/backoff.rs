//! Exponential backoff between attempts.

use std::time::Duration;

/// Waiting times that double with each attempt, up to a maximum.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Starts with `first`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }

    /// The next wait.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let wait = self.next.min(self.max);
        self.next = (wait * 2).min(self.max);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let waits: Vec<u128> = (0..4).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [100, 200, 350, 350]);
    }
}

//! Waiting for conditions.
//!
//! Tests never sleep for a fixed time. They poll until the condition holds; at the limit the error names the
//! condition and the last error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

/// A generous limit for conditions that take a second on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Polls `probe` until it returns a value. An error counts as "not yet", since servers refuse connections while they
/// start; the last error is part of the message at the limit.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    let mut pause = SHORTEST_PAUSE;
    loop {
        let outcome = probe();
        if let Ok(Some(value)) = outcome {
            return Ok(value);
        }
        if interrupted() {
            bail!("interrupted while waiting until {what}");
        }
        if start.elapsed() > limit {
            let message = format!("waited {limit:?} until {what}, in vain");
            return Err(match outcome {
                Err(last) => last.context(message),
                Ok(_) => anyhow!(message),
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Like [`wait_until`], for a boolean condition.
pub fn wait_for(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<bool>,
) -> Result<()> {
    wait_until(what, limit, || Ok(probe()?.then_some(())))
}

/// Ends every wait in this process with an error, so that running tests clean up.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// True after [`interrupt`].
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_value_once_it_is_there() {
        let mut asked = 0;
        let got = wait_until("asked thrice", PATIENCE, || {
            asked += 1;
            Ok((asked == 3).then_some("there"))
        });
        assert_eq!((got.unwrap(), asked), ("there", 3));
    }

    #[test]
    fn tells_what_it_waited_for_and_the_last_error() {
        let limit = Duration::from_millis(10);
        let error = wait_for("the moon is square", limit, || bail!("it is round")).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("the moon is square") && text.contains("it is round"), "{text}");
    }
}

//! Runs reads of the store outside of the async tasks.
//!
//! Whatever may take long runs on a blocking thread. If the client disconnects, the read is told so and ends at the
//! next document. What may be short is first tried directly, with a [`Leash`]: waking a thread costs as much as
//! reading some documents.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use protocol::{ErrorCode, Timestamp};
use storage::View;

use super::moment::{self, ReadTime};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

/// Runs on a blocking thread.
pub async fn run<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let mut waiting = Abandon { flag: call.abandoned.clone(), answered: false };
    let done = tokio::task::spawn_blocking(work).await;
    waiting.answered = true;
    match done {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(target: "COMMAND", ctx = call.client.name(), command = call.name,
                error = %error, "A command failed in an unexpected way");
            Err(Failure::said(ErrorCode::InternalError, "the command failed in an unexpected way"))
        }
    }
}

/// Runs directly if that is short, otherwise again on a blocking thread. Side effects must be skipped when the leash
/// was too short.
pub(crate) async fn run_short<T: Send + 'static>(
    mut call: Call,
    work: impl Fn(&Call) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let leash = Arc::new(Leash::new());
    call.leash = Some(leash.clone());
    let tried = work(&call);
    if !leash.is_broken() {
        return tried;
    }
    call.leash = None;
    let inner = call.clone();
    run(&call, move || work(&inner)).await
}

/// How long a command may occupy an async thread.
#[derive(Debug)]
pub struct Leash {
    until: Instant,
    broken: AtomicBool,
}

/// Time for some dozens of cached documents. A collection scan that is tried in vain takes only slightly longer
/// because of it.
const LEASH: Duration = Duration::from_micros(300);

impl Leash {
    fn new() -> Self {
        Self { until: Instant::now() + LEASH, broken: AtomicBool::new(false) }
    }

    /// True once the time was exceeded.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// True while there is time left.
    pub(super) fn holds(&self) -> bool {
        let holds = Instant::now() < self.until;
        if !holds {
            self.broken.store(true, Ordering::Relaxed);
        }
        holds
    }
}

/// Runs a whole command on a blocking thread.
pub fn command(call: Call, work: fn(&Call) -> Outcome) -> crate::commands::Waiting {
    Box::pin(async move {
        let inner = call.clone();
        run(&call, move || work(&inner)).await
    })
}

/// Runs a reading command on a blocking thread, once its timestamp can be read.
pub fn reading(call: Call, work: fn(&Call, ReadTime) -> Outcome) -> crate::commands::Waiting {
    Box::pin(async move {
        let time = moment::resolve(&call, call.node().store()?).await?;
        let inner = call.clone();
        run(&call, move || work(&inner, time)).await
    })
}

/// Like [`reading`], for a command that reads documents: also waits until no prepared transaction is in the way (see
/// [`moment::decided`]).
pub(crate) fn reading_documents(
    call: Call,
    held: fn(&Call, &View, Timestamp) -> Result<bool, Failure>,
    work: fn(&Call, ReadTime) -> Outcome,
) -> crate::commands::Waiting {
    Box::pin(async move {
        let store = call.node().store()?;
        let time = moment::resolve(&call, store).await?;
        moment::decided(&call, store, time, |view, until| held(&call, view, until)).await?;
        let inner = call.clone();
        run(&call, move || work(&inner, time)).await
    })
}

/// Sets the flag if the waiting task is dropped before the answer.
struct Abandon {
    flag: Arc<AtomicBool>,
    answered: bool,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if !self.answered {
            self.flag.store(true, Ordering::Relaxed);
        }
    }
}

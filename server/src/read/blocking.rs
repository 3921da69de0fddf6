//! Reads the store beside the async tasks.
//!
//! Whatever may take long runs on a blocking thread. When nobody waits for its answer any more, because the client
//! went away, it is told so and ends at the next document. What may be short is tried at once, on a [`Leash`]: a thread
//! that has to be woken costs as much as a read of some documents.

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

/// Runs at once if that is soon done, else anew on a blocking thread. What it does besides reading it must not do when
/// the leash was too short.
pub async fn run_short<T: Send + 'static>(
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

/// How long a command may keep an async task's thread.
#[derive(Debug)]
pub struct Leash {
    until: Instant,
    broken: AtomicBool,
}

/// Some dozens of documents out of the cache. A scan of a collection that is tried in vain is not noticeably longer by it.
const LEASH: Duration = Duration::from_micros(300);

impl Leash {
    fn new() -> Self {
        Self { until: Instant::now() + LEASH, broken: AtomicBool::new(false) }
    }

    /// True once it was too short.
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

/// A whole command on a blocking thread.
pub fn command(call: Call, work: fn(&Call) -> Outcome) -> crate::commands::Waiting {
    Box::pin(async move {
        let inner = call.clone();
        run(&call, move || work(&inner)).await
    })
}

/// A whole command that reads, on a blocking thread, once its moment can be read.
pub fn reading(call: Call, work: fn(&Call, ReadTime) -> Outcome) -> crate::commands::Waiting {
    Box::pin(async move {
        let time = moment::resolve(&call, call.node().store()?).await?;
        let inner = call.clone();
        run(&call, move || work(&inner, time)).await
    })
}

/// The same for a command that reads documents, once what it reads is decided (see [`moment::decided`]).
pub fn reading_documents(
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

/// Sets the flag when the one who waits is gone before it has its answer.
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

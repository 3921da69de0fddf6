//! Reads the store beside the async tasks.
//!
//! Whatever may take long runs on a blocking thread. When nobody waits for its answer any more, because the client
//! went away, it is told so and ends at the next document. What may be short is tried at once, on a [`Leash`]: a thread
//! that has to be woken costs as much as a read of some documents.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use protocol::{ErrorCode, Timestamp};
use query::{QueryError, collation::Collator, context::Context, value::OwnedValue};
use storage::View;

use super::others::Others;
use crate::{
    context::{Call, Outcome},
    error::Failure,
    read::{
        moment::{self, ReadTime},
        spill::DiskSpill,
    },
    shutdown::Phase,
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

    fn holds(&self) -> bool {
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

/// What stays the same from batch to batch of a query.
#[derive(Debug, Clone)]
pub struct Surroundings {
    now: i64,
    cluster_time: Option<protocol::Timestamp>,
    variables: Vec<OwnedValue>,
    spills: bool,
    collator: Option<Arc<Collator>>,
}

impl Surroundings {
    /// As the command finds them, with the values of its `let`.
    pub fn new(call: &Call, variables: Vec<OwnedValue>, spills: bool) -> Self {
        Self {
            now: bson::DateTime::now().timestamp_millis(),
            cluster_time: Some(call.node().cluster_time()).filter(|ts| !ts.is_null()),
            variables,
            spills,
            collator: None,
        }
    }

    /// The same with a collation for expressions.
    #[must_use]
    pub fn with_collator(mut self, collator: Option<Arc<Collator>>) -> Self {
        self.collator = collator;
        self
    }

    /// For one batch: when to stop is the business of the command that asks for it.
    pub fn context(&self, call: &Call) -> Context {
        self.make_context(call, None)
    }

    /// The same, and the other collections of a view are in reach.
    pub(crate) fn context_over(&self, call: &Call, view: &View) -> Context {
        self.make_context(call, Some(view))
    }

    fn make_context(&self, call: &Call, view: Option<&View>) -> Context {
        let mut context = Context::new(self.now, rand::random());
        context.release = call.profile().release;
        context.cluster_time = self.cluster_time;
        context.variables.clone_from(&self.variables);
        context.collator.clone_from(&self.collator);
        if self.spills
            && let Ok(store) = call.node().store()
        {
            context.spill = Some(Rc::new(DiskSpill::below(store.dbpath())));
        }
        let call = Rc::new(call.clone());
        if let Some(view) = view {
            context.collections = Some(Rc::new(Others::new(&call, view)));
        }
        context.interrupt = Some(Rc::new(move || check(&call)));
        context
    }
}

/// The surroundings of a query without variables that is done at once.
pub fn query_context(call: &Call) -> Context {
    Surroundings::new(call, Vec::new(), false).context(call)
}

/// Whether to go on.
pub fn check(call: &Call) -> Result<(), QueryError> {
    if call.abandoned.load(Ordering::Relaxed) {
        return Err(QueryError::new(ErrorCode::ClientDisconnect, "operation was interrupted"));
    }
    if call.leash.as_ref().is_some_and(|leash| !leash.holds()) {
        return Err(QueryError::new(ErrorCode::Interrupted, "this takes a thread of its own"));
    }
    if call.operation.is_killed() {
        return Err(QueryError::new(ErrorCode::Interrupted, "operation was interrupted"));
    }
    if call.max_time.is_some_and(|max| call.started.elapsed() > max) {
        return Err(QueryError::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
    }
    if call.cursor.is_some_and(|id| call.node().cursors.is_killed(id)) {
        return Err(QueryError::new(ErrorCode::CursorKilled, "operation was interrupted"));
    }
    if call.node().shutdown.phase() == Phase::Ending {
        let text = "interrupted at shutdown";
        return Err(QueryError::new(ErrorCode::InterruptedAtShutdown, text));
    }
    Ok(())
}

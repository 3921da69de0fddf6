//! Running requests, for currentOp and killOp, and time spent per collection, for top.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use protocol::{ErrorCode, RawDoc};
use tokio::sync::Notify;

use crate::{commands::OpClass, context::Client};

/// A running request.
pub struct Operation {
    /// `opid`.
    pub id: i32,
    /// The client.
    pub client: Arc<Client>,
    /// The command.
    pub body: RawDoc,
    /// Its class in opcounters.
    pub class: Option<OpClass>,
    /// Start time.
    pub started: Instant,
    /// The error code that ends the operation; 0 while it may continue.
    killed: AtomicI32,
    kill: Notify,
}

impl Operation {
    /// True after killOp, or after a state change that kills the operation.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed) != 0
    }

    /// The error code that ends the operation.
    pub(crate) fn killed_by(&self) -> ErrorCode {
        match self.killed.load(Ordering::Relaxed) {
            0 => ErrorCode::Interrupted,
            code => ErrorCode::from_code(code),
        }
    }

    /// Returns when the operation is killed.
    pub async fn killed(&self) {
        let told = self.kill.notified();
        if !self.is_killed() {
            told.await;
        }
    }

    /// `db.collection`, or `db.$cmd` if there is no collection.
    pub fn namespace(&self) -> String {
        let db = self.body.get_str("$db").unwrap_or_default();
        let first = self.body.iter().next().and_then(Result::ok);
        let coll = match (first, self.body.get_str("collection")) {
            (Some((name, _)), Ok(coll)) if name.as_str() == "getMore" => coll,
            (Some((_, bson::RawBsonRef::String(coll))), _) => coll,
            _ => "$cmd",
        };
        format!("{db}.{coll}")
    }
}

/// All running requests.
#[derive(Default)]
pub struct Operations {
    next: AtomicI32,
    running: Mutex<HashMap<i32, Arc<Operation>>>,
    top: Mutex<HashMap<String, Usage>>,
}

impl Operations {
    /// Registers a request; it ends when the guard is dropped.
    pub fn begin(
        &self,
        client: &Arc<Client>,
        body: &RawDoc,
        class: Option<OpClass>,
        started: Instant,
    ) -> Arc<Operation> {
        let operation = Arc::new(Operation {
            id: self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX,
            client: Arc::clone(client),
            body: body.clone(),
            class,
            started,
            killed: AtomicI32::new(0),
            kill: Notify::new(),
        });
        self.running.lock().insert(operation.id, Arc::clone(&operation));
        operation
    }

    /// Removes a request.
    pub fn end(&self, id: i32) {
        self.running.lock().remove(&id);
    }

    /// The running requests, oldest first.
    pub fn list(&self) -> Vec<Arc<Operation>> {
        let mut all: Vec<_> = self.running.lock().values().cloned().collect();
        all.sort_by_key(|operation| operation.started);
        all
    }

    /// Kills a request, if it exists.
    pub fn kill(&self, id: i32) {
        self.interrupt(id, ErrorCode::Interrupted);
    }

    /// Kills an operation with this error code.
    pub fn interrupt(&self, id: i32, code: ErrorCode) {
        if let Some(operation) = self.running.lock().get(&id) {
            operation.killed.store(code.code(), Ordering::Relaxed);
            operation.kill.notify_waiters();
            operation.kill.notify_one();
        }
    }

    /// Records the duration of an operation on a collection.
    pub fn note(&self, ns: String, class: OpClass, took: Duration) {
        let micros = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        let mut top = self.top.lock();
        let full = top.len() >= NAMESPACES_MAX && !top.contains_key(&ns);
        if full || ns.len() > NAMESPACE_LEN_MAX {
            return;
        }
        let usage = top.entry(ns).or_default();
        if let Some((time, count)) = usage.by_class.get_mut(class.index()) {
            *time += micros;
            *count += 1;
        }
    }

    /// The namespaces with their usage, sorted by name.
    pub fn top(&self) -> Vec<(String, Usage)> {
        let mut all: Vec<_> =
            self.top.lock().iter().map(|(ns, use_)| (ns.clone(), *use_)).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

/// Limits the memory, since clients can name any number of collections that do not exist.
const NAMESPACES_MAX: usize = 100_000;
/// mongod's maximum length of a namespace.
const NAMESPACE_LEN_MAX: usize = 255;

/// Microseconds and number of operations, by class.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// In the order of [`OpClass`].
    pub by_class: [(i64, i64); OpClass::COUNT],
}

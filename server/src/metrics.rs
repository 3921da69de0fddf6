//! Counters for serverStatus. All of them only increase, except the gauges.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use repl::Interrupted;
use tokio::sync::Notify;

use crate::commands::{self, OpClass};

/// A counter that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Increments it.
    pub fn up(&self) {
        self.add(1);
    }

    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value, as a BSON integer.
    pub fn get(&self) -> i64 {
        i64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
    }
}

/// A value that increases and decreases.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Increments it as long as the guard lives.
    pub fn hold(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self)
    }

    /// Increments it.
    pub fn up(&self) -> i64 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Decrements it.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Decrements its gauge when dropped.
pub struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.down();
    }
}

/// All counters and gauges.
#[derive(Debug)]
pub struct Metrics {
    /// Open connections.
    pub connections: Gauge,
    /// Notified when a connection closes.
    pub connection_closed: Notify,
    /// Connections with a running request.
    pub active: Gauge,
    /// Connections since the start.
    pub connections_created: Counter,
    /// Connections refused because of the limit.
    pub connections_rejected: Counter,
    /// Exhaust streams of `hello`.
    pub exhaust_hello: Gauge,
    /// Exhaust streams of `isMaster`.
    pub exhaust_is_master: Gauge,
    /// Requests that wait for a topology change.
    pub awaiting_topology_changes: Gauge,
    /// Bytes of requests, uncompressed.
    pub bytes_in: Counter,
    /// Bytes of replies, uncompressed.
    pub bytes_out: Counter,
    /// Bytes of requests as received.
    pub physical_bytes_in: Counter,
    /// Bytes of replies as sent.
    pub physical_bytes_out: Counter,
    /// Requests.
    pub requests: Counter,
    /// Failed requests.
    pub user_asserts: Counter,
    /// Commands by class.
    pub ops: [Counter; OpClass::COUNT],
    /// Total latency in microseconds by latency class: reads, writes, commands.
    pub latency_micros: [Counter; 3],
    /// Number of operations by latency class.
    pub latency_ops: [Counter; 3],
    /// Calls and failures of each command, in table order.
    pub commands: Vec<CommandCounters>,
    /// The number of operations that the last rollback affected.
    pub rollback: Mutex<Option<Interrupted>>,
}

/// Number of calls and failures of a command.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// Calls.
    pub total: Counter,
    /// Failed ones.
    pub failed: Counter,
}

impl Metrics {
    /// All counters at zero.
    pub fn new() -> Self {
        Self {
            rollback: Mutex::default(),
            connections: Gauge::default(),
            connection_closed: Notify::new(),
            active: Gauge::default(),
            connections_created: Counter::default(),
            connections_rejected: Counter::default(),
            exhaust_hello: Gauge::default(),
            exhaust_is_master: Gauge::default(),
            awaiting_topology_changes: Gauge::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            physical_bytes_in: Counter::default(),
            physical_bytes_out: Counter::default(),
            requests: Counter::default(),
            user_asserts: Counter::default(),
            ops: Default::default(),
            latency_micros: Default::default(),
            latency_ops: Default::default(),
            commands: commands::all().iter().map(|_| CommandCounters::default()).collect(),
        }
    }

    /// Returns when no connection is open.
    pub(crate) async fn connections_closed(&self) {
        loop {
            let closed = self.connection_closed.notified();
            if self.connections.get() == 0 {
                return;
            }
            closed.await;
        }
    }

    /// Number of operations of this class.
    pub fn ops(&self, class: OpClass) -> i64 {
        self.ops.get(class.index()).map_or(0, Counter::get)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

//! Counters for serverStatus. All of them only grow, except the gauges.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use repl::Interrupted;
use tokio::sync::Notify;

use crate::commands::{self, OpClass};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn up(&self) {
        self.add(1);
    }

    /// Some more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The number, as BSON has it.
    pub fn get(&self) -> i64 {
        i64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// One more as long as the guard lives.
    pub fn hold(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self)
    }

    /// One more.
    pub fn up(&self) -> i64 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// One less.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Lowers its gauge when it is dropped.
pub struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.down();
    }
}

/// What is counted.
#[derive(Debug)]
pub struct Metrics {
    /// Open connections.
    pub connections: Gauge,
    /// Wakes whoever waits for a connection to close.
    pub connection_closed: Notify,
    /// Connections that wait for an answer.
    pub active: Gauge,
    /// Connections since the start.
    pub connections_created: Counter,
    /// Connections refused because there were too many.
    pub connections_rejected: Counter,
    /// Exhaust streams of `hello`.
    pub exhaust_hello: Gauge,
    /// Exhaust streams of `isMaster`.
    pub exhaust_is_master: Gauge,
    /// Requests that wait for a change of the topology.
    pub awaiting_topology_changes: Gauge,
    /// Bytes of requests, without their envelopes.
    pub bytes_in: Counter,
    /// Bytes of replies, without their envelopes.
    pub bytes_out: Counter,
    /// Bytes of requests as they came.
    pub physical_bytes_in: Counter,
    /// Bytes of replies as they went.
    pub physical_bytes_out: Counter,
    /// Requests.
    pub requests: Counter,
    /// Failed requests.
    pub user_asserts: Counter,
    /// Commands by their class.
    pub ops: [Counter; OpClass::COUNT],
    /// Time spent, in microseconds, by class of latency: reads, writes, commands.
    pub latency_micros: [Counter; 3],
    /// Number of operations by class of latency.
    pub latency_ops: [Counter; 3],
    /// Calls and failures of each command, in the table's order.
    pub commands: Vec<CommandCounters>,
    /// What the last rollback did to operations.
    pub rollback: Mutex<Option<Interrupted>>,
}

/// How often a command was called, and failed.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// Calls.
    pub total: Counter,
    /// Failed ones.
    pub failed: Counter,
}

impl Metrics {
    /// All zero.
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
    pub async fn connections_closed(&self) {
        loop {
            let closed = self.connection_closed.notified();
            if self.connections.get() == 0 {
                return;
            }
            closed.await;
        }
    }

    /// How many operations of this class there were.
    pub fn ops(&self, class: OpClass) -> i64 {
        self.ops.get(class.index()).map_or(0, Counter::get)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

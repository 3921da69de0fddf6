//! Test harness with real servers.
//!
//! Understudy is compared with real mongods, drivers, shells and tools, never with its own codec. This crate finds or
//! fetches them, starts them in temporary directories, joins them and our binary into replica sets, puts a proxy
//! between them and compares their replies. The test cases (`cases/`), the demo and the benchmarks use it.
//!
//! ```text
//!   servers ── fetch            where a mongod, mongosh, pymongo, mongodump comes from
//!      │
//!    node ── process, port      one server: started, stopped, killed, restarted on its own port
//!      │
//!  repl_set ── hashes, logs     a set of them: joined, awaited, compared, logs checked at the end
//!      │
//!  proxy   compare   scripts    network faults; comparison of replies; other clients
//! ```
//!
//! Functions return `anyhow::Result`; a case uses `?` and ends with `finish()`. A case that does not reach
//! `finish()`, because of an error or a panic, prints the tail of every server's log.

pub mod certificates;
pub mod compare;
pub mod differential;
pub mod disk;
pub mod driver;
pub mod fetch;
pub mod golden;
pub mod hashes;
pub mod logs;
pub mod mongod;
pub mod node;
pub mod port;
pub mod process;
pub mod proxy;
pub mod repl_set;
pub mod scratch;
pub mod scripts;
pub mod servers;
pub mod understudy;
pub mod wait;
pub mod workload;

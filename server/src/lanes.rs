//! Separate threads for clients and for the set.
//!
//! Queries and logins run on the client threads, however many there are and however long they take. Heartbeats,
//! votes, the oplog and upkeep never wait for one of those: heavy reads here must not cause an election or delay an
//! acknowledgement.

use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle, Runtime};

/// Stack size. A filter or an expression may be nested as deep as BSON and is processed recursively: 200 levels fit
/// easily, also without optimisation. Only the used part costs memory.
const STACK_BYTES: usize = 64 << 20;
/// Maximum concurrent reads, each on its own thread; others wait.
const READS_MAX: usize = 4_096;
/// Replication tasks need little CPU; the writer and the applier have their own threads.
const MEMBER_THREADS: usize = 2;
/// How long to wait at the end for work that nobody needs any more.
const LAST_WORK_MAX: Duration = Duration::from_secs(1);

/// Both runtimes.
pub(crate) struct Lanes {
    clients: Runtime,
    members: Runtime,
}

impl Lanes {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::with(READS_MAX)
    }

    fn with(reads_max: usize) -> anyhow::Result<Self> {
        let clients = Builder::new_multi_thread()
            .enable_all()
            .thread_name("understudy")
            .thread_stack_size(STACK_BYTES)
            .max_blocking_threads(reads_max)
            .build()
            .context("Cannot start the threads for clients")?;
        let members = Builder::new_multi_thread()
            .enable_all()
            .thread_name("replication")
            .thread_stack_size(STACK_BYTES)
            .worker_threads(MEMBER_THREADS)
            .build()
            .context("Cannot start the threads for replication")?;
        Ok(Self { clients, members })
    }

    /// The runtime for work that the set depends on.
    pub(crate) fn members(&self) -> Handle {
        self.members.handle().clone()
    }

    /// Runs the server to its end, on the client threads.
    pub(crate) fn run<T>(self, server: impl Future<Output = T>) -> T {
        let result = self.clients.block_on(server);
        // Tasks that still wait for a client are not needed any more.
        self.clients.shutdown_timeout(LAST_WORK_MAX);
        self.members.shutdown_timeout(LAST_WORK_MAX);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// With as many endless reads as there are threads, a vote is still persisted.
    #[test]
    fn the_set_does_not_wait_for_readers() {
        const READERS: usize = 3;
        let lanes = Lanes::with(READERS).unwrap();
        let members = lanes.members();
        lanes.run(async move {
            let (begun, begins) = mpsc::channel();
            let mut ends = Vec::new();
            for _ in 0..READERS {
                let (end, ended) = mpsc::channel::<()>();
                let begun = begun.clone();
                tokio::task::spawn_blocking(move || {
                    begun.send(()).unwrap();
                    ended.recv()
                });
                ends.push(end);
            }
            for _ in 0..READERS {
                begins.recv_timeout(Duration::from_secs(60)).unwrap();
            }
            let another_read = tokio::task::spawn_blocking(|| ());
            let vote = members.spawn(async { tokio::task::spawn_blocking(|| 7).await });
            let kept = tokio::time::timeout(Duration::from_secs(60), vote).await;
            assert_eq!(kept.unwrap().unwrap().unwrap(), 7);
            assert!(!another_read.is_finished(), "the threads for clients were not all taken");
            drop(ends);
        });
    }
}

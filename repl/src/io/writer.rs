//! The first of the two stages: writes fetched entries to our oplog, many entries per sync.
//!
//! ```text
//! fetcher --> buffer (bounded in bytes) --> writer thread: append, append, ..., sync --> `durable` moves
//! ```
//! Only what a sync covered is durable, and only that is reported as durable. A failed sync ends the process: what
//! the file system holds is then unknown, and a second sync would hide it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use protocol::RawDoc;
use storage::{StorageError, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Maximum memory of entries waiting for the writer; above it the source has to wait.
const BUFFER_KIB_MAX: u32 = 16 << 10;
/// Maximum appends before a sync: a steady stream must not postpone the sync forever.
const APPENDS_PER_SYNC_MAX: usize = 16;

/// The queue into the writer.
#[derive(Clone)]
pub(crate) struct Buffer {
    room: Arc<Semaphore>,
    queue: mpsc::UnboundedSender<Message>,
}

enum Message {
    Entries { entries: Vec<RawDoc>, _room: OwnedSemaphorePermit },
    Flush(oneshot::Sender<()>),
}

/// The writer has ended because the process is shutting down.
#[derive(Debug, thiserror::Error)]
#[error("the oplog writer has stopped")]
pub(crate) struct WriterGone;

impl Buffer {
    /// Passes entries to the writer; waits while the buffer is full.
    pub(crate) async fn push(&self, entries: Vec<RawDoc>) -> Result<(), WriterGone> {
        let bytes: usize = entries.iter().map(|entry| entry.len()).sum();
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).clamp(1, BUFFER_KIB_MAX);
        let room = self.room.clone().acquire_many_owned(kib).await.map_err(|_| WriterGone)?;
        self.queue.send(Message::Entries { entries, _room: room }).map_err(|_| WriterGone)
    }

    /// Returns when everything pushed before is durable.
    pub(crate) async fn flush(&self) -> Result<(), WriterGone> {
        let (done, wait) = oneshot::channel();
        self.queue.send(Message::Flush(done)).map_err(|_| WriterGone)?;
        wait.await.map_err(|_| WriterGone)
    }
}

/// Starts the writer thread. It ends when the last [`Buffer`] is dropped.
pub(crate) fn start(store: Store, fatal: impl Fn(String) + Send + 'static) -> Buffer {
    let (queue, messages) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(BUFFER_KIB_MAX as usize));
    std::thread::Builder::new()
        .name("oplog-writer".into())
        .spawn(move || match catch_unwind(AssertUnwindSafe(|| run(&store, messages))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => fatal(error.to_string()),
            Err(_) => fatal("the oplog writer panicked; see the log above".to_owned()),
        })
        .expect("a thread at startup");
    Buffer { room, queue }
}

fn run(store: &Store, mut messages: mpsc::UnboundedReceiver<Message>) -> Result<(), StorageError> {
    while let Some(first) = messages.blocking_recv() {
        let mut flushed = Vec::new();
        let mut appended = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Entries { entries, _room } => {
                    store.oplog().append(&entries)?;
                    appended += 1;
                }
                Message::Flush(done) => flushed.push(done),
            }
            next = if appended < APPENDS_PER_SYNC_MAX { messages.try_recv().ok() } else { None };
        }
        if appended > 0 {
            store.oplog().sync()?;
        }
        for done in flushed {
            // The requester may have given up.
            let _ = done.send(());
        }
    }
    Ok(())
}

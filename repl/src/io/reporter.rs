//! Sends position reports to the sync source. The node ensures that only one report is in flight.

use std::time::Duration;

use bson::RawDocumentBuf;
use protocol::{HostAndPort, RawDoc, client::Connection};
use tokio::{sync::mpsc, time::timeout};

use super::{handle::Message, peer::Peer};
use crate::event::{Event, PeerError};

/// A report to send.
pub(super) struct Job {
    pub(super) target: HostAndPort,
    pub(super) seq: u64,
    pub(super) body: RawDocumentBuf,
    pub(super) within: Duration,
}

/// Starts the reporting task; it ends when the sender is dropped.
pub(super) fn start(
    peer: Peer,
    inbox: mpsc::UnboundedSender<Message>,
) -> mpsc::UnboundedSender<Job> {
    let (sender, jobs) = mpsc::unbounded_channel();
    tokio::spawn(Reporter { peer, inbox, connection: None }.run(jobs));
    sender
}

struct Reporter {
    peer: Peer,
    inbox: mpsc::UnboundedSender<Message>,
    connection: Option<Connection>,
}

impl Reporter {
    async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut next = jobs.recv().await;
        while let Some(Job { target, seq, body, within }) = next.take() {
            let sending = timeout(within, self.send(&target, body, within));
            // A newer job means that the source has changed: the reply to the old one is not needed.
            let (result, newer) = tokio::select! {
                result = sending => (result.unwrap_or(Err(PeerError::TimedOut(within))), None),
                newer = jobs.recv() => (Err(PeerError::Network("the source changed".to_owned())), Some(newer)),
            };
            if matches!(result, Err(PeerError::Network(_) | PeerError::TimedOut(_))) {
                self.connection = None;
            }
            if self.inbox.send(Message::Event(Event::ReportDone { seq, result })).is_err() {
                return;
            }
            next = match newer {
                Some(newer) => newer,
                None => jobs.recv().await,
            };
        }
    }

    async fn send(
        &mut self,
        target: &HostAndPort,
        body: RawDocumentBuf,
        within: Duration,
    ) -> Result<RawDoc, PeerError> {
        let connection = match &mut self.connection {
            Some(connection) if !connection.is_broken() && connection.host() == target => {
                connection
            }
            slot => slot.insert(self.peer.connect(target).await?),
        };
        Ok(connection.run("admin", body, within).await?)
    }
}

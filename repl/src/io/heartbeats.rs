//! Sends heartbeats and measures the round trip times: one task and one connection for each member.

use std::{collections::HashMap, time::Duration};

use bson::{RawDocumentBuf, oid::ObjectId, rawdoc};
use protocol::{HostAndPort, RawDoc, client::Connection};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{clock, handle::Message, peer::Peer};
use crate::event::{Event, PeerError};

/// The heartbeat tasks.
pub(super) struct Heartbeats {
    peer: Peer,
    inbox: mpsc::UnboundedSender<Message>,
    /// A task ends when its sender is dropped.
    targets: HashMap<HostAndPort, mpsc::UnboundedSender<Job>>,
}

struct Job {
    seq: u64,
    body: RawDocumentBuf,
    within: Duration,
}

impl Heartbeats {
    pub(super) fn new(peer: Peer, inbox: mpsc::UnboundedSender<Message>) -> Self {
        Self { peer, inbox, targets: HashMap::new() }
    }

    /// Sends a heartbeat; the result comes as an event.
    pub(super) fn send(
        &mut self,
        target: HostAndPort,
        seq: u64,
        body: RawDocumentBuf,
        within: Duration,
    ) {
        let job = Job { seq, body, within };
        let (peer, inbox) = (&self.peer, &self.inbox);
        let jobs = self.targets.entry(target.clone()).or_insert_with(|| {
            let (sender, jobs) = mpsc::unbounded_channel();
            let asker =
                Asker { peer: peer.clone(), target, inbox: inbox.clone(), connection: None };
            tokio::spawn(asker.run(jobs));
            sender
        });
        // The task ends only when this sender is dropped.
        let _ended = jobs.send(job);
    }

    /// Ends the tasks of hosts that are no longer members.
    pub(super) fn retain(&mut self, members: &[HostAndPort]) {
        self.targets.retain(|host, _| members.contains(host));
    }
}

struct Asker {
    peer: Peer,
    target: HostAndPort,
    inbox: mpsc::UnboundedSender<Message>,
    connection: Option<Connection>,
}

impl Asker {
    async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(Job { seq, body, within }) = jobs.recv().await {
            let mut rtt = Duration::ZERO;
            let result = timeout(within, self.ask(body, within, &mut rtt))
                .await
                .unwrap_or(Err(PeerError::TimedOut(within)));
            if matches!(result, Err(PeerError::Network(_) | PeerError::TimedOut(_))) {
                self.connection = None;
            }
            let hello = self.connection.as_ref().map(Connection::hello);
            let event = Event::HeartbeatDone {
                target: self.target.clone(),
                seq,
                rtt,
                result,
                max_wire_version: hello.map(|hello| hello.wire_versions.max),
            };
            if self.inbox.send(Message::Event(event)).is_err() {
                return;
            }
        }
    }

    async fn ask(
        &mut self,
        body: RawDocumentBuf,
        within: Duration,
        rtt: &mut Duration,
    ) -> Result<RawDoc, PeerError> {
        let connection = match &mut self.connection {
            Some(connection) if !connection.is_broken() => connection,
            slot => slot.insert(self.peer.connect(&self.target).await?),
        };
        let sent = clock::now().mono;
        let reply = connection.run("admin", body, within).await;
        *rtt = clock::now().mono - sent;
        Ok(reply?)
    }
}

/// Asks every host for its id; reports which of them are this process.
///
/// A process that has just started may ask before its own port is open. So if none is found and some host is
/// unreachable, the search is repeated for a short time.
pub(super) async fn find_self(
    peer: Peer,
    process_id: ObjectId,
    hosts: Vec<HostAndPort>,
) -> Vec<HostAndPort> {
    let started = clock::now().mono;
    loop {
        let (ours, all_answered) = ask_all(&peer, process_id, &hosts).await;
        let late = clock::now().mono - started >= IS_SELF_RETRY_FOR;
        if all_answered || !ours.is_empty() || late {
            return ours;
        }
        tokio::time::sleep(IS_SELF_PAUSE).await;
    }
}

/// The hosts that are this process, and whether all replied. Once one is found, silent hosts are not waited for long.
async fn ask_all(
    peer: &Peer,
    process_id: ObjectId,
    hosts: &[HostAndPort],
) -> (Vec<HostAndPort>, bool) {
    let mut asked = JoinSet::new();
    for host in hosts.iter().cloned() {
        let peer = peer.clone();
        asked.spawn(async move { (is_self(&peer, process_id, &host).await, host) });
    }
    let (mut ours, mut answered, mut patience) = (Vec::new(), 0, IS_SELF_TIMEOUT);
    while let Ok(Some(answer)) = timeout(patience, asked.join_next()).await {
        let Ok((Ok(is_us), host)) = answer else { continue };
        answered += 1;
        if is_us {
            ours.push(host);
            patience = IS_SELF_PAUSE;
        }
    }
    (ours, answered == hosts.len())
}

async fn is_self(peer: &Peer, process_id: ObjectId, host: &HostAndPort) -> Result<bool, PeerError> {
    let mut connection = peer.connect(host).await?;
    let reply = connection.run("admin", rawdoc! { "_isSelf": 1 }, IS_SELF_TIMEOUT).await?;
    Ok(reply.get_object_id("id").is_ok_and(|id| id == process_id))
}

/// A host that takes longer cannot be this process.
const IS_SELF_TIMEOUT: Duration = Duration::from_secs(5);
const IS_SELF_RETRY_FOR: Duration = Duration::from_secs(1);
const IS_SELF_PAUSE: Duration = Duration::from_millis(50);

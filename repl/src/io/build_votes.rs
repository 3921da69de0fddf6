//! Tells the primary that our part of an index build is done.
//!
//! The primary commits a build when every voting member has voted. If we have a vote and do not send it, no index
//! build on the set ever ends. So we repeat it to the current primary until it is accepted or the primary does not
//! know the build.

use std::time::Duration;

use bson::{rawdoc, spec::BinarySubtype};
use protocol::ErrorCode;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::{MemberSettings, Repl, apply::BuildReady, core::backoff::Backoff, io::peer::Peer};

/// Timeout of a vote, which is a majority write on the primary.
const VOTE_TIMEOUT: Duration = Duration::from_secs(60);

/// Votes for every build that becomes ready, until the sender is dropped.
pub(crate) async fn run(
    mut ready: mpsc::UnboundedReceiver<BuildReady>,
    repl: Repl,
    peer: Peer,
    settings: watch::Receiver<Option<MemberSettings>>,
) {
    while let Some(ready) = ready.recv().await {
        let (repl, peer, settings) = (repl.clone(), peer.clone(), settings.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = ready.over.cancelled() => {}
                () = vote(ready.build, repl, peer, settings) => {}
            }
        });
    }
}

/// Sends the vote for a build. A build may be ready before our config is known, and a member without a vote may get
/// one during the build.
async fn vote(
    build: Uuid,
    repl: Repl,
    peer: Peer,
    mut settings: watch::Receiver<Option<MemberSettings>>,
) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        let voting = settings.wait_for(|now| now.as_ref().is_some_and(|now| now.votes)).await;
        let Some(ours) = voting.ok().and_then(|ours| ours.clone()) else { return };
        let primary = repl.snapshot().primary().cloned();
        if let Some(primary) = primary {
            match send(build, &primary, &peer, &ours).await {
                Ok(Taken::Yes) => return,
                Ok(Taken::No(why)) => {
                    tracing::info!(%build, %primary, %why, "the vote for an index build may be lost; trying again");
                }
                // It was committed or aborted without us.
                Err(error) if error.code() == Some(ErrorCode::NoSuchKey) => {
                    tracing::info!(%build, %primary, "the index build needs no vote any more");
                    return;
                }
                Err(error) => {
                    tracing::info!(%build, %primary, %error, "the vote for an index build was not taken; trying again");
                }
            }
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

enum Taken {
    Yes,
    /// The primary has the vote, but a majority may not: a failover could lose it.
    No(String),
}

async fn send(
    build: Uuid,
    primary: &protocol::HostAndPort,
    peer: &Peer,
    ours: &MemberSettings,
) -> Result<Taken, protocol::client::ClientError> {
    let uuid = bson::Binary { subtype: BinarySubtype::Uuid, bytes: build.as_bytes().to_vec() };
    let command = rawdoc! {
        "voteCommitIndexBuild": uuid,
        "hostAndPort": ours.host.to_string(),
        "writeConcern": { "w": "majority" },
    };
    let mut connection = peer.connect(primary).await?;
    let reply = connection.run("admin", command, VOTE_TIMEOUT).await?;
    if let Ok(failed) = reply.get_document("writeConcernError") {
        return Ok(Taken::No(format!("{failed:?}")));
    }
    tracing::info!(%build, %primary, "voted to commit an index build");
    Ok(Taken::Yes)
}

//! Tells the primary that our part of an index build is done.
//!
//! The primary commits a build when every voting member has said so. Without our word, as a voter,
//! no index build on the set ever ends; so we repeat it, to whoever is primary, until it is
//! taken or the primary knows of no such build.

use std::time::Duration;

use bson::{rawdoc, spec::BinarySubtype};
use protocol::ErrorCode;
use tokio::sync::{mpsc, watch};

use crate::{MemberSettings, Repl, apply::BuildReady, core::backoff::Backoff, io::peer::Peer};

/// The vote is a majority write on the primary.
const VOTE_TIMEOUT: Duration = Duration::from_secs(60);

/// Votes for every build that becomes ready, until the sender is gone.
pub(crate) async fn run(
    mut ready: mpsc::UnboundedReceiver<BuildReady>,
    repl: Repl,
    peer: Peer,
    settings: watch::Receiver<Option<MemberSettings>>,
) {
    while let Some(build) = ready.recv().await {
        let ours = settings.borrow().clone();
        if let Some(ours) = ours.filter(|ours| ours.votes) {
            tokio::spawn(vote(build, repl.clone(), peer.clone(), ours));
        }
    }
}

async fn vote(build: BuildReady, repl: Repl, peer: Peer, ours: MemberSettings) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        let primary = repl.snapshot().primary().cloned();
        if let Some(primary) = primary {
            match send(&build, &primary, &peer, &ours).await {
                Ok(()) => return,
                // It is committed or aborted without us.
                Err(error) if error.code() == Some(ErrorCode::NoSuchKey) => {
                    tracing::info!(build = %build.build, %primary, "the index build needs no vote any more");
                    return;
                }
                Err(error) => {
                    tracing::info!(build = %build.build, %primary, %error, "the vote for an index build was not taken; trying again");
                }
            }
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

async fn send(
    build: &BuildReady,
    primary: &protocol::HostAndPort,
    peer: &Peer,
    ours: &MemberSettings,
) -> Result<(), protocol::client::ClientError> {
    let uuid =
        bson::Binary { subtype: BinarySubtype::Uuid, bytes: build.build.as_bytes().to_vec() };
    let command = rawdoc! {
        "voteCommitIndexBuild": uuid,
        "hostAndPort": ours.host.to_string(),
        "writeConcern": { "w": "majority" },
    };
    let mut connection = peer.connect(primary).await?;
    connection.run("admin", command, VOTE_TIMEOUT).await?;
    tracing::info!(build = %build.build, %primary, "voted to commit an index build");
    Ok(())
}

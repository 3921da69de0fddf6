//! What we know of another member: its answers to our heartbeats and the positions that reach us.

use std::time::Duration;

use protocol::{HostAndPort, OpTime, OpTimeAndWall, Timestamp};

use super::{config::VersionAndTerm, heartbeat::HeartbeatReply, member_state::MemberState};
use crate::event::{Now, Positions};

/// One member as we see it. Our own entry is kept too, and never used.
#[derive(Clone, Debug)]
pub struct MemberData {
    /// State by its last heartbeat reply; UNKNOWN before the first, DOWN when it does not answer.
    pub state: MemberState,
    /// True if it answered lately.
    pub up: bool,
    /// True if it refused our credentials.
    pub auth_issue: bool,
    /// True once it has answered or was found down.
    pub tried: bool,
    /// Since when it answers.
    pub up_since: Option<Duration>,
    /// Config of its last reply.
    pub config: VersionAndTerm,
    /// Term of its last reply.
    pub term: i64,
    /// Positions of its last heartbeat reply; may go back after a rollback.
    pub heartbeat: Positions,
    /// The furthest positions heard of by any way; for position reports.
    pub known: Positions,
    /// When we last heard of it by any way; reports leave out whom we have not heard of.
    pub last_update: Option<Duration>,
    /// `syncingTo` of its last reply.
    pub sync_source: Option<HostAndPort>,
    /// `electionTime` of its last reply.
    pub election_time: Option<Timestamp>,
    /// Why it is down.
    pub message: String,
    /// When it last answered us, by the clock on the wall.
    pub last_heartbeat: bson::DateTime,
    /// When it last asked us, by the clock on the wall.
    pub last_heartbeat_received: bson::DateTime,
}

impl Default for MemberData {
    fn default() -> Self {
        Self {
            state: MemberState::Unknown,
            up: false,
            auth_issue: false,
            tried: false,
            up_since: None,
            config: VersionAndTerm { version: -1, term: -1 },
            term: -1,
            heartbeat: Positions::default(),
            known: Positions::default(),
            last_update: None,
            sync_source: None,
            election_time: None,
            message: String::new(),
            last_heartbeat: bson::DateTime::from_millis(0),
            last_heartbeat_received: bson::DateTime::from_millis(0),
        }
    }
}

impl MemberData {
    /// It answered.
    pub fn set_up(&mut self, now: Now, reply: &HeartbeatReply) {
        if !self.up {
            self.up_since = Some(now.mono);
        }
        self.up = true;
        self.tried = true;
        self.auth_issue = false;
        self.state = reply.state.unwrap_or(MemberState::Unknown);
        self.config = reply.config_version;
        self.term = reply.term;
        self.heartbeat = reply.positions;
        self.sync_source = reply.syncing_to.clone();
        self.election_time = reply.election_time;
        self.message.clear();
        self.last_heartbeat = now.wall;
        self.advance(now, reply.positions);
    }

    /// It does not answer any more.
    pub fn set_down(&mut self, now: Now, why: String) {
        self.up = false;
        self.tried = true;
        self.up_since = None;
        self.auth_issue = false;
        self.state = MemberState::Down;
        self.heartbeat = Positions::default();
        self.sync_source = None;
        self.message = why;
        self.last_heartbeat = now.wall;
    }

    /// It refuses our credentials.
    pub fn set_auth_issue(&mut self, now: Now) {
        self.up = false;
        self.tried = true;
        self.up_since = None;
        self.auth_issue = true;
        self.state = MemberState::Unknown;
        self.heartbeat = Positions::default();
        self.message.clear();
        self.last_heartbeat = now.wall;
    }

    /// Takes over what is ahead of what we knew. True if anything was.
    pub fn advance(&mut self, now: Now, positions: Positions) -> bool {
        self.last_update = Some(now.mono);
        let mut moved = false;
        for (known, heard) in [
            (&mut self.known.written, positions.written),
            (&mut self.known.durable, positions.durable),
            (&mut self.known.applied, positions.applied),
        ] {
            moved |= advance(known, heard);
        }
        moved
    }

    /// Its last applied entry, by heartbeat.
    pub fn applied(&self) -> OpTime {
        self.heartbeat.applied.op_time
    }

    /// True if nothing was heard of it for the election timeout.
    pub fn is_stale(&self, now: Duration, election_timeout: Duration) -> bool {
        self.last_update.is_none_or(|at| now.saturating_sub(at) >= election_timeout)
    }
}

fn advance(known: &mut OpTimeAndWall, heard: OpTimeAndWall) -> bool {
    let ahead = heard.op_time > known.op_time;
    if ahead {
        *known = heard;
    }
    ahead
}

//! What we know about another member: its heartbeat replies and its reported positions.

use std::time::Duration;

use protocol::{HostAndPort, OpTime, OpTimeAndWall, Timestamp};

use super::{config::VersionAndTerm, heartbeat::HeartbeatReply, member_state::MemberState};
use crate::event::{Now, Positions};

/// One member as we see it. There is also an entry for ourselves, which is never used.
#[derive(Clone, Debug)]
pub struct MemberData {
    /// State in its last heartbeat reply; UNKNOWN before the first, DOWN if it does not reply.
    pub state: MemberState,
    /// True if it replied to the last heartbeat.
    pub up: bool,
    /// True if it refused our authentication.
    pub auth_issue: bool,
    /// True once it has replied or was found down.
    pub tried: bool,
    /// Since when it has been replying.
    pub up_since: Option<Duration>,
    /// Config version and term in its last reply.
    pub config: VersionAndTerm,
    /// Term in its last reply.
    pub term: i64,
    /// Positions in its last heartbeat reply; they may move back after a rollback.
    pub heartbeat: Positions,
    /// The most advanced positions known from any source; used in position reports.
    pub known: Positions,
    /// When we last heard about it from any source. Members never heard of are left out of reports.
    pub last_update: Option<Duration>,
    /// `syncingTo` of its last reply.
    pub sync_source: Option<HostAndPort>,
    /// `electionTime` of its last reply.
    pub election_time: Option<Timestamp>,
    /// Why it is considered down.
    pub message: String,
    /// Wall clock time of its last reply.
    pub last_heartbeat: bson::DateTime,
    /// Wall clock time of its last request to us.
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
    /// Processes a reply.
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

    /// Marks it as down.
    pub(crate) fn set_down(&mut self, now: Now, why: String) {
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

    /// Marks it as refusing our authentication.
    pub(crate) fn set_auth_issue(&mut self, now: Now) {
        self.up = false;
        self.tried = true;
        self.up_since = None;
        self.auth_issue = true;
        self.state = MemberState::Unknown;
        self.heartbeat = Positions::default();
        self.message.clear();
        self.last_heartbeat = now.wall;
    }

    /// Adopts positions that are ahead of the known ones. True if any was.
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

    /// Its last applied entry, from heartbeats.
    pub fn applied(&self) -> OpTime {
        self.heartbeat.applied.op_time
    }

    /// True if nothing was heard about it for the election timeout.
    pub(crate) fn is_stale(&self, now: Duration, election_timeout: Duration) -> bool {
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

//! What the rest of the process may know about replication without asking the node: one small value,
//! replaced after every event that changes it.

use std::sync::Arc;

use bson::oid::ObjectId;
use protocol::{HostAndPort, OpTime, OpTimeAndWall, Profile, RawDoc, Timestamp};

use crate::{
    core::{
        config::{MemberConfig, ReplSetConfig},
        member_state::MemberState,
    },
    event::Positions,
};

/// The node at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The version that we show.
    pub profile: &'static Profile,
    /// `--replSet`.
    pub set_name: Arc<str>,
    /// Identifies this process.
    pub process_id: ObjectId,
    /// `topologyVersion.counter`.
    pub topology_counter: i64,
    /// The installed config.
    pub config: Option<Arc<ReplSetConfig>>,
    /// Our place in the config's members.
    pub self_index: Option<usize>,
    /// Our state.
    pub state: MemberState,
    /// The newest term we have heard of; -1 before there is a config.
    pub term: i64,
    /// Whom we take for primary.
    pub primary_index: Option<usize>,
    /// Whom we sync from.
    pub sync_source: Option<HostAndPort>,
    /// How far we are, in what the set may know: null during initial sync.
    pub positions: Positions,
    /// Majority committed, as far as we know.
    pub committed: OpTimeAndWall,
    /// min(committed, applied): what majority reads see.
    pub stable: OpTime,
    /// Rollback id.
    pub rbid: i32,
    /// Replication stands still for a reason that time does not mend: moments of the past are served, the present
    /// is not.
    pub past_only: bool,
}

impl Snapshot {
    /// True if nobody could tell the difference.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let config = |it: &Self| it.config.as_ref().map(Arc::as_ptr);
        let small = |it: &Self| {
            let place = (it.self_index, it.state, it.primary_index);
            (it.topology_counter, place, it.term, it.rbid, it.past_only)
        };
        self.positions == other.positions
            && self.committed == other.committed
            && self.stable == other.stable
            && small(self) == small(other)
            && self.profile == other.profile
            && config(self) == config(other)
            && self.sync_source == other.sync_source
    }

    /// Shows an earlier moment as the newest, for a reader who sees nothing later.
    pub fn show_moment(&mut self, ts: Timestamp) {
        let wall = bson::DateTime::from_millis(i64::from(ts.secs()) * 1000);
        let clamp = |at: &mut OpTimeAndWall| {
            if at.op_time.ts > ts {
                *at = OpTimeAndWall { op_time: OpTime { ts, ..at.op_time }, wall };
            }
        };
        let Positions { written, durable, applied } = &mut self.positions;
        [written, durable, applied, &mut self.committed].into_iter().for_each(clamp);
        self.stable.ts = self.stable.ts.min(ts);
    }

    /// The address of the primary.
    pub fn primary(&self) -> Option<&HostAndPort> {
        let config = self.config.as_deref()?;
        Some(&config.members.get(self.primary_index?)?.host)
    }

    /// Our own entry in the config.
    pub fn own_config(&self) -> Option<&MemberConfig> {
        self.config.as_deref()?.members.get(self.self_index?)
    }

    /// The place of the sync source in the config.
    pub fn sync_source_index(&self) -> Option<usize> {
        self.config.as_deref()?.index_of_host(self.sync_source.as_ref()?)
    }

    /// The config as it was received.
    pub fn config_document(&self) -> Option<&RawDoc> {
        self.config.as_deref().map(|config| &config.raw)
    }
}

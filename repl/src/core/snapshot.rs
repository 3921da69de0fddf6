//! The replication state for the rest of the process: a small value that is replaced after every event that changes
//! it.

use std::sync::Arc;

use bson::oid::ObjectId;
use protocol::{HostAndPort, OpTime, OpTimeAndWall, Profile, Timestamp};

use crate::{
    core::{
        config::{MemberConfig, ReplSetConfig},
        member_state::MemberState,
    },
    event::Positions,
};

/// The node's state at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The release that we show.
    pub profile: &'static Profile,
    /// `--replSet`.
    pub set_name: Arc<str>,
    /// Unique id of this process.
    pub process_id: ObjectId,
    /// `topologyVersion.counter`.
    pub topology_counter: i64,
    /// The installed config.
    pub config: Option<Arc<ReplSetConfig>>,
    /// Our index in the config's members.
    pub self_index: Option<usize>,
    /// Our state.
    pub state: MemberState,
    /// The newest known term; -1 before there is a config.
    pub term: i64,
    /// Index of the primary, as far as we know.
    pub primary_index: Option<usize>,
    /// Our sync source.
    pub sync_source: Option<HostAndPort>,
    /// Our positions as the set may see them: null during initial sync.
    pub positions: Positions,
    /// The newest majority-committed position that we know of.
    pub committed: OpTimeAndWall,
    /// min(committed, applied): what majority reads see.
    pub stable: OpTime,
    /// Rollback id.
    pub rbid: i32,
    /// Replication has stopped for a reason that only an operator can resolve: reads of past timestamps are served,
    /// reads of the present are not.
    pub past_only: bool,
}

impl Snapshot {
    /// True if no observer could tell the difference.
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

    /// Shows an earlier timestamp as the newest, for a reader that is pinned to it.
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
    pub(crate) fn own_config(&self) -> Option<&MemberConfig> {
        self.config.as_deref()?.members.get(self.self_index?)
    }

    /// The index of the sync source in the config.
    pub fn sync_source_index(&self) -> Option<usize> {
        self.config.as_deref()?.index_of_host(self.sync_source.as_ref()?)
    }
}

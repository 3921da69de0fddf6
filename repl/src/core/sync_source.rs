//! Chooses the sync source.
//!
//! There are two attempts. The first has strict criteria. The second accepts any member that is up, readable and
//! ahead of us, so that a node that can only reach a hidden or lagging member still makes progress.
//!
//! | a candidate must | first | second |
//! | --- | --- | --- |
//! | be up, PRIMARY or SECONDARY, ahead of us (the primary: not behind us), not denylisted | yes | yes |
//! | build indexes if we do | yes | yes |
//! | vote if we vote, not be hidden, lag at most 30 s behind the primary, have no larger delay than ours | yes | no |

use std::{collections::BTreeMap, fmt, time::Duration};

use protocol::{HostAndPort, OpTime};

use super::{config::ReplSetConfig, member::MemberData, member_state::MemberState};

/// The inputs of a choice.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The config.
    pub config: &'a ReplSetConfig,
    /// Our index in it.
    pub self_index: usize,
    /// What we know about each member, in config order.
    pub members: &'a [MemberData],
    /// The average round trip time of each member, in config order.
    pub pings: &'a [Option<Duration>],
    /// Index of the primary, as far as we know.
    pub primary_index: Option<usize>,
    /// Our last fetched entry.
    pub last_fetched: OpTime,
    /// Hosts that must not be chosen for now.
    pub denylist: &'a Denylist,
    /// The current time.
    pub now: Duration,
}

/// The result of a choice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Follow this member.
    Switch {
        /// Its index in the config.
        to: usize,
        /// The reason.
        why: SwitchReason,
    },
    /// No member is suitable; choose again later.
    Wait {
        /// Why each member was rejected.
        rejected: Vec<(HostAndPort, Rejection)>,
    },
}

/// Why a member was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchReason {
    /// `replSetSyncFrom`.
    ByRequest,
    /// Chaining is disabled, so it must be the primary.
    PrimaryOnly,
    /// The nearest suitable member.
    Nearest {
        /// The attempt: 1 or 2.
        attempt: u8,
    },
}

impl fmt::Display for SwitchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByRequest => f.write_str("by request"),
            Self::PrimaryOnly => f.write_str("it is the primary and chaining is off"),
            Self::Nearest { attempt: 1 } => f.write_str("the nearest that fits"),
            Self::Nearest { .. } => f.write_str("the nearest that can be used at all"),
        }
    }
}

/// Why a member was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the Display texts say it")]
pub enum Rejection {
    Ourselves,
    NotUp,
    NotReadable(MemberState),
    NotAVoter,
    Hidden,
    TooFarBehind { theirs: OpTime, oldest: OpTime },
    LargerDelay,
    BuildsNoIndexes,
    NotAhead { theirs: OpTime, ours: OpTime },
    Denylisted { until: Duration },
    NotPrimary,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ourselves => f.write_str("it is ourselves"),
            Self::NotUp => f.write_str("it is not up"),
            Self::NotReadable(state) => write!(f, "its state is {state}"),
            Self::NotAVoter => f.write_str("we are a voter and it is not"),
            Self::Hidden => f.write_str("it is hidden"),
            Self::TooFarBehind { theirs, oldest } => {
                write!(f, "it is at {theirs}, too far behind {oldest}")
            }
            Self::LargerDelay => f.write_str("its delay is larger than ours"),
            Self::BuildsNoIndexes => f.write_str("it does not build indexes"),
            Self::NotAhead { theirs, ours } => write!(f, "it is at {theirs}, not ahead of {ours}"),
            Self::Denylisted { .. } => f.write_str("it is denylisted"),
            Self::NotPrimary => f.write_str("it is not the primary and chaining is off"),
        }
    }
}

impl View<'_> {
    /// Chooses a source. `forced` is the target of `replSetSyncFrom`, which is accepted without checks.
    pub fn choose(&self, forced: Option<usize>) -> Choice {
        if let Some(to) = forced.filter(|index| *index < self.members.len()) {
            return Choice::Switch { to, why: SwitchReason::ByRequest };
        }
        if !self.config.chaining_allowed {
            return self.choose_primary();
        }
        for attempt in [1, 2] {
            let fits = |index: &usize| self.rejection(*index, attempt == 1, true).is_none();
            let nearest = (0..self.members.len()).filter(fits).reduce(|a, b| self.nearer(a, b));
            if let Some(to) = nearest {
                return Choice::Switch { to, why: SwitchReason::Nearest { attempt } };
            }
        }
        let rejected = (0..self.members.len())
            .filter(|index| *index != self.self_index)
            .filter_map(|index| Some((self.host(index)?, self.rejection(index, false, true)?)))
            .collect();
        Choice::Wait { rejected }
    }

    fn choose_primary(&self) -> Choice {
        let mut rejected = Vec::new();
        for index in (0..self.members.len()).filter(|index| *index != self.self_index) {
            let rejection = if self.primary_index == Some(index) {
                self.rejection(index, false, true)
            } else {
                Some(Rejection::NotPrimary)
            };
            match rejection {
                None => return Choice::Switch { to: index, why: SwitchReason::PrimaryOnly },
                Some(why) => rejected.extend(self.host(index).map(|host| (host, why))),
            }
        }
        Choice::Wait { rejected }
    }

    /// The nearer of two members; the primary if they are equally near.
    fn nearer(&self, a: usize, b: usize) -> usize {
        let ping = |index: usize| self.pings.get(index).copied().flatten().unwrap_or_default();
        let (ping_a, ping_b) = (ping(a), ping(b));
        let primary = self.primary_index.filter(|index| [a, b].contains(index));
        match primary {
            Some(primary) if ping_a.abs_diff(ping_b) <= PING_THRESHOLD => primary,
            _ if ping_b < ping_a => b,
            _ => a,
        }
    }

    fn host(&self, index: usize) -> Option<HostAndPort> {
        self.config.members.get(index).map(|member| member.host.clone())
    }

    /// Why a member is not suitable as our source; `None` if it is.
    pub(crate) fn rejection(&self, index: usize, strict: bool, fresh: bool) -> Option<Rejection> {
        if index == self.self_index {
            return Some(Rejection::Ourselves);
        }
        let own = self.config.members.get(self.self_index)?;
        let (config, data) = (self.config.members.get(index)?, self.members.get(index)?);
        if !data.up {
            return Some(Rejection::NotUp);
        }
        if !data.state.is_readable() {
            return Some(Rejection::NotReadable(data.state));
        }
        if strict {
            if own.votes && !config.votes {
                return Some(Rejection::NotAVoter);
            }
            if config.hidden {
                return Some(Rejection::Hidden);
            }
            let oldest = self.oldest_acceptable();
            if fresh && data.applied() < oldest {
                return Some(Rejection::TooFarBehind { theirs: data.applied(), oldest });
            }
            if config.delay_secs > own.delay_secs {
                return Some(Rejection::LargerDelay);
            }
        }
        if own.build_indexes && !config.build_indexes {
            return Some(Rejection::BuildsNoIndexes);
        }
        let (theirs, ours) = (data.applied(), self.last_fetched);
        // New entries start at the primary, so a primary at our own position is also acceptable.
        let ahead = theirs > ours || (data.state == MemberState::Primary && theirs == ours);
        if fresh && !ahead {
            return Some(Rejection::NotAhead { theirs, ours });
        }
        let until = self.denylist.until(&config.host, self.now)?;
        Some(Rejection::Denylisted { until })
    }

    fn oldest_acceptable(&self) -> OpTime {
        let primary = self.primary_index.and_then(|index| self.members.get(index));
        let Some(applied) = primary.map(MemberData::applied) else { return OpTime::NULL };
        match applied.ts.secs().checked_sub(LAG_SECS_MAX) {
            Some(secs) => OpTime::new(protocol::Timestamp::new(secs, 0), applied.t),
            None => OpTime::NULL,
        }
    }

    /// True once every member has replied or was found down; choosing earlier would favour the fastest to reply.
    pub(crate) fn has_heard_of_all(&self) -> bool {
        let others = self.members.iter().enumerate().filter(|(index, _)| *index != self.self_index);
        others.into_iter().all(|(_, member)| member.tried)
    }
}

/// The metadata in the source's last batch.
#[derive(Clone, Copy, Debug)]
pub struct SourceSays {
    /// `$replData.isPrimary`.
    pub is_primary: bool,
    /// `$oplogQueryData.lastOpApplied`.
    pub applied: OpTime,
    /// `$oplogQueryData.syncSourceIndex`.
    pub sync_source_index: i64,
}

/// Why a source is left.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the Display texts say it")]
pub enum LeaveReason {
    Requested { target: HostAndPort },
    NotInConfig,
    NewPrimary { primary: HostAndPort },
    NotAhead { source: OpTime, ours: OpTime },
    Cycle,
    Lags { source: OpTime, best: OpTime, host: HostAndPort },
    BetterOne { host: HostAndPort, rejection: Rejection },
    MuchNearer { host: HostAndPort, ping: Duration, source_ping: Duration },
}

impl fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested { target } => write!(f, "{target} was requested as sync source"),
            Self::NotInConfig => f.write_str("it is not in our config"),
            Self::NewPrimary { primary } => write!(f, "chaining is off and {primary} is primary"),
            Self::NotAhead { source, ours } => write!(
                f,
                "it is neither primary nor syncing from anybody, and at {source} not ahead of {ours}"
            ),
            Self::Cycle => f.write_str("it syncs from us and is not ahead of us"),
            Self::Lags { source, best, host } => {
                write!(f, "it is at {source}, more than {LAG_SECS_MAX} s behind {host} at {best}")
            }
            Self::BetterOne { host, rejection } => {
                write!(f, "{host} fits better than it: {rejection}")
            }
            Self::MuchNearer { host, ping, source_ping } => {
                write!(f, "{host} answers in {ping:?}, it in {source_ping:?}")
            }
        }
    }
}

impl View<'_> {
    /// Whether to leave the source after a batch, and why.
    pub fn leave(
        &self,
        source: &HostAndPort,
        forced: Option<usize>,
        says: SourceSays,
    ) -> Option<LeaveReason> {
        if let Some(target) = forced.and_then(|index| self.host(index)) {
            return Some(LeaveReason::Requested { target });
        }
        let Some(index) = self.config.index_of_host(source) else {
            return Some(LeaveReason::NotInConfig);
        };
        let new_primary = self.primary_index.filter(|primary| *primary != index);
        if let Some(primary) = new_primary.and_then(|primary| self.host(primary))
            && !self.config.chaining_allowed
            && !says.is_primary
        {
            return Some(LeaveReason::NewPrimary { primary });
        }
        let heard = self.members.get(index).map(MemberData::applied).unwrap_or_default();
        let theirs = says.applied.max(heard);
        let ours = self.last_fetched;
        if says.sync_source_index == -1 && theirs <= ours && !says.is_primary {
            return Some(LeaveReason::NotAhead { source: theirs, ours });
        }
        let syncs_from_us = usize::try_from(says.sync_source_index) == Ok(self.self_index);
        if syncs_from_us && theirs <= ours {
            return Some(LeaveReason::Cycle);
        }
        self.leave_for_another(index, theirs)
    }

    fn leave_for_another(&self, source: usize, theirs: OpTime) -> Option<LeaveReason> {
        let others = || (0..self.members.len()).filter(|index| *index != source);
        let fits = |index: usize| self.rejection(index, true, true).is_none();
        for index in others() {
            let best = self.members.get(index)?.applied();
            let lags = theirs.ts.secs().saturating_add(LAG_SECS_MAX) < best.ts.secs();
            if lags && fits(index) {
                return Some(LeaveReason::Lags { source: theirs, best, host: self.host(index)? });
            }
        }
        // A source that is down according to heartbeats may still send batches: the fetcher detects failures itself.
        let rejection = self.rejection(source, true, false)?;
        let host = others().find(|index| fits(*index)).and_then(|index| self.host(index))?;
        Some(LeaveReason::BetterOne { host, rejection })
    }

    /// Whether to switch to a much nearer member. Checked rarely, since each switch costs a reconnect.
    pub(crate) fn much_nearer(&self, source: &HostAndPort) -> Option<LeaveReason> {
        let own = self.config.members.get(self.self_index)?;
        if own.delay_secs > 0 || !self.config.chaining_allowed {
            return None;
        }
        let source_ping = self.pings.get(self.config.index_of_host(source)?).copied().flatten()?;
        (0..self.members.len()).find_map(|index| {
            let ping = self.pings.get(index).copied().flatten()?;
            let nearer = source_ping.saturating_sub(ping) > PING_THRESHOLD;
            let fits = nearer && self.rejection(index, true, true).is_none();
            let host = fits.then(|| self.host(index)).flatten()?;
            Some(LeaveReason::MuchNearer { host, ping, source_ping })
        })
    }
}

/// Hosts that must not be chosen for a while.
#[derive(Clone, Debug, Default)]
pub struct Denylist(BTreeMap<HostAndPort, Duration>);

impl Denylist {
    /// Adds a host until the given time.
    pub fn add(&mut self, host: HostAndPort, until: Duration) {
        self.0.insert(host, until);
    }

    /// Until when a host is denylisted, if it is.
    pub fn until(&self, host: &HostAndPort, now: Duration) -> Option<Duration> {
        self.0.get(host).copied().filter(|until| *until > now)
    }

    /// Clears the list: the config changed, or an operator selected a source.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// `maxSyncSourceLagSecs`.
const LAG_SECS_MAX: u32 = 30;
/// `changeSyncSourceThresholdMillis`: smaller differences are ignored.
const PING_THRESHOLD: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;

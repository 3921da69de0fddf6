//! Logical sessions: remembered while they are used, forgotten after 30 minutes.
//!
//! A secondary only remembers them; the primary writes them to `config.system.sessions`. Here a session only has
//! cursors, which killSessions and endSessions close.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bson::{RawBsonRef, RawDocument, spec::BinarySubtype};
use parking_lot::Mutex;
use protocol::ErrorCode;

use crate::{
    auth::{Who, action::action, privilege::Target, user::Digest},
    error::Failure,
};

/// `logicalSessionTimeoutMinutes`.
pub(crate) const TIMEOUT_MINUTES: i32 = 30;
const TIMEOUT: Duration = Duration::from_secs(60 * 30);
/// mongod's `maxSessions`. Above it sessions are not remembered, which only affects statistics.
const SESSIONS_MAX: usize = 1_000_000;
/// Expired sessions are removed when the number has doubled since the last sweep, but not below this number.
const SWEEP_MIN: usize = 1024;

/// A session: the UUID of its `lsid` and its user. The same UUID of another user is another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId {
    /// `lsid.id`.
    pub id: [u8; 16],
    /// `lsid.uid`.
    pub user: Digest,
}

/// An `lsid` as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lsid {
    id: [u8; 16],
    user: Option<Digest>,
}

impl Lsid {
    /// Parses it; `of` is the name of the containing document.
    pub fn parse(lsid: &RawDocument, of: &str) -> Result<Self, Failure> {
        let uuid = || {
            let text = "uuid must be a 16-byte binary field with UUID (4) subtype";
            Failure::said(ErrorCode::InvalidUUID, text)
        };
        let (mut id, mut user) = (None, None);
        for field in lsid.iter() {
            let (name, value) =
                field.map_err(|error| Failure::said(ErrorCode::InvalidBSON, error.to_string()))?;
            match (name.as_str(), value) {
                ("id", RawBsonRef::Binary(bytes)) if bytes.subtype == BinarySubtype::Uuid => {
                    id = Some(bytes.bytes.try_into().map_err(|_| uuid())?);
                }
                ("id", RawBsonRef::Binary(_)) => return Err(uuid()),
                ("uid", RawBsonRef::Binary(bytes)) => user = Some(digest(bytes.bytes)?),
                (name @ ("id" | "uid"), other) => {
                    return Err(Failure::wrong_type(format!("{of}.{name}"), other, &["binData"]));
                }
                ("txnNumber" | "txnUUID", _) => {}
                (name, _) => return Err(Failure::unknown_field(format!("{of}.{name}"))),
            }
        }
        let id = id.ok_or_else(|| Failure::missing(format!("{of}.id")))?;
        Ok(Self { id, user })
    }

    /// The session of the client, or of another user if the client may impersonate.
    pub fn of(self, who: &Who) -> Result<SessionId, Failure> {
        let own = who.digest();
        let user = self.user.unwrap_or(own);
        if user != own && !who.may(Target::Cluster, action("impersonate")) {
            let text = "Unauthorized to set user digest in LogicalSessionId";
            return Err(Failure::said(ErrorCode::Unauthorized, text));
        }
        Ok(SessionId { id: self.id, user })
    }
}

/// Parses a user digest.
pub fn digest(bytes: &[u8]) -> Result<Digest, Failure> {
    bytes.try_into().map_err(|_| {
        let text = format!("Unsupported SHA256Block hash length: {}", bytes.len());
        Failure::said(ErrorCode::UnsupportedFormat, text)
    })
}

/// The sessions that a command refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// This one.
    One(SessionId),
    /// All sessions of a user.
    Of(Digest),
}

impl Which {
    /// True if the session is one of them.
    pub fn fits(&self, session: &SessionId) -> bool {
        match self {
            Self::All => true,
            Self::One(id) => id == session,
            Self::Of(user) => session.user == *user,
        }
    }
}

/// The sessions in use.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last_use: HashMap<SessionId, Instant>,
    sweep_at: usize,
}

impl Sessions {
    /// Records the use of a session.
    pub fn touch(&self, id: SessionId, now: Instant) {
        let mut known = self.0.lock();
        if known.last_use.len() >= known.sweep_at.max(SWEEP_MIN) {
            known.last_use.retain(|_, last| now.duration_since(*last) < TIMEOUT);
            known.sweep_at = known.last_use.len() * 2;
        }
        if known.last_use.len() < SESSIONS_MAX {
            known.last_use.insert(id, now);
        }
    }

    /// Ends these sessions.
    pub fn end(&self, which: &Which) {
        let mut known = self.0.lock();
        match which {
            Which::One(id) => {
                known.last_use.remove(id);
            }
            which => known.last_use.retain(|id, _| !which.fits(id)),
        }
    }

    /// All sessions with the time since their last use.
    pub fn list(&self, now: Instant) -> Vec<(SessionId, Duration)> {
        let known = self.0.lock();
        known.last_use.iter().map(|(id, last)| (*id, now.duration_since(*last))).collect()
    }

    /// `activeSessionsCount`.
    pub fn count(&self) -> usize {
        self.0.lock().last_use.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_sessions_are_forgotten() {
        let sessions = Sessions::default();
        let start = Instant::now();
        let id = |n: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_le_bytes());
            SessionId { id, user: [0; 32] }
        };
        for n in 0..1024 {
            sessions.touch(id(n), start);
        }
        sessions.touch(id(5000), start + TIMEOUT);
        assert_eq!(sessions.count(), 1);
        sessions.end(&Which::One(id(5000)));
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn a_session_is_its_users() {
        let sessions = Sessions::default();
        let of = |user| SessionId { id: [7; 16], user: [user; 32] };
        for user in 1..=3 {
            sessions.touch(of(user), Instant::now());
        }
        sessions.end(&Which::One(of(1)));
        sessions.end(&Which::Of([2; 32]));
        let left = sessions.list(Instant::now());
        assert_eq!(left.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [of(3)]);
        sessions.end(&Which::All);
        assert_eq!(sessions.count(), 0);
    }
}

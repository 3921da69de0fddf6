//! Logical sessions: known while they are used, forgotten after 30 minutes.
//!
//! A secondary only remembers them; the primary writes them to `config.system.sessions`. What hangs on a
//! session here is its cursors, which killSessions and endSessions close.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::auth::user::Digest;

/// `logicalSessionTimeoutMinutes`.
pub const TIMEOUT_MINUTES: i32 = 30;
const TIMEOUT: Duration = Duration::from_secs(60 * 30);
/// mongod's `maxSessions`. Beyond it sessions are not remembered, which costs nothing but statistics.
const SESSIONS_MAX: usize = 1_000_000;
/// Expired sessions are swept when the number has doubled since the last sweep, at least this many.
const SWEEP_MIN: usize = 1024;

/// The UUID of an `lsid`.
pub type SessionId = [u8; 16];

/// The sessions in use.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last_use: HashMap<SessionId, (Digest, Instant)>,
    sweep_at: usize,
}

impl Sessions {
    /// A request of this user came with this session.
    pub fn touch(&self, id: SessionId, user: Digest, now: Instant) {
        let mut known = self.0.lock();
        if known.last_use.len() >= known.sweep_at.max(SWEEP_MIN) {
            known.last_use.retain(|_, (_, last)| now.duration_since(*last) < TIMEOUT);
            known.sweep_at = known.last_use.len() * 2;
        }
        if known.last_use.len() < SESSIONS_MAX {
            known.last_use.insert(id, (user, now));
        }
    }

    /// The session is over.
    pub fn end(&self, id: &SessionId) {
        self.0.lock().last_use.remove(id);
    }

    /// All sessions are over.
    pub fn end_all(&self) {
        self.0.lock().last_use.clear();
    }

    /// All sessions, whose each is, and how long ago it was used.
    pub fn list(&self, now: Instant) -> Vec<(SessionId, Digest, Duration)> {
        let known = self.0.lock();
        let shown = |(id, (user, last)): (&SessionId, &(Digest, Instant))| {
            (*id, *user, now.duration_since(*last))
        };
        known.last_use.iter().map(shown).collect()
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
            id
        };
        for n in 0..1024 {
            sessions.touch(id(n), [0; 32], start);
        }
        sessions.touch(id(5000), [0; 32], start + TIMEOUT);
        assert_eq!(sessions.count(), 1);
        sessions.end(&id(5000));
        assert_eq!(sessions.count(), 0);
    }
}

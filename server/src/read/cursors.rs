//! Open cursors.
//!
//! U1 Between two batches a cursor holds a position, never a snapshot of the store.
//! U2 A running cursor is not in the map: another request for it is told that it is in use, and a kill takes effect
//!    when the batch is done.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use protocol::{ErrorCode, Namespace};

use crate::{
    auth::{pipeline::Need, user::UserName},
    context::Call,
    error::Failure,
    read::batch::BatchWriter,
    sessions::{SessionId, Which},
};

/// The source of a cursor's documents.
pub trait Reading: Send {
    /// Fills a batch with at most `limit` documents.
    fn fill(
        &mut self,
        call: &Call,
        batch: &mut BatchWriter,
        limit: usize,
    ) -> Result<Filled, Failure>;

    /// Fields of a batch besides its documents.
    fn remarks(&self) -> Remarks {
        Remarks::default()
    }
}

/// How a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// There may be more.
    More,
    /// The cursor is at its final end.
    Exhausted,
    /// There is nothing more at present: a tailable cursor waits here.
    AtEnd,
}

/// Fields of a batch besides its documents.
#[derive(Debug, Default)]
pub struct Remarks {
    /// The resume token.
    pub resume_token: Option<bson::RawDocumentBuf>,
    /// The timestamp of a snapshot read.
    pub at_cluster_time: Option<protocol::Timestamp>,
}

/// An open cursor.
pub struct Cursor {
    /// Its id.
    pub id: i64,
    /// The namespace in its replies.
    pub ns: Namespace,
    /// Its session.
    pub session: Option<SessionId>,
    /// The users who opened it: nobody else may use it.
    pub owners: Vec<UserName>,
    /// The privileges that they needed, and need for each further batch.
    pub needs: Arc<[Need]>,
    /// It has no idle timeout.
    pub no_timeout: bool,
    /// It stays open at the end and waits for more.
    pub tailable: bool,
    /// A getMore at the end waits for some time.
    pub await_data: bool,
    /// Number of documents returned so far.
    pub returned: u64,
    /// The source of its documents.
    pub reading: Box<dyn Reading>,
}

/// The source of a cursor that was ended by a rollback.
struct Ended;

impl Reading for Ended {
    fn fill(&mut self, call: &Call, _: &mut BatchWriter, _: usize) -> Result<Filled, Failure> {
        let text = if call.profile().has_written {
            "The catalog was closed and reopened"
        } else {
            "Database epoch changed due to a database-level event."
        };
        Err(Failure::said(ErrorCode::QueryPlanKilled, text))
    }
}

enum Slot {
    Idle {
        cursor: Box<Cursor>,
        since: Instant,
    },
    /// Taken out of the map by a getMore.
    Running {
        ns: Namespace,
        owners: Vec<UserName>,
        needs: Arc<[Need]>,
        session: Option<SessionId>,
        killed: bool,
    },
}

/// All open cursors.
#[derive(Default)]
pub struct Cursors {
    slots: Mutex<HashMap<i64, Slot>>,
    /// Number of cursors closed by the idle timeout.
    pub timed_out: crate::metrics::Counter,
}

impl Cursors {
    /// An id for a new cursor.
    pub(crate) fn new_id(&self) -> i64 {
        loop {
            let id = i64::from_le_bytes(rand::random::<[u8; 8]>()) & i64::MAX;
            if id != 0 && !self.slots.lock().contains_key(&id) {
                return id;
            }
        }
    }

    /// Stores a cursor until its next getMore, unless it was killed meanwhile.
    pub fn keep(&self, cursor: Box<Cursor>, now: Instant) {
        let mut slots = self.slots.lock();
        if let Some(Slot::Running { killed: true, .. }) = slots.get(&cursor.id) {
            slots.remove(&cursor.id);
            return;
        }
        slots.insert(cursor.id, Slot::Idle { cursor, since: now });
    }

    /// Takes a cursor out for a getMore.
    pub fn take(&self, id: i64) -> Result<Box<Cursor>, Failure> {
        let not_found =
            || Failure::said(ErrorCode::CursorNotFound, format!("cursor id {id} not found"));
        let mut slots = self.slots.lock();
        match slots.remove(&id) {
            None => Err(not_found()),
            Some(running @ Slot::Running { .. }) => {
                slots.insert(id, running);
                let text = format!("cursor id {id} is already in use");
                Err(Failure::said(ErrorCode::CursorInUse, text))
            }
            Some(Slot::Idle { cursor, .. }) => {
                let (session, owners) = (cursor.session, cursor.owners.clone());
                let (ns, needs) = (cursor.ns.clone(), cursor.needs.clone());
                slots.insert(id, Slot::Running { ns, owners, needs, session, killed: false });
                Ok(cursor)
            }
        }
    }

    /// Removes a cursor that was taken out.
    pub fn forget(&self, id: i64) {
        self.slots.lock().remove(&id);
    }

    /// True if a running cursor was killed.
    pub(crate) fn is_killed(&self, id: i64) -> bool {
        matches!(self.slots.lock().get(&id), Some(Slot::Running { killed: true, .. }))
    }

    /// The users who opened a cursor, and the privileges they need to use it.
    pub fn terms(&self, id: i64) -> Option<(Vec<UserName>, Arc<[Need]>)> {
        match self.slots.lock().get(&id)? {
            Slot::Idle { cursor, .. } => Some((cursor.owners.clone(), cursor.needs.clone())),
            Slot::Running { owners, needs, .. } => Some((owners.clone(), needs.clone())),
        }
    }

    /// The namespace of a cursor and the users who opened it.
    pub fn whose(&self, id: i64) -> Option<(Namespace, Vec<UserName>)> {
        match self.slots.lock().get(&id)? {
            Slot::Idle { cursor, .. } => Some((cursor.ns.clone(), cursor.owners.clone())),
            Slot::Running { ns, owners, .. } => Some((ns.clone(), owners.clone())),
        }
    }

    /// Kills a cursor; false if there is none with this id.
    pub fn kill(&self, id: i64) -> bool {
        let mut slots = self.slots.lock();
        match slots.get_mut(&id) {
            None => false,
            Some(Slot::Running { killed, .. }) => {
                *killed = true;
                true
            }
            Some(Slot::Idle { .. }) => {
                slots.remove(&id);
                true
            }
        }
    }

    /// Ends all cursors because of a rollback. The next getMore of each fails.
    pub(crate) fn end_by_rollback(&self) {
        for slot in self.slots.lock().values_mut() {
            match slot {
                Slot::Idle { cursor, .. } => cursor.reading = Box::new(Ended),
                Slot::Running { killed, .. } => *killed = true,
            }
        }
    }

    /// Kills the cursors of these sessions.
    pub(crate) fn kill_sessions(&self, which: &Which) {
        let fits = |own: &Option<SessionId>| own.as_ref().is_some_and(|own| which.fits(own));
        self.slots.lock().retain(|_, slot| match slot {
            Slot::Idle { cursor, .. } => !fits(&cursor.session),
            Slot::Running { session, killed, .. } => {
                *killed |= fits(session);
                true
            }
        });
    }

    /// Closes cursors that were idle for too long.
    pub fn expire(&self, now: Instant, timeout: Duration) {
        let mut gone = 0;
        self.slots.lock().retain(|_, slot| match slot {
            Slot::Idle { cursor, since } => {
                let keep = cursor.no_timeout || now.duration_since(*since) < timeout;
                gone += u64::from(!keep);
                keep
            }
            Slot::Running { .. } => true,
        });
        self.timed_out.add(gone);
    }

    /// Number of open cursors: all, those without a timeout, running ones.
    pub fn counts(&self) -> (usize, usize, usize) {
        let slots = self.slots.lock();
        let running = slots.values().filter(|slot| matches!(slot, Slot::Running { .. })).count();
        let immortal = slots
            .values()
            .filter(|slot| matches!(slot, Slot::Idle { cursor, .. } if cursor.no_timeout))
            .count();
        (slots.len(), immortal, running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl Reading for Nothing {
        fn fill(&mut self, _: &Call, _: &mut BatchWriter, _: usize) -> Result<Filled, Failure> {
            Ok(Filled::Exhausted)
        }
    }

    fn cursor(id: i64, session: Option<SessionId>) -> Box<Cursor> {
        Box::new(Cursor {
            id,
            ns: Namespace::new("a", "b"),
            session,
            owners: Vec::new(),
            needs: [].into(),
            no_timeout: false,
            tailable: false,
            await_data: false,
            returned: 0,
            reading: Box::new(Nothing),
        })
    }

    #[test]
    fn a_cursor_that_runs_is_in_use_and_can_be_killed() {
        let cursors = Cursors::default();
        let now = Instant::now();
        cursors.keep(cursor(5, None), now);
        let taken = cursors.take(5).unwrap();
        assert!(cursors.take(5).is_err_and(|e| e.to_string().contains("in use")));
        assert!(cursors.kill(5));
        assert!(cursors.is_killed(5));
        cursors.keep(taken, now);
        assert!(cursors.take(5).is_err_and(|e| e.to_string().contains("not found")));
    }

    #[test]
    fn idle_cursors_and_those_of_a_session_end() {
        let cursors = Cursors::default();
        let now = Instant::now();
        let session = |user| SessionId { id: [1; 16], user: [user; 32] };
        cursors.keep(cursor(1, Some(session(1))), now);
        cursors.keep(cursor(2, None), now);
        cursors.kill_sessions(&Which::One(session(2)));
        assert_eq!(cursors.counts().0, 2);
        cursors.kill_sessions(&Which::One(session(1)));
        assert_eq!(cursors.counts().0, 1);
        cursors.expire(now + Duration::from_secs(9), Duration::from_secs(10));
        assert_eq!(cursors.counts().0, 1);
        cursors.expire(now + Duration::from_secs(10), Duration::from_secs(10));
        assert_eq!((cursors.counts().0, cursors.timed_out.get()), (0, 1));
    }
}

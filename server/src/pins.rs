//! Connections pinned to a timestamp by their appName, for tools that cannot set a read concern.
//!
//! ```text
//!   appName=@14:03   appName=@2026-11-16T12:00:00Z   appName=@-15m   appName=@Timestamp(1794792414,3)   appName=@now
//! ```
//!
//! A time without a zone is in this machine's zone. The log shows how it was interpreted.
//!
//! mongodump and similar tools always send their own names. But their driver sends the region of a cloud function,
//! which it takes from the environment (`FUNCTION_NAME=x FUNCTION_REGION=@-15m`). So a region that begins with `@`
//! works, too.
//!
//! Every read of such a connection sees that timestamp, whatever its read concern. Connections of one program (same
//! host and same client metadata) share the timestamp as long as one of them is open: an offset means the same to all
//! connections of a mongodump.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use bson::DateTime;
use parking_lot::Mutex;
use protocol::{
    ErrorCode, RawDoc, Timestamp,
    moment::{self, Zone},
};
use storage::{StorageError, Store};

use crate::error::Failure;

/// The pinned timestamps, and those that a rollback has invalidated.
#[derive(Default)]
pub struct Pins {
    open: Mutex<HashMap<Program, Weak<Pin>>>,
    /// The pins at the beginning of a rollback. Their connections are closed before the common point is known.
    at_rollback: Mutex<Vec<(Program, Timestamp, Weak<Pin>)>>,
    lost: Mutex<HashMap<Program, Timestamp>>,
}

/// A timestamp shared by connections.
pub struct Pin {
    /// The timestamp.
    pub ts: Timestamp,
    /// Keeps it readable once an authorized reader is known; a future timestamp needs no pin yet.
    held: Mutex<Option<storage::Pin>>,
    /// True if a rollback has invalidated the timestamp.
    lost: AtomicBool,
}

impl Pin {
    /// Keeps the timestamp readable from now on.
    pub fn hold(&self, store: &Store) -> Result<(), Failure> {
        if self.lost.load(Ordering::Relaxed) {
            return Err(lost(self.ts));
        }
        let mut held = self.held.lock();
        if held.is_none() {
            *held = match store.pin(self.ts) {
                Ok(held) => Some(held),
                Err(StorageError::NotYetApplied { .. }) => None,
                Err(error) => return Err(refused(ErrorCode::SnapshotTooOld, &error, store)),
            };
        }
        Ok(())
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin").field("ts", &self.ts).finish()
    }
}

type Program = (IpAddr, Vec<u8>);

/// Maximum number of remembered programs whose timestamp was invalidated.
const LOST_MAX: usize = 10_000;

impl Pins {
    /// Remembers the current pins, because the rollback closes their connections.
    pub fn rollback_begins(&self) {
        let open = self.open.lock();
        let open = open.iter().filter_map(|(program, pin)| {
            Some((program.clone(), pin.upgrade()?.ts, Weak::clone(pin)))
        });
        *self.at_rollback.lock() = open.collect();
    }

    /// Invalidates the pins after `after`. A program that had such a pin cannot get the same timestamp again.
    pub fn past_is_lost(&self, after: Timestamp) {
        let mut lost = self.lost.lock();
        for (program, ts, pin) in self.at_rollback.lock().drain(..) {
            if ts <= after {
                continue;
            }
            if let Some(pin) = pin.upgrade() {
                pin.lost.store(true, Ordering::Relaxed);
            }
            if lost.len() < LOST_MAX {
                lost.insert(program, ts);
            }
        }
    }

    /// The timestamp that the client's metadata asks for, if any. It is not pinned yet.
    pub fn pin(
        &self,
        store: &Store,
        cluster_time: Timestamp,
        from: IpAddr,
        metadata: &RawDoc,
    ) -> Result<Option<Arc<Pin>>, Failure> {
        let Some(text) = wanted(metadata) else { return Ok(None) };
        let (now, zone) = (DateTime::now(), Zone::system());
        let moment = moment::Moment::read(text, now, &zone)
            .map_err(|error| refused(ErrorCode::BadValue, &error, store))?;
        let mut pins = self.open.lock();
        pins.retain(|_, pin| pin.strong_count() > 0);
        let program = (from, metadata.as_bytes().to_vec());
        if let Some(pin) = pins.get(&program).and_then(Weak::upgrade) {
            return Ok(Some(pin));
        }
        let ts = within_window(store, moment, cluster_time, now)?;
        if self.lost.lock().get(&program) == Some(&ts) {
            return Err(lost(ts));
        }
        tracing::info!(target: "NETWORK", ctx = "pins", asked = text, remote = %from, moment = %ts,
            time = zone.shown(ts), zone = zone.name(),
            "A program asks by its appName to read the past; its reads see this moment");
        let pin = Arc::new(Pin { ts, held: Mutex::default(), lost: AtomicBool::new(false) });
        pins.insert(program, Arc::downgrade(&pin));
        Ok(Some(pin))
    }
}

/// The error for a program whose timestamp was invalidated: the same timestamp must not show it different data.
fn lost(ts: Timestamp) -> Failure {
    let text = format!(
        "The moment {ts} ({}) that this program reads was rolled back: the set has another history there. Connect with \
         another appName or from another program to read that one",
        moment::shown(ts)
    );
    Failure::said(ErrorCode::SnapshotUnavailable, text)
}

/// The text after the `@` of an appName or a region. `@scope/name` is a package name, not a timestamp.
fn wanted(metadata: &RawDoc) -> Option<&str> {
    let said = |part: &str, name: &str| {
        let text = metadata.get_document(part).ok()?.get_str(name).ok()?;
        text.strip_prefix('@')
    };
    let text = said("application", "name").or_else(|| said("env", "region"))?;
    let like_a_time = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    (like_a_time || !text.contains('/')).then_some(text)
}

/// Checks that a moment is not before the history window. Reads wait for one that is not applied yet.
fn within_window(
    store: &Store,
    moment: moment::Moment,
    cluster_time: Timestamp,
    now: DateTime,
) -> Result<Timestamp, Failure> {
    let marks = store.watermarks();
    let (oldest, applied) = (marks.oldest(), marks.applied().op_time.ts);
    if store.initial_sync_pending() || applied.is_null() {
        let why = "this node has no data yet, so there is no past to read";
        return Err(Failure::said(ErrorCode::SnapshotUnavailable, why));
    }
    let ts = moment.resolve(now);
    let second = moment::Moment::Ago(std::time::Duration::ZERO).resolve(now).secs();
    if ts > Timestamp::new(second, u32::MAX).max(cluster_time).max(applied) {
        let why = format!("{ts} ({}) lies in the future", Zone::system().shown(ts));
        return Err(refused(ErrorCode::BadValue, &why, store));
    }
    if ts < oldest {
        let why = format!("{ts} ({}) lies before the history window", Zone::system().shown(ts));
        return Err(refused(ErrorCode::SnapshotTooOld, &why, store));
    }
    Ok(match moment {
        // An offset from now means at most the newest applied timestamp.
        moment::Moment::Ago(_) => ts.min(applied),
        moment::Moment::At(_) => ts,
    })
}

fn refused(code: ErrorCode, why: &dyn std::fmt::Display, store: &Store) -> Failure {
    let zone = Zone::system();
    let marks = store.watermarks();
    let (oldest, newest) = (marks.oldest(), marks.applied().op_time.ts);
    let text = format!(
        "This connection asks by its appName (or region) to read the past, and cannot: {why}. Readable are {oldest} ({}) to {newest} ({})",
        zone.shown(oldest),
        zone.shown(newest)
    );
    Failure::said(code, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn a_program_whose_moment_was_rolled_back_gets_no_other_one_under_its_name() {
        let pins = Pins::default();
        let made = |program: &Program, secs: u32| {
            let ts = Timestamp::new(secs, 1);
            let pin = Arc::new(Pin { ts, held: Mutex::default(), lost: AtomicBool::new(false) });
            pins.open.lock().insert(program.clone(), Arc::downgrade(&pin));
            pin
        };
        let here = IpAddr::from([127, 0, 0, 1]);
        let (early, late) = ((here, vec![1]), (here, vec![2]));
        let (stays, goes) = (made(&early, 100), made(&late, 200));
        pins.rollback_begins();
        pins.past_is_lost(Timestamp::new(150, 1));
        assert!(!stays.lost.load(Ordering::Relaxed));
        assert!(goes.lost.load(Ordering::Relaxed), "a connection that stays open is told");
        assert_eq!(pins.lost.lock().get(&late), Some(&Timestamp::new(200, 1)), "and a new one");
        assert_eq!(pins.lost.lock().get(&early), None);
    }

    #[test]
    fn an_app_name_that_begins_with_an_at_sign_is_a_moment_unless_it_is_a_package() {
        let named = |name: &str| RawDoc::from(rawdoc! { "application": { "name": name } });
        assert_eq!(wanted(&named("@-15m")), Some("-15m"));
        assert_eq!(wanted(&named("@yesterday")), Some("yesterday"));
        assert_eq!(wanted(&named("@2026/11/16")), Some("2026/11/16"));
        assert_eq!(wanted(&named("@acme/app")), None);
        assert_eq!(wanted(&named("mongodump")), None);
        let from = |region: &str| {
            let env = rawdoc! { "name": "gcp.func", "region": region };
            RawDoc::from(rawdoc! { "application": { "name": "mongodump" }, "env": env })
        };
        assert_eq!(wanted(&from("@-15m")), Some("-15m"));
        assert_eq!(wanted(&from("us-central1")), None);
        assert_eq!(wanted(&RawDoc::from(rawdoc! {})), None);
    }
}

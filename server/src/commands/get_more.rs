//! getMore: the next batch of a cursor.
//!
//! A tailable cursor at its end waits until something was applied, until its time is over, or, on the oplog, until
//! the commit point has passed the one that the client knows; the reply's metadata then contains the new one.

use std::time::{Duration, Instant};

use base64::{Engine, engine::general_purpose::STANDARD};
use bson::RawDocumentBuf;
use protocol::{ErrorCode, Fields, Namespace, OpTime, RawDoc};
use storage::Store;
use uuid::Uuid;

use super::{Api, Auth, Command, On, OpClass, Run, Waiting};
use crate::{
    auth::{pipeline, requirement},
    context::{Call, Outcome, Reply, Then},
    error::Failure,
    read::{
        batch::{BatchEnd, BatchWriter},
        blocking,
        cursors::{Cursor, Filled},
        first_batch::while_running,
    },
    sessions::SessionId,
};

pub(super) const COMMAND: Command = Command {
    name: "getMore",
    help: "Returns the next documents of a cursor.",
    auth: Auth::User,
    on: On::Serving,
    api: Api::V1,
    takes_concerns: true,
    waits_on_purpose: true,
    class: Some(OpClass::GetMore),
    run: Run::Waiting(|call| Box::pin(run(call)) as Waiting),
    ..Command::DEFAULT
};

/// How long a tailable cursor waits by default.
const AWAIT: Duration = Duration::from_secs(1);

struct Asked {
    id: i64,
    ns: Namespace,
    batch_size: usize,
    known_commit: Option<OpTime>,
}

impl Asked {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let fields = Fields::idl("getMore", &call.body);
        let id = fields.required("getMore")?.long()?;
        let coll = fields.required("collection")?.str()?;
        let batch_size = match fields.optional("batchSize")? {
            Some(size) => usize::try_from(size.non_negative()?).unwrap_or(usize::MAX),
            None => 0,
        };
        let known_commit =
            fields.optional("lastKnownCommittedOpTime")?.map(|at| at.op_time()).transpose()?;
        Ok(Self {
            id,
            ns: Namespace::new(&call.db, coll),
            batch_size: if batch_size == 0 { usize::MAX } else { batch_size },
            known_commit,
        })
    }
}

async fn run(call: Call) -> Outcome {
    let asked = Asked::parse(&call)?;
    if call.who.is_restricted() {
        check_rights(&call, &asked)?;
    }
    let cursor = call.node().cursors.take(asked.id)?;
    let guard = Taken { call: &call, id: asked.id, done: false };
    if let Err(failure) = check_owner(&call, &asked, &cursor) {
        guard.put_back(cursor);
        return Err(failure);
    }
    let (cursor, batch, filled) = next_batch(&call, &asked, cursor).await?;
    let over = filled == Filled::Exhausted || filled == Filled::AtEnd && !cursor.tailable;
    let remarks = cursor.reading.remarks();
    let end = BatchEnd {
        id: if over { 0 } else { asked.id },
        ns: cursor.ns.as_str(),
        resume_token: remarks.resume_token,
        at_cluster_time: remarks.at_cluster_time,
    };
    let body = batch.finish(&end)?;
    if over {
        return Ok(body.into());
    }
    guard.put_back(cursor);
    Ok(Reply { then: Then::Again(next_request(&call)), ..Reply::from(body) })
}

/// Checks that the client opened the cursor and still has the privileges for it. A missing cursor is reported to
/// everybody.
fn check_rights(call: &Call, asked: &Asked) -> Result<(), Failure> {
    // The localhost exception does not allow cursors.
    if call.who.users().is_empty() {
        return Err(call.unauthorized());
    }
    requirement::term(call)?;
    let Some((owners, needs)) = call.node().cursors.terms(asked.id) else { return Ok(()) };
    let refused = |text| Err(Failure::said(ErrorCode::Unauthorized, text));
    if owners != call.who.names() {
        return refused(format!(
            "cursor id {} was not created by the authenticated user",
            asked.id
        ));
    }
    if !pipeline::met(&call.who, &needs) {
        return refused(format!("not authorized for getMore with cursor id {}", asked.id));
    }
    Ok(())
}

/// A session as shown in errors.
fn shown(session: SessionId, call: &Call) -> String {
    let (id, user) = (Uuid::from_bytes(session.id), STANDARD.encode(session.user));
    let end = if call.profile().sessions_show_transactions { " -  - " } else { "" };
    format!("{id} - {user}{end}")
}

fn check_owner(call: &Call, asked: &Asked, cursor: &Cursor) -> Result<(), Failure> {
    if cursor.ns != asked.ns {
        let text = format!(
            "Requested getMore on namespace '{}', but cursor belongs to a different namespace {}",
            asked.ns, cursor.ns
        );
        return Err(Failure::said(ErrorCode::Unauthorized, text));
    }
    let refused = |code, text: String| Err(Failure::said(ErrorCode::from_code(code), text));
    match (cursor.session, call.lsid) {
        (Some(own), Some(other)) if own != other => refused(
            50738,
            format!(
                "Cannot run getMore on cursor {}, which was created in session {}, in session {}",
                cursor.id,
                shown(own, call),
                shown(other, call)
            ),
        ),
        (Some(own), None) => refused(
            50737,
            format!(
                "Cannot run getMore on cursor {}, which was created in session {}, without an lsid",
                cursor.id,
                shown(own, call)
            ),
        ),
        (None, Some(_)) => refused(
            50736,
            format!(
                "Cannot run getMore on cursor {}, which was not created in a session, in a session",
                cursor.id
            ),
        ),
        _ => Ok(()),
    }
}

/// Fills a batch, waiting at the end of a tailable cursor.
async fn next_batch(
    call: &Call,
    asked: &Asked,
    mut cursor: Box<Cursor>,
) -> Result<(Box<Cursor>, BatchWriter, Filled), Failure> {
    let store = call.node().store()?.clone();
    let deadline = call.started + call.max_time.unwrap_or(AWAIT);
    let mut applied = store.watermarks().watch_applied();
    loop {
        applied.mark_unchanged();
        let (back, batch, filled) = fill(call, asked.batch_size, cursor).await?;
        cursor = back;
        let empty = filled == Filled::AtEnd && batch.count() == 0;
        let waits = empty && cursor.tailable && cursor.await_data;
        if !waits || commit_point_passed(&store, asked) || Instant::now() >= deadline {
            cursor.returned += batch.count() as u64;
            return Ok((cursor, batch, filled));
        }
        let mut stable = store.watermarks().watch_stable();
        let news = async {
            tokio::select! {
                _ = applied.changed() => {}
                _ = stable.changed(), if asked.known_commit.is_some() => {}
            }
        };
        // A timeout is answered with an empty batch.
        let _ = tokio::time::timeout_at(deadline.into(), news).await;
    }
}

async fn fill(
    call: &Call,
    limit: usize,
    mut cursor: Box<Cursor>,
) -> Result<(Box<Cursor>, BatchWriter, Filled), Failure> {
    let inner = Call {
        max_time: if cursor.await_data { None } else { call.max_time },
        cursor: Some(cursor.id),
        ..call.clone()
    };
    blocking::run(call, move || {
        let mut batch = BatchWriter::next(&inner.node().reply_buffers);
        let filled = cursor
            .reading
            .fill(&inner, &mut batch, limit)
            .map_err(|failure| while_running(failure, &inner, &cursor.ns))?;
        Ok((cursor, batch, filled))
    })
    .await
}

/// True if the reply would contain a newer commit point than the client knows.
fn commit_point_passed(store: &Store, asked: &Asked) -> bool {
    asked.known_commit.is_some_and(|known| store.watermarks().commit_point().op_time > known)
}

/// The same request with the current commit point.
fn next_request(call: &Call) -> RawDoc {
    let committed = call.node().repl().map(|repl| repl.snapshot().committed.op_time);
    let Some(committed) = committed else { return call.body.clone() };
    let mut next = RawDocumentBuf::new();
    for (name, value) in call.body.iter().flatten() {
        if name.as_str() == "lastKnownCommittedOpTime" {
            next.append(name, committed.to_raw());
        } else {
            next.append(name, value);
        }
    }
    next.into()
}

/// A cursor taken out of the map; an error or a disconnecting client ends it.
struct Taken<'a> {
    call: &'a Call,
    id: i64,
    done: bool,
}

impl Taken<'_> {
    fn put_back(mut self, cursor: Box<Cursor>) {
        self.done = true;
        self.call.node().cursors.keep(cursor, Instant::now());
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.call.node().cursors.forget(self.id);
        }
    }
}

//! Processes a request: looks up the command, parses the generic fields, checks the preconditions, runs the handler,
//! and completes the reply.
//!
//! ```text
//!   body --> name --> entry --> generic fields --> gates (database, API version, member state) --> run
//!                                                                                                    |
//!   reply body <-- ok, $replData, $oplogQueryData, $clusterTime, operationTime <---------------------+
//! ```

mod generic;
mod reply;
mod transaction;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bson::{RawDocumentBuf, rawdoc};
use protocol::{ClusterTime, DocSequence, ErrorCode, Profile, RawDoc};
use repl::MemberState;

use crate::{
    auth::{Who, action::action, privilege::Target},
    commands::{self, Command, Fields, On, Run},
    context::{Call, Client, Outcome, Reply, Then},
    error::Failure,
    operations::Operation,
};
use generic::Generic;
pub use generic::is_database;

/// A request from a connection.
pub struct Incoming {
    /// The command document.
    pub body: RawDoc,
    /// Its document sequences.
    pub sequences: Vec<DocSequence>,
    /// The reply may be the first of many.
    pub exhaust_allowed: bool,
    /// For a request by OP_QUERY: its database and secondaryOk bit.
    pub by_query: Option<ByQuery>,
}

/// What an OP_QUERY contains besides its document.
pub struct ByQuery {
    /// The database of its namespace.
    pub db: String,
    /// Its secondaryOk bit.
    pub secondary_ok: bool,
}

/// A complete reply.
pub struct Answer {
    /// The whole document.
    pub body: RawDocumentBuf,
    /// What the connection does after the reply.
    pub then: Then,
}

/// Answers one request. Never fails: an error is a reply, too.
pub async fn answer(client: &Arc<Client>, incoming: Incoming) -> Answer {
    let node = &client.node;
    node.metrics.requests.up();
    let _active = node.metrics.active.hold();
    let started = Instant::now();
    let mut generic = Generic::default();
    let outcome = execute(client, incoming, &mut generic, started).await;
    finish(client, &generic, outcome)
}

async fn execute(
    client: &Arc<Client>,
    incoming: Incoming,
    generic: &mut Generic,
    started: Instant,
) -> Outcome {
    let name = command_name(&incoming.body);
    let node = &client.node;
    let known = commands::find(name).filter(|(_, command)| command.is_in(node.profile().release));
    let Some((index, command)) = known else {
        return Err(Failure::UnknownCommand(name.to_owned()));
    };
    if let Some(class) = command.class
        && let Some(counter) = node.metrics.ops.get(class.index())
    {
        counter.up();
    }
    let operation = Running::begin(client, &incoming.body, command, started);
    let prepared = prepare(client, incoming, command, generic, &operation.0);
    // The usage of collections is counted only if the command ran, since refused clients could name anything.
    let ran = matches!(prepared, Ok(Prepared::Run(_)));
    let outcome = match prepared {
        Ok(Prepared::Run(call)) => run(command, call).await,
        Ok(Prepared::Answered(reply)) => Ok(reply),
        Err(failure) => Err(failure),
    };
    if let Some(counters) = node.metrics.commands.get(index) {
        counters.total.up();
        if outcome.is_err() {
            counters.failed.up();
        }
    }
    note_time(client, command, &operation.0, ran);
    outcome
}

enum Prepared {
    Run(Call),
    Answered(Reply),
}

/// Everything common to all commands before the handler runs.
fn prepare(
    client: &Arc<Client>,
    incoming: Incoming,
    command: &'static Command,
    generic: &mut Generic,
    operation: &Arc<Operation>,
) -> Result<Prepared, Failure> {
    let node = &client.node;
    let now = operation.started;
    let profile = node.profile();
    let name = command_name(&incoming.body).to_owned();
    if let Some(query) = &incoming.by_query {
        if !profile.op_query_serves_all && !command.by_op_query {
            return Err(Failure::OpQueryCommand(name));
        }
        generic.secondary_ok = query.secondary_ok;
        generic.db = Some(query.db.clone());
    }
    generic.read(&incoming.body, &name, profile)?;
    refuse_duplicates(&incoming)?;
    let db = generic.take_db(&name, profile)?;
    let who = who(client, command)?;
    if profile.login_comes_first {
        require_login(&who, command, profile)?;
    }
    if command.admin_only && db != "admin" && !generic.help {
        return Err(Failure::AdminOnly(command.name));
    }
    require_login(&who, command, profile)?;
    if generic.help {
        let help = format!("help for: {} {}", command.name, command.help);
        return Ok(Prepared::Answered(rawdoc! { "help": help }.into()));
    }
    generic.check_api(command)?;
    if let Fields::Only(own) = command.fields
        && profile.strict_fields
    {
        generic::refuse_unknown(&incoming.body, &name, own)?;
    }
    let statement = generic.statement;
    let (open, in_set) = (command.auth.is_open(profile), node.repl().is_some());
    statement.check_fields(open, generic.lsid.is_some(), in_set)?;
    generic.check_concerns(command, &name, profile)?;
    // An unauthenticated client has no sessions.
    let lsid = generic.lsid.filter(|_| !who.is_restricted() || !who.users().is_empty());
    let lsid = lsid.map(|lsid| lsid.of(&who)).transpose()?;
    let call = Call {
        client: client.clone(),
        body: incoming.body,
        name,
        db,
        sequences: incoming.sequences,
        exhaust_allowed: incoming.exhaust_allowed,
        secondary_ok: generic.secondary_ok,
        who,
        lsid,
        max_time: generic.max_time,
        started: now,
        operation: Arc::clone(operation),
        abandoned: Arc::default(),
        cursor: None,
        leash: None,
    };
    command.auth.check(&call)?;
    statement.check_command(command, &call.db)?;
    if let Some(time) = &generic.cluster_time {
        take_cluster_time(&call, time)?;
    }
    gate(&call, command, generic)?;
    if let Some(id) = lsid {
        node.sessions.touch(id, now);
    }
    client.hold_pin(&call.who)?;
    Ok(Prepared::Run(call))
}

/// The client's identity from the current documents; commands open to everybody do not need to read them.
fn who(client: &Client, command: &Command) -> Result<Who, Failure> {
    let required = client.node.auth.required();
    match command.auth.is_open(client.node.profile()) {
        true if required => Ok(Who::restricted(client.login.users(), false)),
        true => Ok(Who::unrestricted(client.login.users())),
        false => client.login.who(client),
    }
}

fn require_login(who: &Who, command: &Command, profile: &Profile) -> Result<(), Failure> {
    if command.auth.is_open(profile) || who.is_known() {
        return Ok(());
    }
    let capital = profile.login_comes_first;
    Err(Failure::LoginRequired { command: command.name, capital })
}

fn refuse_duplicates(incoming: &Incoming) -> Result<(), Failure> {
    for sequence in &incoming.sequences {
        if matches!(incoming.body.get(sequence.name()), Ok(Some(_))) {
            let text =
                format!("Duplicate field between body and document sequence {}", sequence.name());
            return Err(Failure::said(ErrorCode::from_code(40433), text));
        }
    }
    Ok(())
}

/// Runs the handler. An asynchronous one is dropped by killOp, and its work on a blocking thread then ends.
async fn run(command: &'static Command, call: Call) -> Outcome {
    let run = match command.run {
        Run::Now(run) => return run(&call),
        Run::Waiting(run) => run,
    };
    let operation = Arc::clone(&call.operation);
    tokio::select! {
        outcome = run(call) => outcome,
        () = operation.killed() => {
            Err(Failure::said(operation.killed_by(), "operation was interrupted"))
        }
    }
}

/// A request that currentOp shows as long as this lives.
struct Running(Arc<Operation>);

impl Running {
    fn begin(client: &Arc<Client>, body: &RawDoc, command: &Command, started: Instant) -> Self {
        Self(client.node.operations.begin(client, body, command.class, started))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.client.node.operations.end(self.0.id);
    }
}

/// Checks whether this member may answer the command in its present state.
///
/// `local` is served in every state. If replication has stopped permanently, reads of past timestamps are served.
fn gate(call: &Call, command: &Command, generic: &Generic) -> Result<(), Failure> {
    let (client, db) = (&call.client, &call.db);
    let Some(repl) = client.node.repl() else {
        return match command.on {
            On::Always | On::Serving | On::Readable => Ok(()),
            // A standalone behaves like a mongod in read-only mode.
            On::Primary => {
                let text = "Cannot execute a write operation in read-only mode";
                Err(Failure::said(ErrorCode::IllegalOperation, text))
            }
        };
    };
    let hello_ok = client.hello_ok();
    let statement = generic.statement;
    if command.on == On::Primary || statement.in_transaction() {
        return Err(Failure::NotWritablePrimary { hello_ok, label: statement.label(command) });
    }
    match command.on {
        On::Always | On::Primary => Ok(()),
        On::Serving | On::Readable if db == "local" => Ok(()),
        On::Readable if !generic.secondary_ok => Err(Failure::NotPrimaryNoSecondaryOk { hello_ok }),
        On::Serving | On::Readable if repl.snapshot().past_only && reads_past(call) => Ok(()),
        On::Serving | On::Readable => match repl.member_state() {
            MemberState::Primary | MemberState::Secondary => Ok(()),
            MemberState::Recovering => Err(Failure::NotPrimaryOrSecondary("node is recovering")),
            _ => Err(Failure::NotPrimaryOrSecondary("node is not in primary or recovering state")),
        },
    }
}

/// True for a request that reads at a timestamp, and for a getMore.
fn reads_past(call: &Call) -> bool {
    let at = call.body.get_document("readConcern").ok();
    let at = at.and_then(|concern| concern.get("atClusterTime").ok().flatten());
    call.client.pinned().is_some() || at.is_some() || call.name == "getMore"
}

/// Maximum distance of a cluster time into the future: a clock a year ahead would corrupt the whole set's; mongod
/// refuses it, too.
const CLUSTER_TIME_AHEAD_SECS_MAX: i64 = 365 * 24 * 60 * 60;

/// Accepts a newer cluster time: from a member without a signature, from others if the signature is valid.
fn take_cluster_time(call: &Call, time: &ClusterTime) -> Result<(), Failure> {
    let (node, profile) = (call.node(), call.profile());
    if time.time <= node.cluster_time() {
        return Ok(());
    }
    if !call.who.may(Target::Cluster, action("advanceClusterTime")) {
        let unsigned = time.signature.is_none_or(|signature| signature.hash == [0; 20]);
        // An unsigned time of an unauthenticated client is ignored.
        if unsigned && call.who.users().is_empty() {
            return Ok(());
        }
        node.signer.check(node.store()?, profile, time)?;
    }
    let now_secs = bson::DateTime::now().timestamp_millis() / 1000;
    let secs = time.time.secs();
    if i64::from(secs) - now_secs > CLUSTER_TIME_AHEAD_SECS_MAX {
        let name = if profile.login_comes_first { "$clusterTime" } else { "cluster time" };
        let text =
            format!("New {name}, {secs}, is too far from this node's wall clock time, {now_secs}.");
        return Err(Failure::said(ErrorCode::ClusterTimeFailsRateLimiter, text));
    }
    node.advance_cluster_time(time.time);
    Ok(())
}

fn note_time(client: &Client, command: &Command, operation: &Operation, ran: bool) {
    let node = &client.node;
    let took: Duration = operation.started.elapsed();
    if let (true, On::Readable | On::Serving, Some(class)) = (ran, command.on, command.class) {
        node.operations.note(operation.namespace(), class, took);
    }
    let class = command.latency_class();
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if let (Some(time), Some(ops)) =
        (node.metrics.latency_micros.get(class), node.metrics.latency_ops.get(class))
    {
        time.add(micros);
        ops.up();
    }
    let millis = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
    if millis >= node.parameters.slow_ms() && !command.waits_on_purpose {
        tracing::info!(
            target: "COMMAND",
            id = 51803,
            ctx = client.name(),
            command = command.name,
            remote = %client.remote,
            durationMillis = millis,
            "Slow query"
        );
    }
}

fn finish(client: &Client, generic: &Generic, outcome: Outcome) -> Answer {
    match outcome {
        Ok(Reply { mut body, then, operation_time }) => {
            reply::end_success(client, generic, &mut body, operation_time);
            Answer { body, then }
        }
        Err(failure) => {
            client.node.metrics.user_asserts.up();
            Answer { body: reply::failure(client, generic, &failure), then: Then::Wait }
        }
    }
}

/// The name of the first field.
fn command_name(body: &RawDoc) -> &str {
    match body.as_raw().iter().next() {
        Some(Ok((name, _))) => name.as_str(),
        _ => "",
    }
}

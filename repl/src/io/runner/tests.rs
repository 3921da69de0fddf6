//! Tests the loop over real sockets: one listener acts as the primary, another one serves our node.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use bson::{RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use futures_util::{SinkExt, StreamExt};
use parking_lot::Mutex;
use protocol::{Accept, MessageCodec, OpTime, OpTimeAndWall, RawDoc, Timestamp};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::codec::Framed;

use super::*;
use crate::{DataEvent, MemberState, Request, io::durable::Kept};

type Handler =
    Arc<dyn Fn(RawDoc) -> futures_util::future::BoxFuture<'static, RawDocumentBuf> + Send + Sync>;

async fn serve(listener: TcpListener, handler: Handler) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(serve_one(socket, handler.clone()));
    }
}

async fn serve_one(socket: TcpStream, handler: Handler) {
    let codec = MessageCodec::new(Accept::checked(protocol::Compressors::NONE));
    let mut framed = Framed::new(socket, codec);
    while let Some(Ok(Ok(message))) = framed.next().await {
        let Some(body) = message.body() else { return };
        let reply = message.reply(1, handler(body).await);
        if framed.send(&reply).await.is_err() {
            return;
        }
    }
}

fn name(body: &RawDocument) -> String {
    let first = body.iter().next().and_then(Result::ok);
    first.map(|(key, _)| key.as_str().to_owned()).unwrap_or_default()
}

fn hello_reply() -> RawDocumentBuf {
    rawdoc! { "minWireVersion": 0, "maxWireVersion": 13, "ok": 1.0 }
}

fn at(secs: u32) -> OpTimeAndWall {
    let op_time = OpTime::new(Timestamp::new(secs, 1), 1);
    OpTimeAndWall { op_time, wall: bson::DateTime::from_millis(i64::from(secs) * 1000) }
}

/// Stores documents in memory, and counts them.
#[derive(Default)]
struct Memory(Mutex<Vec<Persist>>);

impl Durable for Memory {
    fn load(&self) -> Result<Kept, DurableError> {
        Ok(Kept { rbid: 1, ..Kept::default() })
    }

    fn save(&self, what: &Persist) -> Result<(), DurableError> {
        self.0.lock().push(what.clone());
        Ok(())
    }
}

struct Broken;

impl Durable for Broken {
    fn load(&self) -> Result<Kept, DurableError> {
        Ok(Kept::default())
    }

    fn save(&self, _: &Persist) -> Result<(), DurableError> {
        Err(DurableError("no space left on device".to_owned()))
    }
}

fn settings() -> Settings {
    Settings {
        set_name: "rs0".to_owned(),
        process_id: ObjectId::from_bytes([5; 12]),
        pinned_profile: None,
        positions: Positions::default(),
        initial_sync_done: false,
        lost_tail: None,
        damage: None,
        connect: ConnectOptions::default(),
    }
}

/// Serves our node with just the needed commands.
fn our_handler(repl: Repl, process_id: ObjectId) -> Handler {
    Arc::new(move |body| {
        let repl = repl.clone();
        Box::pin(async move {
            let answer = match name(&body).as_str() {
                "hello" => Ok(hello_reply()),
                "_isSelf" => Ok(rawdoc! { "id": process_id }),
                "replSetHeartbeat" => repl.ask(Request::Heartbeat(body)).await,
                other => panic!("not expected: {other}"),
            };
            let mut reply = answer.unwrap_or_else(|error| {
                rawdoc! { "ok": 0.0, "errmsg": error.message, "code": error.code.code() }
            });
            if reply.get("ok").unwrap().is_none() {
                reply.append(cstr!("ok"), 1.0);
            }
            reply
        })
    })
}

/// A primary that sends its config to a node without one, and counts the reports.
fn primary_handler(config: RawDoc, reports: Arc<AtomicU32>) -> Handler {
    Arc::new(move |body| {
        let (config, reports) = (config.clone(), reports.clone());
        Box::pin(async move {
            match name(&body).as_str() {
                "hello" => hello_reply(),
                "_isSelf" => rawdoc! { "id": ObjectId::from_bytes([6; 12]), "ok": 1.0 },
                "replSetUpdatePosition" => {
                    reports.fetch_add(1, Ordering::Relaxed);
                    rawdoc! { "ok": 1.0 }
                }
                "replSetHeartbeat" => {
                    let (op_time, wall) = (at(10).op_time.to_raw(), at(10).wall);
                    let mut reply = rawdoc! {
                        "ok": 1.0, "state": 1, "v": 1, "configTerm": 1i64, "set": "rs0", "term": 1i64,
                        "opTime": op_time.clone(), "wallTime": wall, "durableOpTime": op_time,
                        "durableWallTime": wall,
                    };
                    if body.get_i64("configVersion").unwrap() < 1 {
                        reply.append(cstr!("config"), config.as_raw());
                    }
                    reply
                }
                other => panic!("not expected: {other}"),
            }
        })
    })
}

#[tokio::test]
async fn a_node_joins_over_sockets_and_reports() {
    let ours = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let theirs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (our_host, their_host) =
        (ours.local_addr().unwrap().to_string(), theirs.local_addr().unwrap().to_string());
    let config = rawdoc! { "_id": "rs0", "version": 1, "term": 1i64, "members": [
        { "_id": 0, "host": their_host.as_str() },
        { "_id": 1, "host": our_host.as_str(), "hidden": true, "priority": 0, "votes": 0 },
    ] };
    let reports = Arc::new(AtomicU32::new(0));
    tokio::spawn(serve(theirs, primary_handler(config.into(), reports.clone())));
    let memory = Arc::new(Memory::default());
    let Started { repl, mut actions, running, .. } = start(settings(), memory.clone()).unwrap();
    tokio::spawn(serve(ours, our_handler(repl.clone(), settings().process_id)));
    assert_eq!(repl.member_state(), MemberState::Startup);

    let question = rawdoc! {
        "replSetHeartbeat": "rs0", "configVersion": 1, "hbv": 1, "from": their_host, "fromId": 0, "term": 1i64,
    };
    let answer = repl.ask(Request::Heartbeat(question.into())).await.unwrap();
    assert_eq!(answer.get_i32("v").unwrap(), -2);

    let mut topology = repl.watch_topology();
    let task = loop {
        match actions.recv().await.unwrap() {
            DataAction::StartInitialSync { task, .. } => break task,
            DataAction::Configure(own) => assert_eq!(own.member_id, 1),
            other => panic!("not expected: {other:?}"),
        }
    };
    assert!(topology.has_changed().unwrap());
    topology.mark_unchanged();
    assert_eq!(repl.member_state(), MemberState::Startup2);
    assert_eq!(repl.profile().fcv, "5.0", "the peer's wire version is shown");
    assert!(memory.0.lock().iter().any(|kept| matches!(kept, Persist::Config(_))));

    repl.tell(DataEvent::InitialSyncFinished { task, applied: at(10) });
    topology.changed().await.unwrap();
    assert_eq!(repl.member_state(), MemberState::Secondary);
    assert!(matches!(actions.recv().await.unwrap(), DataAction::Follow { .. }));
    while reports.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    repl.shut_down();
    running.await.unwrap().unwrap();
    let after = repl.ask(Request::Status(rawdoc! {}.into())).await.unwrap_err();
    assert_eq!(after.code, protocol::ErrorCode::ShutdownInProgress);
}

#[tokio::test]
async fn what_cannot_be_kept_ends_the_node_before_it_is_told() {
    let Started { repl, running, .. } = start(settings(), Arc::new(Broken)).unwrap();
    repl.internal_client_said_hello(13);
    let error = running.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
}

#[tokio::test]
async fn a_node_that_asks_before_its_own_port_is_open_is_found_all_the_same() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host: protocol::HostAndPort = free.local_addr().unwrap().to_string().parse().unwrap();
    drop(free);
    let Started { repl, peer, .. } = start(settings(), Arc::new(Memory::default())).unwrap();
    let process_id = settings().process_id;
    let finding = tokio::spawn(find_self(peer, process_id, vec![host.clone()]));
    tokio::time::sleep(Duration::from_millis(120)).await;
    let listener = TcpListener::bind((host.host.as_str(), host.port)).await.unwrap();
    tokio::spawn(serve(listener, our_handler(repl, process_id)));
    assert_eq!(finding.await.unwrap(), [host]);
}

#[tokio::test]
async fn a_silent_member_does_not_keep_us_from_finding_ourselves() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ours = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = |listener: &TcpListener| listener.local_addr().unwrap().to_string().parse().unwrap();
    let hosts: Vec<protocol::HostAndPort> = vec![host(&silent), host(&ours)];
    let Started { repl, peer, .. } = start(settings(), Arc::new(Memory::default())).unwrap();
    tokio::spawn(serve(ours, our_handler(repl, settings().process_id)));
    let finding = find_self(peer, settings().process_id, hosts.clone());
    let found = tokio::time::timeout(Duration::from_secs(2), finding).await;
    assert_eq!(found.expect("it waits for the silent one"), [hosts[1].clone()]);
}

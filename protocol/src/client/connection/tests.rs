//! Tests against a scripted peer. Tests against real mongods are in the workspace's `tests` crate.

use bson::{RawDocument, rawdoc};
use tokio::net::TcpListener;

use super::*;
use crate::{ErrorCode, client::WireVersions};

const SOON: Duration = Duration::from_secs(10);

struct Peer {
    framing: Framing,
    socket: TcpStream,
}

impl Peer {
    async fn request(&mut self) -> Message {
        loop {
            if let Some(frame) = self.framing.next_frame().unwrap() {
                return Message::parse(frame, &Accept::checked(Compressors::DEFAULT)).unwrap();
            }
            assert_ne!(self.socket.read_buf(self.framing.read_buf()).await.unwrap(), 0);
        }
    }

    async fn send(&mut self, message: Message) {
        self.socket.write_all_buf(&mut message.into_buf().unwrap()).await.unwrap();
    }

    async fn answer(&mut self, request_id: i32, body: RawDocumentBuf) -> Message {
        let request = self.request().await;
        let reply = request.reply(request_id, body);
        self.send(reply.clone()).await;
        request
    }
}

fn hello_reply() -> RawDocumentBuf {
    rawdoc! {
        "isWritablePrimary": true, "setName": "rs", "minWireVersion": 27, "maxWireVersion": 27,
        "compression": ["zstd", "snappy"], "ok": 1.0,
    }
}

/// Connects to a peer that answers hello and then runs `script`.
async fn with_peer<F>(
    options: ConnectOptions,
    script: impl FnOnce(Peer) -> F + Send + 'static,
) -> Result<Connection, ClientError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = HostAndPort::new("127.0.0.1", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut peer = Peer { framing: Framing::new(), socket };
        peer.answer(1000, hello_reply()).await;
        script(peer).await;
    });
    Connection::connect(&host, &options).await
}

fn body(message: &Message) -> &RawDocument {
    let Op::Msg(msg) = &message.op else { panic!("no OP_MSG") };
    &msg.body
}

#[tokio::test]
async fn requests_are_compressed_as_agreed_and_replies_checked() {
    let options = ConnectOptions { compressors: Compressors::DEFAULT, ..Default::default() };
    let mut connection = with_peer(options, |mut peer| async move {
        let request = peer.answer(1001, rawdoc! { "ok": 1.0, "n": 5 }).await;
        assert_eq!(request.compressor, Some(Compressor::Zstd));
        assert_eq!(body(&request).get_str("$db").unwrap(), "test");
        let failed = rawdoc! {
            "ok": 0.0, "errmsg": "no", "code": 10107, "codeName": "NotWritablePrimary",
            "errorLabels": ["RetryableWriteError"],
        };
        peer.answer(1002, failed).await;
        let request = peer.request().await;
        let mut reply = request.reply(1003, rawdoc! { "ok": 1.0 });
        reply.response_to = 77;
        peer.send(reply).await;
    })
    .await
    .unwrap();
    assert_eq!(connection.compressor(), Some(Compressor::Zstd));
    assert!(connection.hello().is_writable_primary && connection.peer_sends_checksums());
    let reply = connection.run("test", rawdoc! { "count": "c" }, SOON).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 5);
    let error = connection.run("test", rawdoc! { "insert": "c" }, SOON).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotWritablePrimary));
    let ClientError::Command(error) = error else { panic!() };
    assert_eq!(error.labels, ["RetryableWriteError"]);
    assert!(!connection.is_broken());
    let error = connection.run("test", rawdoc! { "ping": 1 }, SOON).await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    let error = connection.run("test", rawdoc! { "ping": 1 }, SOON).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
}

#[tokio::test]
async fn an_exhaust_stream_runs_to_its_end() {
    let mut connection = with_peer(ConnectOptions::default(), |mut peer| async move {
        let request = peer.request().await;
        assert!(request.flags().contains(MsgFlags::EXHAUST_ALLOWED));
        let mut to = request.request_id;
        for (id, last) in [(2001, false), (2002, false), (2003, true)] {
            let mut reply = request.reply(id, rawdoc! { "ok": 1.0, "id": id });
            reply.response_to = to;
            to = id;
            let Op::Msg(msg) = &mut reply.op else { unreachable!() };
            msg.flags = msg.flags.with(MsgFlags::MORE_TO_COME, !last);
            peer.send(reply).await;
        }
        peer.answer(2004, rawdoc! { "ok": 1.0 }).await;
    })
    .await
    .unwrap();
    let mut stream = connection.exhaust("local", rawdoc! { "getMore": 1_i64 }, SOON).await.unwrap();
    let mut ids = Vec::new();
    while let Some(reply) = stream.next(SOON).await.unwrap() {
        ids.push(reply.get_i32("id").unwrap());
    }
    assert_eq!(ids, [2001, 2002, 2003]);
    assert!(stream.is_finished());
    connection.run("admin", rawdoc! { "ping": 1 }, SOON).await.unwrap();
}

#[tokio::test]
async fn a_silent_peer_breaks_a_request_but_not_a_stream() {
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let mut connection = with_peer(ConnectOptions::default(), |mut peer| async move {
        let request = peer.request().await;
        gate.await.unwrap();
        peer.send(request.reply(3001, rawdoc! { "ok": 1.0 })).await;
        peer.request().await;
        std::future::pending::<()>().await;
    })
    .await
    .unwrap();
    let brief = Duration::from_millis(20);
    let mut stream = connection.exhaust("local", rawdoc! { "getMore": 1_i64 }, SOON).await.unwrap();
    assert!(matches!(stream.next(brief).await, Err(ClientError::TimedOut { .. })));
    go.send(()).unwrap();
    assert!(stream.next(SOON).await.unwrap().is_some());
    assert!(stream.next(SOON).await.unwrap().is_none());
    let late = connection.run("admin", rawdoc! { "ping": 1 }, brief).await;
    assert!(matches!(late, Err(ClientError::TimedOut { .. })));
    assert!(connection.is_broken());
}

#[tokio::test]
async fn a_peer_of_another_generation_is_refused() {
    let ours = WireVersions { min: 9, max: 9 };
    let options = ConnectOptions { internal_client: Some(ours), ..Default::default() };
    let error = with_peer(options, |_| async {}).await.unwrap_err();
    assert!(matches!(error, ClientError::WireVersion { .. }), "{error}");
}

#[tokio::test]
async fn nobody_there_and_nobody_any_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = HostAndPort::new("127.0.0.1", listener.local_addr().unwrap().port());
    drop(listener);
    let error = Connection::connect(&host, &ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    let mut connection = with_peer(ConnectOptions::default(), |_| async {}).await.unwrap();
    let error = connection.run("admin", rawdoc! { "ping": 1 }, SOON).await.unwrap_err();
    assert!(error.is_network(), "{error}");
}

//! One client connection: frames in, replies out, one request at a time.
//!
//! C1 A connection that waits for its next request holds no buffer: ten thousand idle ones cost a few kilobytes each.
//! C2 A request is read only after the reply to the previous one was written: a client that stops reading holds at
//!    most one reply and blocks nobody else.
//! C3 If a client disconnects while its request waits (an awaitable hello, a tailable cursor), the wait ends. With
//!    TLS a reply may be sent first.

use std::{io, sync::Arc};

use bson::{RawBsonRef, RawDocumentBuf, rawdoc};
use bytes::BytesMut;
use protocol::{
    Accept, ErrorCode, Frame, FrameError, Framing, Header, Message, MsgFlags, Op, OpMsg, OpQuery,
    OpReply, ParseError, RawDoc, header::op_code,
};

use crate::{
    context::{Client, Then},
    dispatch::{self, Answer, ByQuery, Incoming},
    error::Failure,
    socket::Socket,
};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The client closed it between two messages.
    #[error("the client closed the connection")]
    Closed,
    /// The client closed it, or it broke, in the middle of a message or reply.
    #[error("connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The bytes cannot be split into messages.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// An invalid message after which the connection must be closed.
    #[error("{0}")]
    Message(ParseError),
    /// TLS where it is disabled, no TLS where it is required, or a failed handshake.
    #[error("{0}")]
    Refused(io::Error),
    /// A reply cannot be sent.
    #[error("{0}")]
    Encode(#[from] protocol::EncodeError),
    /// The server shut down.
    #[error("the server is shutting down")]
    Shutdown,
    /// The server closes the connection because of a rollback.
    #[error("the server's state has changed")]
    HungUp,
}

/// Serves a client until it disconnects.
pub async fn serve(mut stream: Socket, client: Arc<Client>) -> End {
    // Neither an idle client, nor one that does not read, nor a stream of hellos may delay the shutdown.
    let served = tokio::select! {
        biased;
        () = client.node.shutdown.ended() => return End::Shutdown,
        () = client.hung_up() => return End::HungUp,
        served = serve_all(&mut stream, &client) => served,
    };
    match served {
        Ok(()) => End::Shutdown,
        Err(end) => end,
    }
}

/// mongod's reply to an HTTP request.
const HTTP_ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 85\r\n\r\nIt looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n";

async fn serve_all(stream: &mut Socket, client: &Arc<Client>) -> Result<(), End> {
    let mut framing = Framing::new();
    loop {
        let frame = match next_frame(stream, &mut framing).await {
            Err(End::Frame(error)) if error.is_http() && client.node.profile().answers_http => {
                stream.write(&mut &HTTP_ANSWER[..]).await?;
                return Err(End::Frame(error));
            }
            other => other?,
        };
        if serve_one(stream, client, frame).await? == Next::Close {
            return Ok(());
        }
    }
}

/// The next whole message; no memory is held between messages (C1).
async fn next_frame(stream: &mut Socket, framing: &mut Framing) -> Result<Frame, End> {
    loop {
        if let Some(frame) = framing.next_frame()? {
            return Ok(frame);
        }
        if framing.is_empty() {
            framing.release();
            stream.readable().await?;
        }
        match stream.read(framing).await? {
            0 if framing.is_empty() => return Err(End::Closed),
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => {}
        }
    }
}

#[derive(PartialEq)]
enum Next {
    Go,
    Close,
}

async fn serve_one(stream: &mut Socket, client: &Arc<Client>, frame: Frame) -> Result<Next, End> {
    let metrics = &client.node.metrics;
    let header = frame.header();
    metrics.physical_bytes_in.add(header.len as u64);
    let message = match Message::parse(frame, &Accept::checked(client.node.compressors())) {
        Ok(message) => message,
        Err(error) if error.is_fatal() => return Err(End::Message(error)),
        Err(error) => {
            send(stream, client, refusal(client, header, &error)).await?;
            return Ok(Next::Go);
        }
    };
    metrics.bytes_in.add(message.uncompressed_len() as u64);
    serve_message(stream, client, message).await
}

/// The reply to a complete message that cannot be parsed.
fn refusal(client: &Client, header: Header, error: &ParseError) -> Message {
    let op = if header.op_code == op_code::QUERY {
        let text = format!("Client Error: bad object in message: {error}");
        let mut body = RawDocumentBuf::new();
        Failure::said(error.code(), text).append_to(&mut body, client.node.profile());
        Op::Reply(OpReply::command(&body.into()))
    } else {
        Op::Msg(OpMsg::new(error.to_reply()))
    };
    let request_id = client.node.next_request_id();
    Message { request_id, response_to: header.request_id, op, compressor: None }
}

async fn serve_message(
    stream: &mut Socket,
    client: &Arc<Client>,
    mut message: Message,
) -> Result<Next, End> {
    let flags = message.flags();
    let wants_reply = !flags.contains(MsgFlags::MORE_TO_COME);
    let mut incoming = match &message.op {
        Op::Msg(msg) => Incoming {
            body: msg.body.clone(),
            sequences: msg.sequences.clone(),
            exhaust_allowed: flags.contains(MsgFlags::EXHAUST_ALLOWED),
            by_query: None,
        },
        Op::Query(query) => match from_query(query, client) {
            Ok(incoming) => incoming,
            Err(reply) => {
                message.op = Op::Reply(reply);
                message.response_to = message.request_id;
                message.request_id = client.node.next_request_id();
                send(stream, client, message).await?;
                return Ok(Next::Go);
            }
        },
        Op::Reply(_) => {
            return Err(End::Message(ParseError::OpCode(op_code::REPLY)));
        }
    };
    loop {
        let exhaust_allowed = incoming.exhaust_allowed;
        let Answer { body, then } = tokio::select! {
            biased;
            answer = dispatch::answer(client, incoming) => answer,
            () = stream.gone() => return Err(End::Closed),
            () = client.node.shutdown.ended() => return Err(End::Shutdown),
        };
        let body = client.node.reply_buffers.lend(body);
        let again = match then {
            Then::Again(next) if exhaust_allowed && wants_reply => Some(next),
            Then::Close => {
                if wants_reply {
                    let reply = message.reply(client.node.next_request_id(), body);
                    send(stream, client, reply).await?;
                }
                return Ok(Next::Close);
            }
            Then::Again(_) | Then::Wait => None,
        };
        if !wants_reply {
            return Ok(Next::Go);
        }
        let id = client.node.next_request_id();
        let mut reply = message.reply(id, body);
        let Some(next) = again else {
            send(stream, client, reply).await?;
            return Ok(Next::Go);
        };
        if let Op::Msg(msg) = &mut reply.op {
            msg.flags = msg.flags.with(MsgFlags::MORE_TO_COME, true);
        }
        if let Err(end) = send(stream, client, reply).await {
            // Nobody will ask for the rest, so the cursor is killed.
            if let Some(Ok((name, RawBsonRef::Int64(id)))) = next.as_raw().iter().next()
                && name == "getMore"
            {
                client.node.cursors.kill(id);
            }
            return Err(end);
        }
        // The next reply answers the one just sent.
        message.request_id = id;
        incoming =
            Incoming { body: next, sequences: Vec::new(), exhaust_allowed: true, by_query: None };
    }
}

/// The command in an OP_QUERY, or the reply that refuses it.
fn from_query(query: &OpQuery, client: &Client) -> Result<Incoming, OpReply> {
    let profile = client.node.profile();
    let Some(db) = query.command_db() else { return Err(no_longer_supported()) };
    if !matches!(query.limit, 1 | -1) {
        let text =
            format!("Bad numberToReturn ({}) for $cmd type ns - can only be 1 or -1", query.limit);
        let mut body = RawDocumentBuf::new();
        Failure::said(ErrorCode::from_code(16979), text).append_to(&mut body, profile);
        return Err(OpReply::command(&body.into()));
    }
    // Where OP_QUERY can carry commands, one may be wrapped: `{$query: {...}, $readPreference: {...}}`.
    let first = query.query.as_raw().iter().next().and_then(Result::ok);
    let inner = match first {
        Some((name, RawBsonRef::Document(inner)))
            if profile.op_query_serves_all && matches!(name.as_str(), "$query" | "query") =>
        {
            Some(inner)
        }
        _ => None,
    };
    let body: RawDoc = inner.map_or_else(|| query.query.clone(), |inner| query.query.share(inner));
    let secondary_ok = query.flags & OpQuery::SECONDARY_OK != 0;
    let by_query = Some(ByQuery { db: db.to_owned(), secondary_ok });
    Ok(Incoming { body, sequences: Vec::new(), exhaust_allowed: false, by_query })
}

/// The reply to a legacy query, which releases since 5.1 do not support.
fn no_longer_supported() -> OpReply {
    let text = "OP_QUERY is no longer supported. The client driver may require an upgrade. For more \
                details see https://dochub.mongodb.org/core/legacy-opcode-removal";
    let body = RawDoc::from(rawdoc! { "$err": text, "code": 5739101, "ok": 0.0 });
    const QUERY_FAILURE: i32 = 2;
    OpReply { flags: QUERY_FAILURE, ..OpReply::command(&body) }
}

/// Replies up to this length are copied to one buffer; longer ones are written without copying.
const COPY_LEN_MAX: usize = 16 * 1024;

async fn send(stream: &mut Socket, client: &Client, reply: Message) -> Result<(), End> {
    let metrics = &client.node.metrics;
    let plain = reply.uncompressed_len();
    metrics.bytes_out.add(plain as u64);
    let sent = if plain <= COPY_LEN_MAX {
        let mut out = BytesMut::new();
        reply.encode(&mut out)?;
        let len = out.len();
        stream.write(&mut out).await?;
        len
    } else {
        let mut out = reply.into_buf()?;
        let len = bytes::Buf::remaining(&out);
        stream.write(&mut out).await?;
        len
    };
    metrics.physical_bytes_out.add(sent as u64);
    Ok(())
}

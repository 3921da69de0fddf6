//! One socket with message framing.

use std::{fmt, time::Duration};

use bson::{RawDocumentBuf, cstr};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ClientError, CommandError, ConnectOptions, Exhaust, HelloReply, Stream, hello};
use crate::{
    Accept, Compressor, Compressors, Framing, HostAndPort, Message, MsgFlags, Op, OpMsg, RawDoc,
};

/// A connection to a mongod, after the handshake.
pub struct Connection {
    host: HostAndPort,
    stream: Box<dyn Stream>,
    framing: Framing,
    accept: Accept,
    hello: HelloReply,
    compressor: Option<Compressor>,
    checksums: bool,
    peer_sends_checksums: bool,
    last_request_id: i32,
    /// An exchange is in progress, or was abandoned (K1).
    busy: bool,
}

/// Commands that are never compressed, even after compression was negotiated: the handshake and everything that
/// carries secrets. The specification of OP_COMPRESSED requires it.
const NEVER_COMPRESSED: [&str; 10] = [
    "hello",
    "isMaster",
    "ismaster",
    "saslStart",
    "saslContinue",
    "getnonce",
    "authenticate",
    "createUser",
    "updateUser",
    "logout",
];

impl Connection {
    /// Connects, exchanges hello, authenticates.
    pub async fn connect(
        host: &HostAndPort,
        options: &ConnectOptions,
    ) -> Result<Self, ClientError> {
        let within = options.connect_timeout;
        let late = |_| ClientError::TimedOut { host: host.clone(), after: within };
        timeout(within, Self::set_up(host, options)).await.map_err(late)?
    }

    async fn set_up(host: &HostAndPort, options: &ConnectOptions) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Connect { host: host.clone(), source };
        let socket = TcpStream::connect((host.host.as_str(), host.port)).await.map_err(failed)?;
        // Requests are small and their replies are awaited, so delaying them to fill a packet gains nothing.
        socket.set_nodelay(true).map_err(failed)?;
        let stream = match &options.tls {
            None => Box::new(socket),
            Some(tls) => tls.connect(host, socket).await.map_err(failed)?,
        };
        let mut connection = Self::over(host.clone(), stream, options);
        let mut command = hello::command(options);
        let authenticator = options.authenticator.as_ref();
        let conversation = authenticator.map(|authenticator| authenticator.begin(&mut command));
        connection.say_hello(command, options).await?;
        if let Some(conversation) = conversation {
            conversation.finish(&mut connection).await?;
        }
        Ok(connection)
    }

    fn over(host: HostAndPort, stream: Box<dyn Stream>, options: &ConnectOptions) -> Self {
        let accept = Accept { compressors: Compressors::NONE, check_bson: options.check_bson };
        let nothing = HelloReply {
            raw: RawDocumentBuf::new().into(),
            wire_versions: super::WireVersions { min: 0, max: 0 },
            compressors: Compressors::NONE,
            is_writable_primary: false,
            is_secondary: false,
            set_name: None,
        };
        Self {
            host,
            stream,
            framing: Framing::new(),
            accept,
            hello: nothing,
            compressor: None,
            checksums: options.checksums && options.tls.is_none(),
            peer_sends_checksums: false,
            last_request_id: 0,
            busy: false,
        }
    }

    async fn say_hello(
        &mut self,
        command: RawDocumentBuf,
        options: &ConnectOptions,
    ) -> Result<(), ClientError> {
        let reply = self.exchange("admin", command, options.connect_timeout).await?;
        let host = || self.host.clone();
        let hello = HelloReply::parse(reply, options.compressors)
            .map_err(|source| ClientError::Reply { host: host(), source })?;
        if let Some(ours) = options.internal_client
            && !ours.overlaps(hello.wire_versions)
        {
            let theirs = hello.wire_versions;
            return Err(ClientError::WireVersion { host: host(), ours, theirs });
        }
        self.accept.compressors = hello.compressors;
        self.compressor = hello.compressors.first();
        self.hello = hello;
        Ok(())
    }

    /// The address of the peer.
    pub fn host(&self) -> &HostAndPort {
        &self.host
    }

    /// The peer's reply to our hello.
    pub fn hello(&self) -> &HelloReply {
        &self.hello
    }

    /// The compressor used for requests.
    pub fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// True if the last uncompressed reply had a checksum.
    pub fn peer_sends_checksums(&self) -> bool {
        self.peer_sends_checksums
    }

    /// True if no further request can be made (K1).
    pub fn is_broken(&self) -> bool {
        self.busy
    }

    /// Runs a command and returns its reply; `ok: 0` becomes [`ClientError::Command`].
    ///
    /// `command` comes without `$db`. After a timeout the connection is broken.
    pub async fn run(
        &mut self,
        db: &str,
        command: RawDocumentBuf,
        within: Duration,
    ) -> Result<RawDoc, ClientError> {
        let late = ClientError::TimedOut { host: self.host.clone(), after: within };
        timeout(within, self.exchange(db, command, within)).await.map_err(|_| late)?
    }

    /// Like [`Self::run`], for a reply that may be long: `within` limits each period of silence, not the whole reply.
    pub async fn fetch(
        &mut self,
        db: &str,
        command: RawDocumentBuf,
        within: Duration,
    ) -> Result<RawDoc, ClientError> {
        let late = ClientError::TimedOut { host: self.host.clone(), after: within };
        let send = self.send(db, command, MsgFlags::NONE);
        let request_id = timeout(within, send).await.map_err(|_| late)??;
        self.take_only_reply(request_id, within).await
    }

    /// Runs a command that the server may answer many times: a getMore, or a hello with `topologyVersion`. `within`
    /// limits sending; each reply has a limit of its own.
    pub async fn exhaust(
        &mut self,
        db: &str,
        command: RawDocumentBuf,
        within: Duration,
    ) -> Result<Exhaust<'_>, ClientError> {
        let late = ClientError::TimedOut { host: self.host.clone(), after: within };
        let send = self.send(db, command, MsgFlags::EXHAUST_ALLOWED);
        let request_id = timeout(within, send).await.map_err(|_| late)??;
        Ok(Exhaust::new(self, request_id))
    }

    async fn exchange(
        &mut self,
        db: &str,
        command: RawDocumentBuf,
        silence: Duration,
    ) -> Result<RawDoc, ClientError> {
        let request_id = self.send(db, command, MsgFlags::NONE).await?;
        self.take_only_reply(request_id, silence).await
    }

    async fn take_only_reply(
        &mut self,
        request_id: i32,
        silence: Duration,
    ) -> Result<RawDoc, ClientError> {
        let reply = self.receive(silence).await?;
        let (body, more) = self.take_reply(&reply, request_id)?;
        if more {
            return Err(self.broke_protocol("it sends more than one reply without being asked"));
        }
        self.finish_exchange();
        self.or_command_error(body)
    }

    /// Sends a request and marks the connection as busy until it is answered.
    async fn send(
        &mut self,
        db: &str,
        mut command: RawDocumentBuf,
        flags: MsgFlags,
    ) -> Result<i32, ClientError> {
        if self.busy {
            return Err(ClientError::Broken { host: self.host.clone() });
        }
        let name = command.iter_elements().next().and_then(Result::ok);
        let secret = name.is_some_and(|name| NEVER_COMPRESSED.contains(&name.key().as_str()));
        command.append(cstr!("$db"), db);
        self.last_request_id = self.last_request_id.wrapping_add(1).max(1);
        let flags = flags.with(MsgFlags::CHECKSUM_PRESENT, self.checksums);
        let mut request =
            Message::request(self.last_request_id, OpMsg::new(command).with_flags(flags));
        request.compressor = self.compressor.filter(|_| !secret);
        let mut bytes = request.into_buf()?;
        self.busy = true;
        let sent = self.stream.write_all_buf(&mut bytes).await;
        let sent = if sent.is_ok() { self.stream.flush().await } else { sent };
        sent.map_err(|source| ClientError::Io { host: self.host.clone(), source })?;
        Ok(self.last_request_id)
    }

    /// The next message. Fails if nothing arrives for `silence`. Cancel-safe: bytes received so far are kept in the
    /// framing buffer.
    pub(super) async fn receive(&mut self, silence: Duration) -> Result<Message, ClientError> {
        let host = &self.host;
        loop {
            let frame = self.framing.next_frame();
            let frame =
                frame.map_err(|source| ClientError::Frame { host: host.clone(), source })?;
            if let Some(frame) = frame {
                return Message::parse(frame, &self.accept)
                    .map_err(|source| ClientError::Parse { host: host.clone(), source });
            }
            let read = timeout(silence, self.stream.read_buf(self.framing.read_buf())).await;
            let read =
                read.map_err(|_| ClientError::TimedOut { host: host.clone(), after: silence })?;
            match read.map_err(|source| ClientError::Io { host: host.clone(), source })? {
                0 => return Err(ClientError::Closed { host: host.clone() }),
                _ => continue,
            }
        }
    }

    /// The body of the reply to `request_id` (K2), and whether more replies will follow.
    pub(super) fn take_reply(
        &mut self,
        reply: &Message,
        request_id: i32,
    ) -> Result<(RawDoc, bool), ClientError> {
        if reply.response_to != request_id {
            return Err(self.broke_protocol("its reply answers another request"));
        }
        let Op::Msg(msg) = &reply.op else {
            return Err(self.broke_protocol("its reply is no OP_MSG"));
        };
        if reply.compressor.is_none() {
            self.peer_sends_checksums = msg.flags.contains(MsgFlags::CHECKSUM_PRESENT);
        }
        Ok((msg.body.clone(), msg.flags.contains(MsgFlags::MORE_TO_COME)))
    }

    pub(super) fn finish_exchange(&mut self) {
        self.busy = false;
        self.framing.release();
    }

    pub(super) fn or_command_error(&self, reply: RawDoc) -> Result<RawDoc, ClientError> {
        match CommandError::from_reply(&self.host, &reply) {
            None => Ok(reply),
            Some(error) => Err(error.into()),
        }
    }

    fn broke_protocol(&self, what: &'static str) -> ClientError {
        ClientError::Protocol { host: self.host.clone(), what }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("host", &self.host)
            .field("wire_versions", &self.hello.wire_versions)
            .field("compressor", &self.compressor)
            .field("broken", &self.busy)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! `serve --at TIME`: a port on which every client reads that moment, whatever its appName.
//!
//! It is meant for clients that cannot set an appName or a read concern. It is a proxy that sets the appName of the
//! moment in the first message of each connection and forwards everything else unchanged.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    thread,
};

use anyhow::{Context, Result, bail};
use bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress, Tls};

use super::source::{Node, without_password};
use crate::screen::Screen;

/// Upper limit of a handshake message's length.
const HANDSHAKE_MAX: usize = 1 << 20;
const HEADER: usize = 16;
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;
/// The OP_MSG flag bit of a checksum at the end.
const CHECKSUM: u32 = 1;

/// Accepts connections until the process ends.
pub fn run(screen: &mut Screen, from: &str, at: &str, port: u16) -> Result<()> {
    let node = Node::connect(from)?;
    // Held as long as the proxy listens, so that the moment stays readable between connections.
    let past = node.past(screen, at)?;
    past.databases()?;
    let name = format!("@Timestamp({},{})", past.ts.secs(), past.ts.inc());
    let options = ClientOptions::parse(from).run()?;
    if options.tls.is_some_and(|tls| matches!(tls, Tls::Enabled(_))) {
        bail!(
            "serve cannot look into connections with TLS; use export --at TIME for a mongodump archive, or a port of \
             the node without TLS (--tlsMode preferTLS)"
        );
    }
    let Some(ServerAddress::Tcp { host, port: to }) = options.hosts.first().cloned() else {
        bail!("{} names no host", without_password(from));
    };
    let to = (host, to.unwrap_or(27017));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("cannot listen on port {port}"))?;
    let port = listener.local_addr()?.port();
    let uri = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
    let time = screen.time(past.ts);
    let row = doc! { "at": bson::Timestamp::from(past.ts), "time": &time, "uri": &uri };
    screen.row(&row, format_args!("{time} ({}) is on {uri} until this ends", past.ts))?;
    screen.out().flush()?;
    for client in listener.incoming() {
        let (client, name, to) = (client?, name.clone(), to.clone());
        thread::spawn(move || {
            if let Err(error) = pass_on(client, &name, (&to.0, to.1)) {
                eprintln!("a connection failed: {error:#}");
            }
        });
    }
    Ok(())
}

fn pass_on(mut client: TcpStream, name: &str, to: (&str, u16)) -> Result<()> {
    let Some(first) = first_message(&mut client)? else { return Ok(()) };
    let mut server = TcpStream::connect(to).context("connect to the node")?;
    server.write_all(&renamed(&first, name)?)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let sending = thread::spawn(move || {
        // Either side may close the connection at any time, so errors are ignored.
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = sending.join();
    Ok(())
}

fn first_message(client: &mut TcpStream) -> Result<Option<Vec<u8>>> {
    let mut message = vec![0; HEADER];
    if client.read_exact(&mut message).is_err() {
        return Ok(None);
    }
    let len = usize::try_from(int(&message, 0)?)?;
    if !(HEADER..=HANDSHAKE_MAX).contains(&len) {
        bail!("the first message is no handshake");
    }
    message.resize(len, 0);
    client.read_exact(message.get_mut(HEADER..).context("a body")?)?;
    Ok(Some(message))
}

/// Returns the handshake with another appName.
fn renamed(message: &[u8], name: &str) -> Result<Vec<u8>> {
    let mut message = message.to_vec();
    let at = match int(&message, 12)? {
        OP_MSG => {
            let flags = u32::try_from(int(&message, HEADER)?)?;
            if flags & CHECKSUM != 0 {
                message.truncate(message.len() - 4);
                let without = (flags & !CHECKSUM).to_le_bytes();
                message.splice(HEADER..HEADER + 4, without);
            }
            HEADER + 5
        }
        OP_QUERY => {
            let ns = message.get(HEADER + 4..).context("a namespace")?;
            HEADER + 4 + ns.iter().position(|byte| *byte == 0).context("a namespace")? + 9
        }
        _ => bail!("the first message is no handshake"),
    };
    let len = usize::try_from(int(&message, at)?)?;
    let hello = message.get(at..at + len).context("a handshake")?;
    let mut hello = Document::from_reader(hello)?;
    if !hello.contains_key("client") {
        // A client without metadata would read the present, so metadata is added.
        let own = doc! { "name": "understudy-tools", "version": env!("CARGO_PKG_VERSION") };
        hello.insert("client", doc! { "driver": own, "os": { "type": "Linux" } });
    }
    if let Ok(client) = hello.get_document_mut("client") {
        client.insert("application", doc! { "name": name });
    }
    message.splice(at..at + len, hello.to_vec()?);
    let whole = i32::try_from(message.len())?;
    message.splice(0..4, whole.to_le_bytes());
    Ok(message)
}

fn int(message: &[u8], at: usize) -> Result<i32> {
    let bytes = message.get(at..at + 4).context("a message is cut short")?;
    Ok(i32::from_le_bytes(bytes.try_into()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_gets_the_name_in_both_forms() {
        let hello = doc! { "hello": 1, "client": { "application": { "name": "mongodump" } }, "$db": "admin" };
        let body = hello.to_vec().unwrap();
        let with_head = |op: i32, middle: &[u8], end: &[u8]| {
            let len = i32::try_from(HEADER + middle.len() + body.len() + end.len()).unwrap();
            let head = [len, 7, 0, op].map(i32::to_le_bytes).concat();
            [&head[..], middle, &body[..], end].concat()
        };
        let query = [&[4, 0, 0, 0][..], b"admin.$cmd\0", &[0; 4], &[0xff; 4]].concat();
        for message in [
            with_head(OP_MSG, &[0, 0, 0, 0, 0], &[]),
            with_head(OP_MSG, &[1, 0, 0, 0, 0], &[9; 4]),
            with_head(OP_QUERY, &query, &[]),
        ] {
            let sent = renamed(&message, "@-15m").unwrap();
            assert_eq!(int(&sent, 0).unwrap(), i32::try_from(sent.len()).unwrap());
            let text = String::from_utf8_lossy(&sent).into_owned();
            assert!(text.contains("@-15m") && !text.contains("mongodump"), "{text}");
        }
        assert!(renamed(&with_head(2010, &[], &[]), "x").is_err());
    }
}

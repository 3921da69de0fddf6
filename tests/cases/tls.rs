//! TLS on the one port, with real members and clients; certificates of members and of users.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::doc;
use tests::certificates::{Authority, Request, subject};
use tests::driver::{self, Security};
use tests::node::Node;
use tests::repl_set::{Member, ReplSet, Tls};
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};
use tests::{mongod, scripts, understudy};

on_each_version!(a_set_with_tls_and_a_key, a_set_with_x509_members);

const KEY: &str = "dGhlIGtleSBvZiB0aGUgdGxzIHRlc3Rz";

/// Members with a key file over TLS: plain connections and clients without a certificate are refused.
fn a_set_with_tls_and_a_key(version: Version) -> Result<()> {
    let options = ReplSet::named("tls-key").version(version).key_file(KEY).tls(Tls::WithKeyFile);
    let set = options.ours_voting(1).start()?;
    works(&set)?;
    let ours = set.ours()?;
    let member = Security::member(KEY);
    refuses(ours, &member)?;
    let no_certificate = member.with_tls(set.ca_file()?, None);
    refuses(ours, &no_certificate)?;
    set.finish()
}

/// Members and a user authenticate by certificates.
fn a_set_with_x509_members(version: Version) -> Result<()> {
    let set = ReplSet::named("x509").version(version).tls(Tls::X509).ours_voting(1).start()?;
    works(&set)?;
    let reader = set.authority()?.issue("reader", "clients")?;
    let name = subject("reader", "clients");
    set.primary()?.run(
        "$external",
        doc! { "createUser": &name, "roles": [{ "role": "read", "db": "shop" }] },
    )?;
    set.await_caught_up()?;
    let ours = set.ours()?;
    let by_certificate = Security::certificate().with_tls(set.ca_file()?, Some(&reader));
    let client = ours.client_as(&by_certificate)?;
    driver::run(&client, "shop", doc! { "find": "c" })?;
    let refused = driver::answer(&client, "other", doc! { "find": "c" })?;
    ensure!(refused.get_i32("code")? == UNAUTHORIZED, "{refused}");
    let status = driver::run(&client, "admin", doc! { "connectionStatus": 1 })?;
    ensure!(status.to_string().contains(&name), "{status}");

    let stranger = set.authority()?.issue("stranger", "clients")?;
    refuses(ours, &Security::certificate().with_tls(set.ca_file()?, Some(&stranger)))?;
    let seen = scripts::python_json(PYTHON, ours.port(), &[path(set.ca_file()?), path(&reader)])?;
    ensure!(seen.get("count").is_some_and(|count| *count == 3), "{seen}");
    shell_node_and_dump(&set, &reader)?;
    ensure!(ours.log_has("MONGODB-X509")?, "no member has come with a certificate");
    set.finish()
}

/// mongosh, the Node driver and mongodump, each authenticated by a certificate.
fn shell_node_and_dump(set: &ReplSet, certificate: &Path) -> Result<()> {
    let (ca, port) = (path(set.ca_file()?), set.ours()?.port());
    let uri = format!(
        "mongodb://127.0.0.1:{port}/?directConnection=true&tls=true&authMechanism=MONGODB-X509\
         &tlsCAFile={ca}&tlsCertificateKeyFile={}",
        path(certificate)
    );
    let count = "db.getSiblingDB('shop').c.countDocuments({})";
    let seen = scripts::mongosh_at(count, &uri)?;
    ensure!(seen == serde_json::json!({ "$numberInt": "3" }), "mongosh: {seen}");
    let printed = scripts::node(&NODE.replace("URI", &uri), port)?;
    ensure!(printed.trim() == "3", "the Node driver: {printed}");
    let dir = tempfile::tempdir()?;
    let (ca, pem) = (format!("--sslCAFile={ca}"), format!("--sslPEMKeyFile={}", path(certificate)));
    let who = ["--authenticationMechanism=MONGODB-X509", "--authenticationDatabase=$external"];
    let what = ["--db=shop", "--collection=c", "--out=dump"];
    let args = [&["--ssl", &ca, &pem][..], &who, &what].concat();
    scripts::tool("mongodump", port, &args, dir.path())?;
    ensure!(dir.path().join("dump/shop/c.bson").exists(), "no dump");
    // Our own tools use the connection string, too; here as a member.
    let member = set.authority()?.issue("tools", "members")?;
    let uri = uri.replace(path(certificate), path(&member));
    let seen = scripts::understudy_tools(&["at", "--from", &uri, "now"], dir.path())?;
    ensure!(seen.contains("shop.c"), "{seen}");
    Ok(())
}

/// A source whose certificate is for another host or from an unknown authority is not followed, unless the options
/// allow it.
#[test]
fn a_source_with_a_bad_certificate_is_not_followed() -> Result<()> {
    let mut set = ReplSet::named("tls-out").key_file(KEY).tls(Tls::WithKeyFile).start()?;
    let mut options = understudy::options("ours-0", Some(set.name()))?;
    set.secure(&mut options)?;
    let elsewhere: &[&str] = &["elsewhere.example"];
    let request = Request { name: "mongod-0", unit: "members", hosts: elsewhere, expired: false };
    set.authority()?.make(&request)?;
    let mongod = set.node_mut(0)?;
    mongod.stop()?;
    if let Some(tls) = &mut mongod.security_mut().tls {
        tls.allow_invalid_certificates = Some(true);
    }
    mongod.restart()?;
    set.await_primary()?;
    set.add(options, Member { votes: 0 })?;
    set.ours()?.await_log("certificate not valid for name", PATIENCE)?;
    restart_with(&mut set, |args| args.push("--tlsAllowInvalidHostnames".to_owned()))?;
    works(&set)?;

    // Our node gets a CAFile of another authority; its own clients still use the right one.
    let strangers = Authority::new(set.scratch().path(), "strangers")?;
    let ca = path(set.ca_file()?).to_owned();
    restart_with(&mut set, |args| {
        for arg in args.iter_mut().filter(|arg| **arg == ca) {
            *arg = path(strangers.file()).to_owned();
        }
        args.extend(["--tlsClusterCAFile".to_owned(), ca.clone()]);
    })?;
    set.ours()?.await_log("UnknownIssuer", PATIENCE)?;
    restart_with(&mut set, |args| args.push("--tlsAllowInvalidCertificates".to_owned()))?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.finish()
}

fn restart_with(set: &mut ReplSet, change: impl FnOnce(&mut Vec<String>)) -> Result<()> {
    let ours = set.ours_mut()?;
    ours.stop()?;
    change(ours.args_mut());
    ours.restart()
}

/// Moving from the key to certificates: each side sends one and accepts both.
#[test]
fn members_go_from_the_key_to_certificates() -> Result<()> {
    for (theirs, own) in [("sendKeyFile", "sendX509"), ("sendX509", "sendKeyFile")] {
        let options = ReplSet::named("tls-change").key_file(KEY).tls(Tls::WithKeyFile);
        let options = options.mongod_args(&["--clusterAuthMode", theirs]);
        let set = options.our_args(&["--clusterAuthMode", own]).ours_hidden(1).start()?;
        works(&set)?;
        let sent = if theirs == "sendX509" { "MONGODB-X509" } else { "SCRAM-SHA-256" };
        ensure!(set.ours()?.log_has(sent)?, "no member has come by {sent}");
        set.finish()?;
    }
    Ok(())
}

fn works(set: &ReplSet) -> Result<()> {
    set.primary()?
        .run("shop", doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let all = doc! { "w": 2, "wtimeout": 60_000 };
    let insert = doc! { "insert": "c", "documents": [{ "_id": 3 }], "writeConcern": all };
    let reply = set.primary()?.run("shop", insert)?;
    ensure!(!reply.contains_key("writeConcernError"), "{reply}");
    Ok(())
}

fn refuses(node: &Node, security: &Security) -> Result<()> {
    // A driver retries failed handshakes for this time.
    let security = Security { patience: Some(REFUSED_WITHIN), ..security.clone() };
    let client = node.client_as(&security)?;
    let answer = driver::answer(&client, "admin", doc! { "ping": 1 });
    ensure!(answer.is_err(), "{} let {security:?} in: {answer:?}", node.name());
    Ok(())
}

/// Tries all of them concurrently.
fn refuses_all(node: &Node, securities: &[Security]) -> Result<()> {
    std::thread::scope(|scope| {
        let tries: Vec<_> =
            securities.iter().map(|security| scope.spawn(|| refuses(node, security))).collect();
        tries.into_iter().try_for_each(|tried| tried.join().expect("it does not panic"))
    })
}

/// Long enough for a server that would accept the client, short enough for a test.
const REFUSED_WITHIN: Duration = Duration::from_secs(3);

/// Starts our server alone, with these arguments.
fn alone(scratch: &mut Scratch, name: &str, args: &[&str], security: Security) -> Result<Node> {
    let mut options = understudy::options(name, None)?;
    options.args = args.iter().map(|&arg| arg.to_owned()).collect();
    options.security = security;
    Node::start(options, scratch)
}

/// Plain and TLS connections on one port, as the mode allows.
#[test]
fn a_mode_lets_in_what_it_says() -> Result<()> {
    let mut scratch = Scratch::new("tls-modes")?;
    let authority = Authority::new(scratch.path(), "ca")?;
    let server = authority.issue("server", "members")?;
    let client = authority.issue("client", "clients")?;
    let plain = Security::nobody();
    let with_tls = Security::nobody().with_tls(authority.file(), Some(&client));
    for (mode, plain_ok, tls_ok) in [
        ("disabled", true, false),
        ("allowTLS", true, true),
        ("preferTLS", true, true),
        ("requireTLS", false, true),
    ] {
        let files =
            ["--tlsCertificateKeyFile", path(&server), "--tlsCAFile", path(authority.file())];
        let mut args = vec!["--tlsMode", mode];
        args.extend(files);
        let own = if plain_ok { plain.clone() } else { with_tls.clone() };
        let node = alone(&mut scratch, mode, &args, own)?;
        for (security, ok) in [(&plain, plain_ok), (&with_tls, tls_ok)] {
            let answer = driver::answer(&node.client_as(security)?, "admin", doc! { "ping": 1 });
            ensure!(answer.is_ok() == ok, "{mode}: {security:?}: {answer:?}");
        }
    }
    scratch.finish();
    Ok(())
}

/// Starts a standalone server, ours or a real one.
fn either(
    real: bool,
    scratch: &mut Scratch,
    name: &str,
    args: &[&str],
    security: &Security,
) -> Result<Node> {
    let mut options = match real {
        true => mongod::options(&format!("mongod-{name}"), Version::V8_2, None)?,
        false => understudy::options(name, None)?,
    };
    options.args = args.iter().map(|&arg| arg.to_owned()).collect();
    options.security = security.clone();
    Node::start(options, scratch)
}

/// Certificates of other authorities, expired ones and none, with each option: for a mongod and for our server.
#[test]
fn bad_certificates_are_refused() -> Result<()> {
    let mut scratch = Scratch::new("tls-bad")?;
    let authority = Authority::new(scratch.path(), "ca")?;
    let other = Authority::new(scratch.path(), "other-ca")?;
    let server = authority.issue("server", "members")?;
    let good = authority.issue("good", "clients")?;
    let foreign = other.issue("foreign", "members")?;
    let hosts: &[&str] = &["localhost"];
    let expired =
        authority.make(&Request { name: "expired", unit: "clients", hosts, expired: true })?;
    let ca = authority.file();
    let files = ["--tlsCertificateKeyFile", path(&server), "--tlsCAFile", path(ca)];
    let base = [&["--tlsMode", "requireTLS"][..], &files].concat();
    let with = |file: &Path| Security::nobody().with_tls(ca, Some(file));
    let without = Security::nobody().with_tls(ca, None);
    for real in [true, false] {
        let node = either(real, &mut scratch, "strict", &base, &with(&good))?;
        let mistrusting = Security::nobody().with_tls(other.file(), Some(&good));
        refuses_all(&node, &[with(&foreign), with(&expired), without.clone(), mistrusting])?;

        let more = ["--tlsAllowConnectionsWithoutCertificates", "--tlsDisabledProtocols", "TLS1_3"];
        let args = [&base[..], &more].concat();
        let node = either(real, &mut scratch, "without", &args, &without)?;
        ping(&node, &with(&good))?;
        refuses(&node, &with(&foreign))?;
        let seen = scripts::python_json(VERSIONS, node.port(), &[path(ca)])?;
        ensure!(seen == serde_json::json!({ "1.2": true, "1.3": false }), "{seen}");

        // With allowInvalidCertificates any certificate suffices for a connection, but none authenticates a user.
        let more = ["--tlsAllowInvalidCertificates", "--auth", "--clusterAuthMode", "x509"];
        let args = [&base[..], &more].concat();
        let node = either(real, &mut scratch, "invalid", &args, &with(&foreign))?;
        ping(&node, &with(&expired))?;
        refuses(&node, &without)?;
        for (certificate, ok) in [(&foreign, false), (&expired, false), (&server, true)] {
            let member = Security::certificate().with_tls(ca, Some(certificate));
            let answer = driver::answer(&node.client_as(&member)?, "admin", doc! { "ping": 1 });
            ensure!(answer.is_ok() == ok, "{}: {certificate:?}: {answer:?}", node.name());
        }
    }
    bad_files_end_the_start(&mut scratch, &expired, ca)?;
    scratch.finish();
    Ok(())
}

fn ping(node: &Node, security: &Security) -> Result<()> {
    driver::run(&node.client_as(security)?, "admin", doc! { "ping": 1 }).map(drop)
}

/// Invalid and expired certificate files prevent the start, and the error names the file.
fn bad_files_end_the_start(scratch: &mut Scratch, expired: &Path, ca: &Path) -> Result<()> {
    let broken = scratch.path().join("broken.pem");
    std::fs::write(&broken, "no certificate")?;
    let out_of_date = "The provided SSL certificate is expired or not yet valid";
    for (name, file, says, mut options) in [
        ("broken", &*broken, "broken.pem is of no use", understudy::options("broken", None)?),
        ("ours", expired, out_of_date, understudy::options("ours-expired", None)?),
        ("real", expired, out_of_date, mongod::options("expired", Version::V8_2, None)?),
    ] {
        let files = ["--tlsCertificateKeyFile", path(file), "--tlsCAFile", path(ca)];
        let args = [&["--tlsMode", "requireTLS"][..], &files].concat();
        options.args = args.into_iter().map(str::to_owned).collect();
        let mut node = Node::prepare(options, scratch)?;
        node.launch()?;
        node.await_log(says, PATIENCE)?;
        wait_for(&format!("{name} has ended"), PATIENCE, || Ok(!node.is_running()))?;
    }
    Ok(())
}

/// rotateCertificates loads new files without a restart, and refuses invalid ones.
#[test]
fn certificates_are_rotated() -> Result<()> {
    let mut scratch = Scratch::new("tls-rotate")?;
    let authority = Authority::new(scratch.path(), "ca")?;
    let client = authority.issue("client", "clients")?;
    let elsewhere: &[&str] = &["elsewhere.example"];
    let request = Request { name: "server", unit: "members", hosts: elsewhere, expired: false };
    let server = authority.make(&request)?;
    let ca = authority.file();
    let with_tls = Security::nobody().with_tls(ca, Some(&client));
    let args = [
        "--tlsMode",
        "preferTLS",
        "--tlsCertificateKeyFile",
        path(&server),
        "--tlsCAFile",
        path(ca),
    ];
    let node = alone(&mut scratch, "server", &args, Security::nobody())?;
    refuses(&node, &with_tls)?;
    authority.issue("server", "members")?;
    refuses(&node, &with_tls)?;
    node.admin(doc! { "rotateCertificates": 1 })?;
    driver::answer(&node.client_as(&with_tls)?, "admin", doc! { "ping": 1 })?;
    std::fs::write(&server, "broken")?;
    let refused = node.answer("admin", doc! { "rotateCertificates": 1 })?;
    ensure!(refused.get_f64("ok")? == 0.0, "{refused}");
    driver::answer(&node.client_as(&with_tls)?, "admin", doc! { "ping": 1 })?;
    scratch.finish();
    Ok(())
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

const UNAUTHORIZED: i32 = 13;

const PYTHON: &str = "
import json, sys, pymongo
client = pymongo.MongoClient('127.0.0.1', int(sys.argv[1]), directConnection=True, tls=True,
    tlsCAFile=sys.argv[2], tlsCertificateKeyFile=sys.argv[3], authMechanism='MONGODB-X509')
print(json.dumps({'count': client.shop.c.count_documents({})}))
";

const NODE: &str = "
const { MongoClient } = require('mongodb');
const client = new MongoClient('URI');
(async () => console.log(await client.db('shop').collection('c').countDocuments({})))().finally(() => client.close());
";

/// The supported TLS versions.
const VERSIONS: &str = "
import json, socket, ssl, sys
def speaks(version):
    context = ssl.create_default_context(cafile=sys.argv[2])
    context.minimum_version = context.maximum_version = version
    try:
        with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as plain:
            with context.wrap_socket(plain, server_hostname='127.0.0.1') as stream: return bool(stream.version())
    except ssl.SSLError: return False
print(json.dumps({'1.2': speaks(ssl.TLSVersion.TLSv1_2), '1.3': speaks(ssl.TLSVersion.TLSv1_3)}))
";

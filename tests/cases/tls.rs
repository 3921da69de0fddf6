//! TLS on the one port, with real members and real clients; certificates as members and as users.

use std::path::Path;

use anyhow::{Result, ensure};
use bson::doc;
use tests::certificates::{Authority, Request, subject};
use tests::driver::{self, Security};
use tests::node::Node;
use tests::repl_set::{ReplSet, Tls};
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};
use tests::{scripts, understudy};

on_each_version!(a_set_with_tls_and_a_key, a_set_with_x509_members);

const KEY: &str = "dGhlIGtleSBvZiB0aGUgdGxzIHRlc3Rz";

/// Members with a key file over TLS: nobody speaks plainly, and nobody comes without a certificate.
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

/// Members known by their certificates, and a user known by its own.
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
    ensure!(ours.log_has("MONGODB-X509")?, "no member has come with a certificate");
    set.finish()
}

/// On the way from the key to certificates: each side sends one and takes both.
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
    let client = node.client_as(security)?;
    let answer = driver::answer(&client, "admin", doc! { "ping": 1 });
    ensure!(answer.is_err(), "{} let {security:?} in: {answer:?}", node.name());
    Ok(())
}

/// Ours alone, with these arguments besides the certificate.
fn alone(scratch: &mut Scratch, name: &str, args: &[&str], security: Security) -> Result<Node> {
    let mut options = understudy::options(name, None)?;
    options.args = args.iter().map(|&arg| arg.to_owned()).collect();
    options.security = security;
    Node::start(options, scratch)
}

/// Plain and TLS on one port, as far as the mode allows.
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

/// Strangers' certificates, expired ones and those for other hosts; and what the switches let pass.
#[test]
fn bad_certificates_are_refused() -> Result<()> {
    let mut scratch = Scratch::new("tls-bad")?;
    let authority = Authority::new(scratch.path(), "ca")?;
    let other = Authority::new(scratch.path(), "other-ca")?;
    let server = authority.issue("server", "members")?;
    let good = authority.issue("good", "clients")?;
    let foreign = other.issue("foreign", "clients")?;
    let hosts: &[&str] = &["localhost"];
    let expired =
        authority.make(&Request { name: "expired", unit: "clients", hosts, expired: true })?;
    let ca = authority.file();
    let base = [
        "--tlsMode",
        "requireTLS",
        "--tlsCertificateKeyFile",
        path(&server),
        "--tlsCAFile",
        path(ca),
    ];
    let with = |file: &Path| Security::nobody().with_tls(ca, Some(file));
    let node = alone(&mut scratch, "strict", &base, with(&good))?;
    refuses(&node, &with(&foreign))?;
    refuses(&node, &with(&expired))?;
    refuses(&node, &Security::nobody().with_tls(ca, None))?;
    refuses(&node, &Security::nobody().with_tls(other.file(), Some(&good)))?;

    let mut args = base.to_vec();
    args.push("--tlsAllowConnectionsWithoutCertificates");
    let node = alone(&mut scratch, "without", &args, Security::nobody().with_tls(ca, None))?;
    driver::answer(&node.client_as(&with(&good))?, "admin", doc! { "ping": 1 })?;
    refuses(&node, &with(&foreign))?;

    let mut args = base.to_vec();
    args.push("--tlsAllowInvalidCertificates");
    let node = alone(&mut scratch, "invalid", &args, with(&foreign))?;
    driver::answer(&node.client_as(&with(&expired))?, "admin", doc! { "ping": 1 })?;

    // A file that is no certificate ends the start, with its name.
    let broken = scratch.path().join("broken.pem");
    std::fs::write(&broken, "no certificate")?;
    let mut options = understudy::options("broken", None)?;
    options.args = [
        "--tlsMode",
        "requireTLS",
        "--tlsCertificateKeyFile",
        path(&broken),
        "--tlsCAFile",
        path(ca),
    ]
    .map(str::to_owned)
    .to_vec();
    let mut node = Node::prepare(options, &mut scratch)?;
    node.launch()?;
    node.await_log("broken.pem is of no use", PATIENCE)?;
    wait_for("it has ended", PATIENCE, || Ok(!node.is_running()))?;
    scratch.finish();
    Ok(())
}

/// Going out, a certificate for another host is refused unless the switch says otherwise; new files are taken up by
/// rotateCertificates without a restart.
#[test]
fn names_are_checked_and_certificates_rotated() -> Result<()> {
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

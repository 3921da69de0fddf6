//! Sets with a key file: real members and we authenticate each other; both refuse everybody else.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use bson::{Bson, doc};
use tests::driver::{self, Security};
use tests::node::Node;
use tests::repl_set::{ReplSet, write_key};
use tests::scratch::Scratch;
use tests::servers::Version;
use tests::wait::{PATIENCE, wait_for};
use tests::{mongod, understudy};

on_each_version!(members_know_each_other_by_the_key, a_wrong_key_is_refused_by_both_sides);

const KEY: &str = "K2VlcCB0aGlzIGtleSBmb3IgdGhlIHRlc3Rz";
const OTHER_KEY: &str = "YW5vdGhlciBrZXkgdGhhdCBub2JvZHkgaGFz+";

/// Initial sync, steady state, a vote that counts, and an election.
fn members_know_each_other_by_the_key(version: Version) -> Result<()> {
    let options = ReplSet::named("key-file").version(version).key_file(KEY).mongods(2);
    let set = options.ours_voting(1).start()?;
    let before = doc! { "insert": "c", "documents": [{ "_id": 1 }] };
    set.primary()?.run("shop", before)?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    wait_for("the config has no newlyAdded", PATIENCE, || {
        let reply = set.primary()?.admin(doc! { "replSetGetConfig": 1 })?;
        let members = reply.get_document("config")?.get_array("members")?;
        Ok(members.iter().all(|m| m.as_document().is_some_and(|m| !m.contains_key("newlyAdded"))))
    })?;
    let all = doc! { "w": 3, "wtimeout": 60_000 };
    let insert = doc! { "insert": "c", "documents": [{ "_id": 2 }], "writeConcern": &all };
    let reply = set.primary()?.run("shop", insert)?;
    ensure!(!reply.contains_key("writeConcernError"), "{reply}");

    let old = set.primary_index()?;
    set.node(old)?.answer("admin", doc! { "replSetStepDown": 60, "force": true })?;
    wait_for("the other mongod is primary", PATIENCE, || {
        Ok(set.primary_index().is_ok_and(|now| now != old))
    })?;
    let insert = doc! { "insert": "c", "documents": [{ "_id": 3 }], "writeConcern": &all };
    let reply = set.primary()?.run("shop", insert)?;
    ensure!(!reply.contains_key("writeConcernError"), "{reply}");

    let ours = set.ours()?;
    ensure!(ours.log_has("\"isClusterMember\":true")?, "no member has logged in with us");
    let nobody = ours.client_as(&Security::nobody())?;
    for command in ["replSetHeartbeat", "replSetUpdatePosition", "replSetRequestVotes"] {
        let refused = driver::answer(&nobody, "admin", doc! { command: 1 })?;
        ensure!(refused.get_i32("code")? == UNAUTHORIZED, "{refused}");
    }
    set.finish()
}

/// Nodes with different keys never become members of one set, and both logs say why.
fn a_wrong_key_is_refused_by_both_sides(version: Version) -> Result<()> {
    let mut set =
        ReplSet::named("wrong-key").version(version).key_file(KEY).ours_hidden(1).start()?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    let file = write_key(set.scratch().path(), OTHER_KEY)?.display().to_string();
    let ours = set.ours_mut()?;
    ours.stop()?;
    replace_key(ours, &file)?;
    ours.launch()?;
    let ours = set.ours()?;
    ours.await_log("does not answer heartbeats: Authentication failed", PATIENCE)?;
    ours.await_log("\"msg\":\"Failed to authenticate\"", PATIENCE)?;
    let primary = set.primary()?;
    primary.await_log("AuthenticationFailed", PATIENCE)?;
    wait_for("the primary shows us as down", PATIENCE, || {
        Ok(set.shown_state(set.ours()?)? == "(not reachable/healthy)")
    })?;
    let log = std::fs::read_to_string(set.ours()?.log_path())?;
    ensure!(!log.contains(KEY) && !log.contains(OTHER_KEY), "a key is in our log");
    set.finish_without_comparing()
}

fn replace_key(node: &mut Node, file: &str) -> Result<()> {
    let args = node.args_mut();
    let at = args.iter().position(|arg| arg == "--keyFile").context("a key file")?;
    *args.get_mut(at + 1).context("its name")? = file.to_owned();
    Ok(())
}

/// While a key is replaced there are two; either side may be the one that has only the new one.
#[test]
fn a_key_is_exchanged_for_another() -> Result<()> {
    let both = format!("- {KEY}\n- {OTHER_KEY}\n");
    let mut set = ReplSet::named("two-keys").key_file(KEY).start()?;
    let file = write_key(set.scratch().path(), &both)?.display().to_string();
    let mut options = understudy::options("ours-0", Some(set.name()))?;
    options.args = vec!["--keyFile".to_owned(), file.clone()];
    options.security = Security::member(KEY);
    set.add(options, tests::repl_set::Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;

    // We have both keys, they have only the new one.
    let new = write_key(set.scratch().path(), OTHER_KEY)?.display().to_string();
    let primary = set.node_mut(0)?;
    primary.stop()?;
    replace_key(primary, &new)?;
    primary.security_mut().clone_from(&Security::member(OTHER_KEY));
    primary.restart()?;
    set.await_primary()?.run("shop", doc! { "insert": "c", "documents": [{ "_id": 1 }] })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;

    // They have both keys, we have only the new one.
    let primary = set.node_mut(0)?;
    primary.stop()?;
    replace_key(primary, &file)?;
    primary.restart()?;
    let ours = set.ours_mut()?;
    ours.stop()?;
    replace_key(ours, &new)?;
    ours.security_mut().clone_from(&Security::member(OTHER_KEY));
    ours.restart()?;
    set.await_primary()?.run("shop", doc! { "insert": "c", "documents": [{ "_id": 2 }] })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.finish()
}

/// A set is moved to authentication: members with and without it coexist.
#[test]
fn a_set_without_authentication_gets_it() -> Result<()> {
    let mut set = ReplSet::named("transition").start()?;
    let file = write_key(set.scratch().path(), KEY)?.display().to_string();
    let mut options = understudy::options("ours-0", Some(set.name()))?;
    let (key, transition) = (["--keyFile".to_owned(), file], "--transitionToAuth".to_owned());
    options.args = vec![key[0].clone(), key[1].clone(), transition.clone()];
    set.add(options, tests::repl_set::Member { votes: 0 })?;
    let written = |set: &ReplSet, id: i32| -> Result<()> {
        let all = doc! { "w": 2, "wtimeout": 60_000 };
        let insert = doc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": all };
        let reply = set.await_primary()?.run("shop", insert)?;
        ensure!(!reply.contains_key("writeConcernError"), "{reply}");
        set.await_state(set.ours()?, "SECONDARY", PATIENCE)
    };
    written(&set, 1)?;
    // First the mongod has --transitionToAuth, then ours requires authentication; both use the key.
    let mongod = set.node_mut(0)?;
    mongod.stop()?;
    mongod.args_mut().extend(key.into_iter().chain([transition.clone()]));
    *mongod.security_mut() = Security::member(KEY);
    mongod.restart()?;
    written(&set, 2)?;
    let ours = set.ours_mut()?;
    ours.stop()?;
    ours.args_mut().retain(|arg| *arg != transition);
    *ours.security_mut() = Security::member(KEY);
    ours.restart()?;
    written(&set, 3)?;
    let nobody = set.ours()?.client_as(&Security::nobody())?;
    let refused = driver::answer(&nobody, "shop", doc! { "find": "c" })?;
    ensure!(refused.get_i32("code")? == UNAUTHORIZED, "{refused}");
    set.finish()
}

/// A mongod and our server refuse the same key file for the same reason.
#[test]
fn a_bad_key_file_is_refused_in_mongods_words() -> Result<()> {
    let mut scratch = Scratch::new("bad-key-file")?;
    for (name, text, mode, says) in [
        ("open", "abcdefgh", 0o644, "are too open"),
        ("short", "abc", 0o600, "Security key size is out range"),
        ("strange", "abc$defgh", 0o600, "invalid char in key file"),
        ("three", "- abcdef\n- ghijkl\n- mnopqr\n", 0o600, "Only two keys are supported"),
        ("map", "a: b\n", 0o600, "Only strings and sequences are supported for YAML key files"),
    ] {
        let file = scratch.path().join(format!("{name}.key"));
        std::fs::write(&file, text)?;
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        for mut options in [
            understudy::options(&format!("ours-{name}"), Some("set"))?,
            mongod::options(&format!("mongod-{name}"), Version::V8_2, Some("set"))?,
        ] {
            options.args = vec!["--keyFile".to_owned(), file.display().to_string()];
            let mut node = Node::prepare(options, &mut scratch)?;
            node.launch()?;
            node.await_log(says, PATIENCE)?;
            wait_for("it has ended", PATIENCE, || Ok(!node.is_running()))?;
        }
    }
    scratch.finish();
    Ok(())
}

/// Access control for a member of a set requires a key file, as in a mongod.
#[test]
fn authorization_in_a_set_needs_a_key_file() -> Result<()> {
    let mut scratch = Scratch::new("no-key-file")?;
    for mut options in [
        understudy::options("ours", Some("set"))?,
        mongod::options("mongod", Version::V8_2, Some("set"))?,
    ] {
        options.args = vec!["--auth".to_owned()];
        let mut node = Node::prepare(options, &mut scratch)?;
        node.launch()?;
        let says = "security.keyFile is required when authorization is enabled with replica sets";
        node.await_log(says, PATIENCE)?;
        wait_for("it has ended", PATIENCE, || Ok(!node.is_running()))?;
    }
    scratch.finish();
    Ok(())
}

/// hello lists the same mechanisms as a mongod of the same release.
#[test]
fn the_mechanisms_of_a_member_are_those_of_its_version() -> Result<()> {
    for version in Version::ALL {
        let set =
            ReplSet::named("mechanisms").version(version).key_file(KEY).ours_hidden(1).start()?;
        set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
        let ask = doc! { "hello": 1, "saslSupportedMechs": "local.__system" };
        // Compared as a set, because mongod keeps them in a hash table.
        let mechanisms = |node: &Node| -> Result<BTreeSet<String>> {
            let reply = node.admin(ask.clone())?;
            let names = reply.get_array("saslSupportedMechs")?.iter().filter_map(Bson::as_str);
            Ok(names.map(str::to_owned).collect())
        };
        let (want, got) = (mechanisms(set.primary()?)?, mechanisms(set.ours()?)?);
        ensure!(want == got, "{}: {want:?} {got:?}", version.label());
        set.finish()?;
    }
    Ok(())
}

const UNAUTHORIZED: i32 = 13;

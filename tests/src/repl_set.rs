//! A replica set of real mongods, with our node as one of its members.
//!
//! ```ignore
//! let mut set = ReplSet::named("steady").version(Version::V8_2).mongods(1).ours_hidden(1).start()?;
//! set.primary()?.run("shop", doc! { "insert": "carts", "documents": [{ "_id": 1 }] })?;
//! set.await_caught_up()?;
//! set.finish()?; // same data, no unexpected log line, nothing left running
//! ```

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bson::{Bson, Document, Timestamp, doc};

use crate::certificates::Authority;
use crate::driver::Security;
use crate::hashes;
use crate::logs;
use crate::node::{Node, NodeOptions};
use crate::scratch::{CASE_LIMIT, Scratch};
use crate::servers::Version;
use crate::wait::{PATIENCE, wait_for, wait_until};
use crate::{mongod, understudy};

/// A running set.
#[derive(Debug)]
pub struct ReplSet {
    name: String,
    // Nodes must be dropped before the scratch directory, which prints their logs.
    nodes: Vec<Node>,
    scratch: Scratch,
    expected_log: Vec<String>,
    key: Option<Key>,
    tls: Option<(Tls, Authority)>,
}

/// How a set uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Members authenticate by the key file.
    WithKeyFile,
    /// Members authenticate by their certificates.
    X509,
}

/// The key file of a set.
#[derive(Debug)]
struct Key {
    file: PathBuf,
    text: String,
}

/// Options of a set.
#[derive(Clone, Debug)]
pub struct ReplSetOptions {
    test: String,
    version: Version,
    mongods: usize,
    ours: Vec<Member>,
    mongod_args: Vec<String>,
    our_args: Vec<String>,
    key: Option<String>,
    tls: Option<Tls>,
    election_timeout: Duration,
    proxied: bool,
    limit: Duration,
}

/// Options of a node in the config.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// 0 or 1.
    pub votes: i32,
}

impl ReplSetOptions {
    /// The version of its mongods; default 8.2.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// The number of voting mongods; default 1.
    #[must_use]
    pub fn mongods(mut self, n: usize) -> Self {
        self.mongods = n;
        self
    }

    /// Adds `n` of our nodes, hidden, without a vote.
    #[must_use]
    pub fn ours_hidden(mut self, n: usize) -> Self {
        self.ours.extend(std::iter::repeat_n(Member { votes: 0 }, n));
        self
    }

    /// Adds `n` of our nodes, hidden, with a vote.
    #[must_use]
    pub fn ours_voting(mut self, n: usize) -> Self {
        self.ours.extend(std::iter::repeat_n(Member { votes: 1 }, n));
        self
    }

    /// Additional arguments for every mongod.
    #[must_use]
    pub fn mongod_args(mut self, args: &[&str]) -> Self {
        self.mongod_args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Additional arguments for our nodes.
    #[must_use]
    pub fn our_args(mut self, args: &[&str]) -> Self {
        self.our_args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Gives every node a key file with this text; the test's own clients then authenticate as members.
    #[must_use]
    pub fn key_file(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Enables TLS for everybody; members authenticate as `tls` says.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// electionTimeoutMillis. The default of ten seconds avoids needless elections on a busy machine.
    #[must_use]
    pub fn election_timeout(mut self, timeout: Duration) -> Self {
        self.election_timeout = timeout;
        self
    }

    /// Puts a proxy in front of every node; the config names the proxies.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Maximum lifetime of the set; default some minutes.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts the mongods, initiates the set, waits for a primary, then starts and adds our nodes.
    pub fn start(self) -> Result<ReplSet> {
        let scratch = Scratch::with_limit(&self.test, self.limit)?;
        let mut set = ReplSet {
            name: format!("{}-set", self.test),
            nodes: Vec::new(),
            scratch,
            expected_log: Vec::new(),
            key: None,
            tls: None,
        };
        if let Some(tls) = self.tls {
            set.tls = Some((tls, Authority::new(set.scratch.path(), "ca")?));
        }
        if let Some(key) = &self.key {
            set.key = Some(Key { file: write_key(set.scratch.path(), key)?, text: key.clone() });
        }
        for i in 0..self.mongods {
            let mut node = mongod::options(&format!("mongod-{i}"), self.version, Some(&set.name))?;
            node.args = self.mongod_args.clone();
            set.secure(&mut node)?;
            node.proxied = self.proxied;
            let mut node = Node::prepare(node, &mut set.scratch)?;
            node.launch()?;
            set.nodes.push(node);
        }
        for node in &mut set.nodes {
            node.await_answer()?;
        }
        set.initiate(self.election_timeout)?;
        for (i, member) in self.ours.iter().enumerate() {
            let mut node = understudy::options(&format!("ours-{i}"), Some(&set.name))?;
            node.args = self.our_args.clone();
            set.secure(&mut node)?;
            node.proxied = self.proxied;
            set.add(node, *member)?;
        }
        Ok(set)
    }
}

impl ReplSet {
    /// Starts describing a set for the test of this name.
    pub fn named(test: &str) -> ReplSetOptions {
        ReplSetOptions {
            test: test.to_owned(),
            version: Version::V8_2,
            mongods: 1,
            ours: Vec::new(),
            mongod_args: Vec::new(),
            our_args: Vec::new(),
            key: None,
            tls: None,
            election_timeout: Duration::from_secs(10),
            proxied: false,
            limit: CASE_LIMIT,
        }
    }

    /// Adds the options that a node needs to be a member of this set.
    pub fn secure(&self, node: &mut NodeOptions) -> Result<()> {
        let mut add = |flag: &str, value: &dyn std::fmt::Display| {
            node.args.extend([flag.to_owned(), value.to_string()]);
        };
        if let Some(key) = &self.key {
            add("--keyFile", &key.file.display());
            node.security = Security::member(&key.text);
        }
        if let Some((tls, authority)) = &self.tls {
            let certificate = authority.issue(&node.name, "members")?;
            add("--tlsMode", &"requireTLS");
            add("--tlsCertificateKeyFile", &certificate.display());
            add("--tlsCAFile", &authority.file().display());
            if *tls == Tls::X509 {
                add("--clusterAuthMode", &"x509");
                node.security = Security::certificate();
            }
            let security = std::mem::take(&mut node.security);
            node.security = security.with_tls(authority.file(), Some(&certificate));
        }
        Ok(())
    }

    /// The certificate authority of the set.
    pub fn authority(&self) -> Result<&Authority> {
        let (_, authority) = self.tls.as_ref().context("the set has no TLS")?;
        Ok(authority)
    }

    /// The authority's certificate file.
    pub fn ca_file(&self) -> Result<&Path> {
        Ok(self.authority()?.file())
    }

    /// The scratch directory of the test.
    pub fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }

    /// Starts a node (ours or a mongod) and adds it as a hidden member. Returns its index.
    pub fn add(&mut self, options: NodeOptions, member: Member) -> Result<usize> {
        let node = Node::start(options, &mut self.scratch)?;
        self.adopt(node, member)
    }

    /// Adds a running node as a hidden member. Returns its index.
    pub fn adopt(&mut self, node: Node, member: Member) -> Result<usize> {
        let host = node.host();
        self.nodes.push(node);
        self.reconfig(|config| {
            let members = config.get_array_mut("members")?;
            let next = members
                .iter()
                .filter_map(|member| member.as_document()?.get_i32("_id").ok())
                .max()
                .map_or(0, |id| id + 1);
            members.push(Bson::Document(doc! {
                "_id": next, "host": &host, "hidden": true, "priority": 0, "votes": member.votes,
            }));
            Ok(())
        })?;
        Ok(self.nodes.len() - 1)
    }

    /// Changes the config on the primary and increments its version.
    pub fn reconfig(&self, change: impl Fn(&mut Document) -> Result<()>) -> Result<()> {
        // While a config is not committed yet, the primary refuses the next one.
        wait_until("the set takes a new config", PATIENCE, || {
            let primary = self.primary()?;
            let mut config =
                primary.admin(doc! { "replSetGetConfig": 1 })?.get_document("config")?.clone();
            let version = config.get_i32("version")?;
            config.insert("version", version + 1);
            change(&mut config)?;
            primary.admin(doc! { "replSetReconfig": config })?;
            Ok(Some(()))
        })
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All nodes: first the mongods, then those that were added.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, index: usize) -> Result<&Node> {
        self.nodes.get(index).ok_or_else(|| anyhow!("the set has no node {index}"))
    }

    /// One node, to stop, kill or restart it.
    pub fn node_mut(&mut self, index: usize) -> Result<&mut Node> {
        self.nodes.get_mut(index).ok_or_else(|| anyhow!("the set has no node {index}"))
    }

    /// The node that currently reports itself as primary.
    pub fn primary(&self) -> Result<&Node> {
        self.nodes.get(self.primary_index()?).context("the primary")
    }

    /// Index of the primary.
    pub fn primary_index(&self) -> Result<usize> {
        let is_primary = |node: &Node| {
            !node.is_ours()
                && node.process().is_ok()
                && node
                    .admin(doc! { "isMaster": 1 })
                    .is_ok_and(|reply| reply.get_bool("ismaster").unwrap_or_default())
        };
        self.nodes.iter().position(is_primary).ok_or_else(|| anyhow!("no node is primary"))
    }

    /// Waits for a primary.
    pub fn await_primary(&self) -> Result<&Node> {
        let index =
            wait_until("the set has a primary", PATIENCE, || self.primary_index().map(Some))?;
        self.node(index)
    }

    /// Our node; the first one if there are several.
    pub fn ours(&self) -> Result<&Node> {
        self.node(self.our_index()?)
    }

    /// Index of our node.
    pub fn our_index(&self) -> Result<usize> {
        self.nodes.iter().position(Node::is_ours).ok_or_else(|| anyhow!("no node is ours"))
    }

    /// Our node, to stop, kill or restart it.
    pub fn ours_mut(&mut self) -> Result<&mut Node> {
        let index = self.our_index()?;
        self.node_mut(index)
    }

    /// Waits until the primary shows this node in this state ("SECONDARY").
    pub fn await_state(&self, node: &Node, state: &str, limit: Duration) -> Result<()> {
        let what = format!("the primary shows {} as {state}", node.name());
        wait_until(&what, limit, || {
            let shown = self.shown_state(node)?;
            if shown == state { Ok(Some(())) } else { bail!("it shows {shown}") }
        })
    }

    /// The state in which the primary shows a node.
    pub fn shown_state(&self, node: &Node) -> Result<String> {
        let status = self.primary()?.admin(doc! { "replSetGetStatus": 1 })?;
        let host = node.host();
        let members = status.get_array("members")?.iter().filter_map(Bson::as_document);
        let member = members
            .into_iter()
            .find(|member| member.get_str("name").is_ok_and(|name| name == host))
            .ok_or_else(|| anyhow!("the primary knows no member {host}"))?;
        Ok(member.get_str("stateStr")?.to_owned())
    }

    /// Waits until every member's vote counts: the primary removes `newlyAdded` by a reconfig of its own.
    pub fn await_votes(&self) -> Result<()> {
        wait_for("the config has no newlyAdded", PATIENCE, || {
            let reply = self.primary()?.admin(doc! { "replSetGetConfig": 1 })?;
            let members = reply.get_document("config")?.get_array("members")?;
            let is_new = |member: &Bson| {
                member.as_document().is_none_or(|member| member.contains_key("newlyAdded"))
            };
            Ok(!members.iter().any(is_new))
        })
    }

    /// Waits until all nodes have applied what the primary had applied at the call.
    pub fn await_caught_up(&self) -> Result<()> {
        self.await_caught_up_within(PATIENCE)
    }

    /// Like [`Self::await_caught_up`], with a limit.
    pub fn await_caught_up_within(&self, limit: Duration) -> Result<()> {
        let primary = self.await_primary()?;
        let goal = applied(primary)?;
        for node in self.nodes.iter().filter(|node| node.process().is_ok()) {
            let what = format!("{} has applied {goal}", node.name());
            wait_until(&what, limit, || {
                let there = applied(node)?;
                if there >= goal { Ok(Some(())) } else { bail!("it has applied {there}") }
            })?;
        }
        Ok(())
    }

    /// Fails unless every node has the primary's data, collections and indexes.
    pub fn assert_same_data(&self) -> Result<()> {
        let primary = self.await_primary()?;
        for node in self.nodes.iter().filter(|node| node.port() != primary.port()) {
            self.await_caught_up()?;
            hashes::assert_same_data(primary, node)?;
        }
        Ok(())
    }

    /// Sets how many lines of each log are printed on failure.
    pub fn show_tail(&mut self, lines: usize) {
        self.scratch.show_tail(lines);
    }

    /// Declares a text that is expected in our log, so that it does not fail the test.
    pub fn expect_log(&mut self, text: &str) {
        self.expected_log.push(text.to_owned());
    }

    /// Ends a successful test: all nodes must have the same data, our nodes must end cleanly on SIGTERM, and their
    /// logs must have no unexpected line.
    pub fn finish(self) -> Result<()> {
        self.assert_same_data()?;
        self.finish_without_comparing()
    }

    /// Like [`Self::finish`], for tests in which the data cannot be equal.
    pub fn finish_without_comparing(mut self) -> Result<()> {
        for node in self.nodes.iter_mut().filter(|node| node.is_ours()) {
            if node.is_running() {
                let status = node.stop()?;
                if !status.success() {
                    bail!("{} ended with {status} on SIGTERM", node.name());
                }
            }
            logs::assert_no_unexpected_line(&node.log_path(), &self.expected_log)?;
        }
        self.scratch.finish();
        Ok(())
    }

    fn initiate(&self, election_timeout: Duration) -> Result<()> {
        let members: Vec<Document> = (0i32..)
            .zip(&self.nodes)
            .map(|(id, node)| doc! { "_id": id, "host": node.host() })
            .collect();
        let timeout = i32::try_from(election_timeout.as_millis()).context("election timeout")?;
        let first = self.nodes.first().ok_or_else(|| anyhow!("a set needs a mongod"))?;
        first.admin(doc! { "replSetInitiate": {
            "_id": &self.name,
            "members": members,
            "settings": { "electionTimeoutMillis": timeout, "heartbeatIntervalMillis": HEARTBEAT_MS },
        }})?;
        wait_until("the new set has a primary", PATIENCE, || {
            if self.primary_index().is_ok() {
                return Ok(Some(()));
            }
            // Without this the node would wait for an election timeout before its first election.
            if self.nodes.len() > 1 {
                first.admin(doc! { "replSetStepUp": 1 })?;
            }
            Ok(None)
        })?;
        self.await_caught_up()
    }
}

/// Writes a key file that only we can read.
pub fn write_key(dir: &Path, key: &str) -> Result<PathBuf> {
    let path = dir.join(format!("key-{}", key.len()));
    std::fs::write(&path, key).context("write the key file")?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    Ok(path)
}

/// The applied optime that a node reports.
pub fn applied(node: &Node) -> Result<AppliedOpTime> {
    let status = node.admin(doc! { "replSetGetStatus": 1 })?;
    let op_time = status.get_document("optimes")?.get_document("appliedOpTime")?;
    let Timestamp { time, increment } = op_time.get_timestamp("ts")?;
    Ok(AppliedOpTime { term: op_time.get_i64("t")?, time, increment })
}

/// An optime; compares in oplog order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppliedOpTime {
    /// The election term.
    pub term: i64,
    /// Seconds.
    pub time: u32,
    /// Increment within the second.
    pub increment: u32,
}

impl std::fmt::Display for AppliedOpTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timestamp({}, {}) of term {}", self.time, self.increment, self.term)
    }
}

/// Four times as often as the default, so that members see state changes sooner.
const HEARTBEAT_MS: i32 = 500;

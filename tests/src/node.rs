//! One server: a mongod or Understudy.
//!
//! A node keeps its port, its data and its place in the set's config when it is stopped, killed and restarted.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bson::{Document, doc};
use mongodb::sync::Client;
use rustix::process::Signal;

use crate::driver::{self, Security};
use crate::logs;
use crate::port::Port;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::scratch::{Children, Scratch};
use crate::servers::{MongodBinary, Version};
use crate::wait::{PATIENCE, wait_until};
use crate::{mongod, understudy};

/// The program of a node.
#[derive(Clone, Debug)]
pub enum Program {
    /// A real server.
    Mongod(MongodBinary),
    /// Our binary.
    Understudy(PathBuf),
}

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name in logs and messages.
    pub name: String,
    /// The program.
    pub program: Program,
    /// The set's name, or none for a standalone server.
    pub repl_set: Option<String>,
    /// More command line arguments.
    pub args: Vec<String>,
    /// Whether the set reaches it through a proxy.
    pub proxied: bool,
    /// How the test's own client connects to it.
    pub security: Security,
}

/// A server with its port, its data directory and its log.
#[derive(Debug)]
pub struct Node {
    options: NodeOptions,
    port: Port,
    dir: PathBuf,
    process: Option<Process>,
    environment: Vec<(String, String)>,
    client: Client,
    proxy: Option<Proxy>,
    children: Children,
}

impl Node {
    /// Starts a server in a directory of its own below `scratch` and waits until it answers.
    pub fn start(options: NodeOptions, scratch: &mut Scratch) -> Result<Self> {
        let mut node = Self::prepare(options, scratch)?;
        node.launch()?;
        node.await_answer()?;
        Ok(node)
    }

    /// A node that is not started yet; [`Node::launch`] starts it.
    pub fn prepare(options: NodeOptions, scratch: &mut Scratch) -> Result<Self> {
        let dir = scratch.path().join(&options.name);
        std::fs::create_dir_all(dir.join("data")).context("create the data directory")?;
        scratch.watch_log(&options.name, &dir.join("log"));
        let port = Port::take()?;
        let by_message = options.security.tls.is_none();
        let open = if by_message { Proxy::to_server } else { Proxy::to };
        let proxy = options.proxied.then(|| open(port.number())).transpose()?;
        let client = driver::connect_as(port.number(), &options.security)?;
        let children = scratch.children().clone();
        let environment = Vec::new();
        Ok(Self { options, port, dir, process: None, environment, client, proxy, children })
    }

    /// Starts the process and returns at once.
    pub fn launch(&mut self) -> Result<()> {
        let mut command = self.command();
        command.envs(self.environment.iter().cloned());
        let process = Process::spawn(&self.options.name, &command, &self.log_path())?;
        self.children.add(process.id());
        self.process = Some(process);
        Ok(())
    }

    /// Waits until it answers `ping`. If the process exits early, the error shows the end of its log.
    pub fn await_answer(&mut self) -> Result<()> {
        let what = format!("{} answers ping on port {}", self.name(), self.port());
        let mut ended = None;
        let answered = wait_until(&what, PATIENCE, || {
            ended = match &mut self.process {
                Some(process) => process.exit_status()?,
                None => bail!("it is not started"),
            };
            if ended.is_some() {
                return Ok(Some(false));
            }
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number()))?;
            match driver::answer(&self.client, "admin", doc! { "ping": 1 }) {
                Ok(_) => Ok(Some(true)),
                // The server refuses our login, so it is up.
                Err(error) if driver::is_login_refused(&error) => Ok(Some(true)),
                Err(error) => Err(error),
            }
        });
        let tail = || logs::tail(&self.log_path(), 15);
        match answered {
            Ok(true) => Ok(()),
            Ok(false) => {
                let status = ended.map_or_else(String::new, |status| status.to_string());
                bail!("{} ended at its start ({status}); its log:\n{}", self.name(), tail())
            }
            Err(e) => Err(e.context(format!("the log of {}:\n{}", self.name(), tail()))),
        }
    }

    /// Sends SIGTERM, waits until the process has ended, and returns its exit status.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let mut process = self.take_process()?;
        process.signal(Signal::TERM)?;
        process.await_exit(PATIENCE)
    }

    /// Waits until the process ends by itself, and returns its exit status.
    pub fn await_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.take_process()?.await_exit(limit)
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.take_process()?.kill()
    }

    /// Restarts it on its port with its data, and waits until it answers.
    pub fn restart(&mut self) -> Result<()> {
        if self.is_running() {
            bail!("{} still runs", self.name());
        }
        // A new client is needed: the old one's pool holds dead connections.
        self.client = driver::connect_as(self.port.number(), &self.options.security)?;
        self.launch()?;
        self.await_answer()
    }

    /// Empties its data directory; the node must be stopped.
    pub fn wipe(&mut self) -> Result<()> {
        if self.is_running() {
            bail!("{} still runs", self.name());
        }
        std::fs::remove_dir_all(self.data_path()).context("remove the data")?;
        std::fs::create_dir(self.data_path()).context("create the data directory")
    }

    /// Suspends the process with SIGSTOP, to simulate a hung machine.
    pub fn freeze(&self) -> Result<()> {
        self.process()?.signal(Signal::STOP)
    }

    /// Resumes a suspended process.
    pub fn thaw(&self) -> Result<()> {
        self.process()?.signal(Signal::CONT)
    }

    /// Runs one command; `ok: 0` is an error.
    pub fn run(&self, db: &str, command: Document) -> Result<Document> {
        driver::run(&self.client, db, command).with_context(|| self.name().to_owned())
    }

    /// Runs one command on the admin database.
    pub fn admin(&self, command: Document) -> Result<Document> {
        self.run("admin", command)
    }

    /// Runs one command and returns the reply, also if it has `ok: 0`.
    pub fn answer(&self, db: &str, command: Document) -> Result<Document> {
        driver::answer(&self.client, db, command).with_context(|| self.name().to_owned())
    }

    /// Another client of this node, with different credentials.
    pub fn client_as(&self, security: &Security) -> Result<Client> {
        driver::connect_as(self.port(), security)
    }

    /// The arguments, to be changed before a restart.
    pub fn args_mut(&mut self) -> &mut Vec<String> {
        &mut self.options.args
    }

    /// The node's environment variables. Changes take effect at the next start.
    pub fn environment_mut(&mut self) -> &mut Vec<(String, String)> {
        &mut self.environment
    }

    /// The client's security options, to be changed before a restart.
    pub fn security_mut(&mut self) -> &mut Security {
        &mut self.options.security
    }

    /// The driver's client for this node alone.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Name in logs and messages.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Address in the set's config: that of its proxy, if it has one.
    pub fn host(&self) -> String {
        let port = self.proxy.as_ref().map_or(self.port(), Proxy::port);
        format!("127.0.0.1:{port}")
    }

    /// The proxy between the set and this node.
    pub fn proxy(&self) -> Result<&Proxy> {
        self.proxy.as_ref().ok_or_else(|| anyhow!("{} was started without proxy", self.name()))
    }

    /// True if it runs Understudy.
    pub fn is_ours(&self) -> bool {
        matches!(self.options.program, Program::Understudy(_))
    }

    /// The version of a real server.
    pub fn version(&self) -> Option<Version> {
        match &self.options.program {
            Program::Mongod(binary) => Some(binary.version),
            Program::Understudy(_) => None,
        }
    }

    /// True if its process runs.
    pub fn is_running(&mut self) -> bool {
        let status = self.process.as_mut().map(Process::exit_status);
        matches!(status, Some(Ok(None)))
    }

    /// Its process.
    pub fn process(&self) -> Result<&Process> {
        self.process.as_ref().ok_or_else(|| anyhow!("{} does not run", self.name()))
    }

    /// Its log.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Its data directory.
    pub fn data_path(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// True if its log contains this text.
    pub fn log_has(&self, text: &str) -> Result<bool> {
        let log = std::fs::read(self.log_path()).context("read the log")?;
        Ok(String::from_utf8_lossy(&log).contains(text))
    }

    /// Waits until the log contains this text.
    pub fn await_log(&self, text: &str, limit: Duration) -> Result<()> {
        let what = format!("the log of {} says {text:?}", self.name());
        wait_until(&what, limit, || Ok(self.log_has(text)?.then_some(())))
    }

    fn take_process(&mut self) -> Result<Process> {
        let process = self.process.take();
        let process = process.ok_or_else(|| anyhow!("{} does not run", self.options.name))?;
        self.children.remove(process.id());
        Ok(process)
    }

    fn command(&self) -> Command {
        let set = self.options.repl_set.as_deref();
        let data: &Path = &self.data_path();
        let args = &self.options.args;
        match &self.options.program {
            Program::Mongod(binary) => mongod::command(binary, self.port(), data, set, args),
            Program::Understudy(path) => understudy::command(path, self.port(), data, set, args),
        }
    }
}

//! Starts and ends the server.

use std::{io::Write, path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use bson::oid::ObjectId;
use protocol::client::{
    Authenticator, ConnectOptions, ScramAuthenticator, TlsConnector, X509Authenticator,
};
use repl::DataEvent;
use rustix::fs::Mode;
use storage::{EngineKind, Store, StoreOptions};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    time::sleep_until,
};

use crate::{
    auth::{Access, key_file::Keys},
    config::{self, Asked, Settings},
    context::Node,
    history_window::Warner,
    lanes::Lanes,
    listener::Listener,
    local::{self, Start},
    logging::Log,
    parameters::Parameters,
    replication::{Recovered, end_process},
    rollback::Surroundings,
    shutdown::Phase,
    tls::{Outgoing, Tls},
};

/// mongod's exit code for a wrong command line.
const EXIT_BAD_OPTIONS: u8 = 2;
/// mongod's exit code when it cannot listen.
const EXIT_NET_ERROR: u8 = 48;
/// mongod's exit code for everything else.
const EXIT_ABRUPT: u8 = 14;
/// mongod's exit code for a missing data directory.
const EXIT_UNCAUGHT: u8 = 100;

/// The whole life of the process.
pub fn run(argv: &[String]) -> ExitCode {
    let settings = match config::parse(argv) {
        Ok(Asked::Run(settings)) => *settings,
        Ok(Asked::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let program = argv.first().map_or("understudy", String::as_str);
            eprintln!("{error}\ntry '{program} --help' for more information");
            return ExitCode::from(EXIT_BAD_OPTIONS);
        }
    };
    // As in mongod, files are accessible only to the server's own user.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let log = match Log::open(&settings.log) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("Cannot open the log: {error}");
            return ExitCode::from(EXIT_BAD_OPTIONS);
        }
    };
    if let Err(error) = log.install() {
        eprintln!("Cannot install the log: {error}");
        return ExitCode::from(EXIT_ABRUPT);
    }
    // The allocator requests 2 MiB pages, and each stays resident even if little of it is used.
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(target: "CONTROL", ctx = "initandlisten", %error,
            "Cannot disable transparent huge pages; the process may use more memory");
    }
    match serve(settings, log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(target: "CONTROL", id = 20557, ctx = "initandlisten",
                error = format!("{error:#}"), "Error during startup, terminating");
            ExitCode::from(if error.is::<CannotListen>() {
                EXIT_NET_ERROR
            } else if error.is::<NoDataDirectory>() {
                EXIT_UNCAUGHT
            } else {
                EXIT_ABRUPT
            })
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("Failed to set up listener: {0}")]
struct CannotListen(std::io::Error);

/// A missing directory is an error: an unmounted disk must not look like an empty one.
#[derive(Debug, thiserror::Error)]
#[error(
    "NonExistentPath: Data directory {} not found. Make it, or name another one by --dbpath or by storage.dbPath in \
     the config file.", .0.display()
)]
struct NoDataDirectory(std::path::PathBuf);

fn serve(settings: Settings, log: Log) -> anyhow::Result<()> {
    let lanes = Lanes::new()?;
    let pid_file = settings.pid_file.clone();
    if let Some(path) = &pid_file {
        let mut file = std::fs::File::create(path)
            .with_context(|| format!("Cannot write the pid file {}", path.display()))?;
        writeln!(file, "{}", std::process::id())?;
    }
    let members = lanes.members();
    let result = lanes.run(live(settings, log, members));
    if let Some(path) = pid_file {
        // It may have been removed already.
        let _ = std::fs::remove_file(path);
    }
    result
}

async fn live(settings: Settings, log: Log, members: Handle) -> anyhow::Result<()> {
    tracing::info!(target: "CONTROL", id = 4615611, ctx = "initandlisten", pid = std::process::id(),
        port = settings.port, dbPath = %settings.db_path.display(), host = crate::system::host_name(),
        "MongoDB starting");
    tracing::info!(target: "CONTROL", id = 21951, ctx = "initandlisten", options = serde_json::to_string(&settings.parsed).unwrap_or_default(),
        "Options set by command line");
    for option in &settings.without_effect {
        tracing::warn!(target: "CONTROL", ctx = "initandlisten", startup_warning = true, option,
            "Option tunes an engine that is not used here and has no effect");
    }
    let keys = read_keys(&settings)?;
    let security = &settings.security;
    if !security.authorization {
        tracing::warn!(target: "CONTROL", id = 22120, ctx = "initandlisten", startup_warning = true,
            "Access control is not enabled for the database. Read and write access to data and configuration is unrestricted");
    }
    let tls = Tls::load(&settings.tls)?.map(Arc::new);
    let auth = Access::new(
        security.authorization,
        security.cluster_auth_mode,
        keys.as_ref(),
        tls.clone(),
    )?;
    let store = open_store(&settings)?;
    let recovered =
        settings.repl_set.is_some().then(|| Recovered::from(store.clone())).transpose()?;
    let delay = recovered.as_ref().map(Recovered::delay);
    let listener = Listener::bind(&settings).await.map_err(CannotListen)?;
    let process_id = ObjectId::new();
    let parameters = Arc::new(Parameters::new(&settings, &log)?);
    let surroundings = Arc::new(Surroundings::new(parameters.clone()));
    let replication = match (recovered, &settings.repl_set) {
        (Some(recovered), Some(set)) => {
            let connect = connect_options(&settings, keys.as_ref(), tls);
            // Tasks spawned here run on the threads for the set.
            let _entered = members.enter();
            Some(recovered.join(&settings, set, process_id, connect, surroundings.clone())?)
        }
        _ => None,
    };
    let repl = replication.as_ref().map(|member| member.repl.clone());
    let node =
        Node::new(settings, log, parameters, auth, process_id, repl, Some(store)).with_delay(delay);
    let start = Start {
        now: bson::DateTime::now(),
        options: &node.settings.parsed,
        profile: node.profile(),
        in_set: node.repl().is_some(),
    };
    local::note_start(node.store()?, &start)?;
    let node = Arc::new(node);
    surroundings.serve(&node);
    tracing::info!(target: "NETWORK", id = 23015, ctx = "listener",
        address = node.settings.bind_ips.join(","), "Listening on");
    tracing::info!(target: "NETWORK", id = 23016, ctx = "listener", port = node.settings.port,
        ssl = if node.auth.tls.is_some() { "on" } else { "off" }, "Waiting for connections");
    let signals = tokio::spawn(signals(node.clone()));
    let upkeep = members.spawn(upkeep(node.clone()));
    let scrubs = members.spawn(crate::scrub::run(node.clone(), members.clone()));
    let end = tokio::spawn(end(node.clone()));
    listener.run(node.clone()).await;
    end.await?;
    signals.abort();
    if let Some(replication) = replication {
        replication.stop().await;
    }
    upkeep.abort();
    scrubs.abort();
    tracing::info!(target: "CONTROL", id = 20565, ctx = "initandlisten", "Now exiting");
    tracing::info!(target: "CONTROL", id = 23138, ctx = "initandlisten", exitCode = 0, "Shutting down");
    Ok(())
}

/// Reads the key file; logs mongod's error if it is invalid.
fn read_keys(settings: &Settings) -> anyhow::Result<Option<Keys>> {
    let Some(path) = &settings.security.key_file else { return Ok(None) };
    let keys = Keys::read(path).map_err(|error| {
        tracing::error!(target: "ACCESS", id = 20254, ctx = "initandlisten", %error,
            "Read security file failed");
        anyhow::anyhow!("Unable to acquire security key[s]")
    })?;
    Ok(Some(keys))
}

/// Options for connections to other members: encryption and authentication.
fn connect_options(
    settings: &Settings,
    keys: Option<&Keys>,
    tls: Option<Arc<Tls>>,
) -> ConnectOptions {
    let tls = tls.filter(|tls| tls.mode().is_used_outwards());
    let tls = tls.map(|tls| Arc::new(Outgoing(tls)) as Arc<dyn TlsConnector>);
    if settings.security.cluster_auth_mode.sends_certificate() {
        let authenticator = Some(Arc::new(X509Authenticator) as Arc<dyn Authenticator>);
        return ConnectOptions { authenticator, tls, ..ConnectOptions::default() };
    }
    let member = keys.map(|keys| {
        let member = ScramAuthenticator::member(keys.iter().map(str::to_owned));
        Arc::new(member.optional(settings.security.transition)) as Arc<dyn Authenticator>
    });
    ConnectOptions { authenticator: member, tls, ..ConnectOptions::default() }
}

/// The size that a mongod gives its oplog: 5% of the free disk, at least 990 MB, at most 50 GB.
fn default_oplog_bytes(db_path: &Path) -> u64 {
    let free = rustix::fs::statvfs(db_path).map_or(0, |disk| disk.f_bavail * disk.f_frsize);
    (free / 20).clamp(990 << 20, 50 << 30)
}

fn open_store(settings: &Settings) -> anyhow::Result<Store> {
    let mut options = StoreOptions {
        engine: settings.storage_engine.parse().map_err(anyhow::Error::msg)?,
        ..StoreOptions::default()
    };
    if let Some(megabytes) = settings.oplog_size_mb {
        options.oplog_max_bytes = megabytes.saturating_mul(1024 * 1024);
    }
    if let Some(bytes) = settings.cache_bytes {
        options.cache_bytes = bytes;
    }
    options.oplog_min_retention = settings.oplog_min_retention;
    // Unless the operator has set a size, the oplog covers the whole readable history, as far as there is room.
    if settings.oplog_size_mb.is_none() {
        options.oplog_history_max_bytes = default_oplog_bytes(&settings.db_path);
    }
    if options.engine != EngineKind::Memory && !settings.db_path.exists() {
        return Err(NoDataDirectory(settings.db_path.clone()).into());
    }
    crate::read::spill::clear(&settings.db_path)
        .with_context(|| format!("Cannot remove spilled data in {}", settings.db_path.display()))?;
    let store = Store::open(&settings.db_path, options)
        .with_context(|| format!("Cannot open the data in {}", settings.db_path.display()))?;
    settings.history_window.set(&store);
    Ok(store)
}

/// Interval of upkeep: idle cursors, old history and the durable mark, which is at most this old.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// Closes idle cursors and lets the store trim what is no longer needed.
async fn upkeep(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut warner = Warner::default();
    loop {
        ticks.tick().await;
        let timeout = u64::try_from(node.parameters.cursor_timeout_millis()).unwrap_or(u64::MAX);
        node.cursors.expire(std::time::Instant::now(), Duration::from_millis(timeout));
        node.reply_buffers.trim();
        let Ok(store) = node.store().cloned() else { continue };
        let window = node.parameters.history_window();
        window.set(&store);
        warner.look(&window, &store);
        let done = tokio::task::spawn_blocking(move || store.maintain(bson::DateTime::now())).await;
        match done {
            Ok(Ok(())) => tell_of_damage(&node),
            Ok(Err(error)) => end_process(&error.to_string()),
            Err(error) => end_process(&error.to_string()),
        }
    }
}

/// A damaged store is not read, has no vote and acknowledges nothing.
fn tell_of_damage(node: &Node) {
    if let (Some(repl), Some(why)) = (node.repl(), node.store().ok().and_then(Store::damage)) {
        repl.tell(DataEvent::Damaged { why });
    }
}

/// Quiesces, then ends.
async fn end(node: Arc<Node>) {
    if let Phase::Quiescing { until } = node.shutdown.begun().await {
        tracing::info!(target: "REPL", id = 4794602, ctx = "SignalHandler", "Attempting to enter quiesce mode");
        tokio::select! {
            () = sleep_until(until) => {}
            () = node.shutdown.ended() => {}
        }
    }
    tracing::info!(target: "NETWORK", id = 20562, ctx = "SignalHandler", "Shutdown: going to close all sockets");
    node.shutdown.end();
}

/// SIGTERM and SIGINT end the server, SIGUSR1 rotates the log.
async fn signals(node: Arc<Node>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut user1 = signal(SignalKind::user_defined1())?;
    loop {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = user1.recv() => {
                if let Err(error) = node.log.rotate() {
                    tracing::error!(target: "CONTROL", id = 23168, error = %error, "Log rotation failed");
                }
                continue;
            }
        };
        tracing::info!(target: "CONTROL", id = 23377, ctx = "SignalHandler", signal = name, "Received signal");
        // A second Ctrl-C: the operator does not want to wait until clients have disconnected.
        if name == "SIGINT" && node.shutdown.phase() != Phase::Running {
            node.shutdown.end();
        }
        let millis = u64::try_from(node.parameters.shutdown_timeout_millis()).unwrap_or(0);
        let quiesce = if node.quiesces() { millis } else { 0 };
        node.shutdown.begin(Duration::from_millis(quiesce));
    }
}

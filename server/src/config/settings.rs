//! The second step of configuration: meanings, defaults and limits.

use protocol::Profile;
use std::{path::PathBuf, time::Duration};

use bson::{Bson, Document};

use super::{
    ConfigError, SecuritySettings, TlsSettings,
    options::{Given, Kind, OPTIONS, Support, by_key},
    security, tls,
};
use crate::history_window::HistoryWindow;

/// All settings, fixed before the server starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The command line, for getCmdLineOpts.
    pub argv: Vec<String>,
    /// The given options, nested as getCmdLineOpts shows them.
    pub parsed: Document,
    /// Port to listen on.
    pub port: u16,
    /// Addresses to listen on.
    pub bind_ips: Vec<String>,
    /// Backlog of the listening sockets.
    pub listen_backlog: u32,
    /// Maximum number of connections.
    pub max_conns: usize,
    /// Names of the compressors to negotiate, preferred first.
    pub compressors: Vec<String>,
    /// The data directory.
    pub db_path: PathBuf,
    /// Directory below which backups may be written.
    pub backup_root: Option<PathBuf>,
    /// Interval of scrubs, which read all files and verify their checksums; `None`: never.
    pub scrub_interval: Option<Duration>,
    /// Name of the storage engine.
    pub storage_engine: String,
    /// Size of the engine's cache.
    pub cache_bytes: Option<u64>,
    /// How far back reads can go.
    pub history_window: HistoryWindow,
    /// The replica set to join; `None` for a standalone.
    pub repl_set: Option<String>,
    /// Size of the oplog.
    pub oplog_size_mb: Option<u64>,
    /// Minimum time for which oplog entries are kept, whatever the size.
    pub oplog_min_retention: Duration,
    /// The log.
    pub log: LogSettings,
    /// Operations slower than this are logged.
    pub slow_ms: u64,
    /// Access control.
    pub security: SecuritySettings,
    /// TLS.
    pub tls: TlsSettings,
    /// Path of the file for the process id.
    pub pid_file: Option<PathBuf>,
    /// The release to show, whatever the set's is.
    pub impersonate: Option<&'static Profile>,
    /// `--setParameter` pairs.
    pub parameters: Vec<(String, String)>,
    /// Accepted options without effect, as the user wrote them.
    pub without_effect: Vec<String>,
}

/// Where log lines are written, and which ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogSettings {
    /// The log file; `None` is standard output.
    pub path: Option<PathBuf>,
    /// Append to an existing file instead of renaming it.
    pub append: bool,
    /// What logRotate does.
    pub rotate: LogRotate,
    /// The format; `None`: text on a terminal, otherwise JSON.
    pub format: Option<LogFormat>,
    /// The level, 0 to 5.
    pub verbosity: u8,
    /// Do not log connections.
    pub quiet: bool,
    /// Log times in the local zone instead of UTC.
    pub local_time: bool,
}

/// What happens to the log file when it is rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogRotate {
    /// The file is renamed with the time as suffix, and a new file is started.
    #[default]
    Rename,
    /// Reopen the file, because somebody else has moved it.
    Reopen,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// mongod's structured lines.
    Json,
    /// Human-readable text.
    Text,
}

const DEFAULT_COMPRESSORS: &str = "snappy,zstd,zlib";
/// mongod's default; the limit of file descriptors is usually lower.
const MAX_CONNS: i64 = 1_000_000;
/// The system limits it to `somaxconn`.
const LISTEN_BACKLOG: i64 = 4096;
const VERBOSITY_MAX: i64 = 5;

impl Settings {
    pub(super) fn resolve(argv: &[String], mut given: Given) -> Result<Self, ConfigError> {
        let mut wrong = Wrong(std::mem::take(&mut given.wrong));
        let security = wrong.note(security::resolve(&given));
        let text = |key: &str| given.text(key).map(str::to_owned);
        let verbosity = wrong.range(&given, "systemLog.verbosity", 0, 0, VERBOSITY_MAX);
        let oplog_size = given.text("replication.oplogSizeMB").is_some();
        let oplog_size =
            oplog_size.then(|| wrong.range(&given, "replication.oplogSizeMB", 1, 1, 1 << 31));
        let backlog = wrong.range(&given, "net.listenBacklog", LISTEN_BACKLOG, 1, 1 << 30);
        let conns = wrong.range(&given, "net.maxIncomingConnections", MAX_CONNS, 5, MAX_CONNS);
        let slow_ms = "operationProfiling.slowOpThresholdMs";
        let settings = Self {
            argv: argv.to_vec(),
            parsed: nested(&given),
            port: narrow(wrong.range(&given, "net.port", 27017, 1, 65535)),
            bind_ips: wrong.note(bind_ips(&given)),
            listen_backlog: narrow(backlog),
            max_conns: narrow(conns),
            compressors: wrong.note(compressors(given.text("net.compression.compressors"))),
            db_path: text("storage.dbPath").unwrap_or_else(|| "/data/db".to_owned()).into(),
            backup_root: wrong.note(backup_root(given.text("storage.backupRoot"))),
            scrub_interval: wrong.note(scrub_interval(&given)),
            storage_engine: wrong.note(engine(given.text("storage.engine"))),
            cache_bytes: wrong.note(cache_bytes(&given)),
            history_window: wrong.note(history_window(given.text("storage.historyWindow"))),
            repl_set: wrong.note(given.text("replication.replSet").map(set_name).transpose()),
            oplog_size_mb: oplog_size.map(narrow),
            oplog_min_retention: wrong.note(min_retention(&given)),
            log: wrong.note(log_settings(&given, narrow(verbosity))),
            slow_ms: narrow(wrong.range(&given, slow_ms, 100, 0, i64::MAX)),
            tls: wrong.note(tls::resolve(&given, &security)),
            security,
            pid_file: text("processManagement.pidFilePath").map(PathBuf::from),
            impersonate: wrong
                .note(given.text("processManagement.impersonate").map(profile).transpose()),
            without_effect: without_effect(&given),
            parameters: given.parameters.into_iter().collect(),
        };
        match wrong.0.len() {
            0 => Ok(settings),
            1 => Err(wrong.0.remove(0)),
            _ => Err(ConfigError::Several(wrong.0)),
        }
    }
}

/// The errors so far. An invalid value is replaced by the default, which is never used because the start fails.
struct Wrong(Vec<ConfigError>);

impl Wrong {
    fn note<T: Default>(&mut self, result: Result<T, ConfigError>) -> T {
        result.unwrap_or_else(|wrong| {
            self.0.push(wrong);
            T::default()
        })
    }

    fn range(&mut self, given: &Given, key: &str, default: i64, min: i64, max: i64) -> i64 {
        let value = match given.int(key) {
            Ok(value) => value.unwrap_or(default),
            Err(wrong) => {
                self.0.push(wrong);
                default
            }
        };
        if value < min {
            let text = format!("{key} must be greater than or equal to {min}");
            self.0.push(ConfigError::Value(text));
            return min;
        }
        if value > max {
            self.0.push(ConfigError::Value(format!("{key} must be less than or equal to {max}")));
            return max;
        }
        value
    }
}

/// Converts a number whose range was checked.
fn narrow<T: TryFrom<i64>>(value: i64) -> T {
    T::try_from(value).ok().expect("the range was checked")
}

fn bind_ips(given: &Given) -> Result<Vec<String>, ConfigError> {
    let ipv6 = given.switch("net.ipv6")?;
    let all = || if ipv6 { vec!["::".to_owned()] } else { vec!["0.0.0.0".to_owned()] };
    if given.switch("net.bindIpAll")? {
        return Ok(all());
    }
    let Some(list) = given.text("net.bindIp") else { return Ok(vec!["127.0.0.1".to_owned()]) };
    if list == "*" {
        return Ok(all());
    }
    let ips: Vec<String> =
        list.split(',').map(str::trim).filter(|ip| !ip.is_empty()).map(str::to_owned).collect();
    if ips.is_empty() {
        return Err(ConfigError::Value("net.bindIp must name an address".to_owned()));
    }
    Ok(ips)
}

fn compressors(list: Option<&str>) -> Result<Vec<String>, ConfigError> {
    let list = list.unwrap_or(DEFAULT_COMPRESSORS);
    if list == "disabled" {
        return Ok(Vec::new());
    }
    list.split(',')
        .map(|name| match name {
            "snappy" | "zstd" | "zlib" => Ok(name.to_owned()),
            _ => Err(ConfigError::Value(format!(
                "Invalid network message compressor specified in configuration: {name}"
            ))),
        })
        .collect()
}

fn engine(name: Option<&str>) -> Result<String, ConfigError> {
    match name {
        // "wiredTiger" is accepted, so that a mongod's config file can be used.
        None | Some("fjall" | "wiredTiger") => Ok("fjall".to_owned()),
        Some("memory") => Ok("memory".to_owned()),
        Some(name) => Err(ConfigError::Value(format!(
            "Cannot start server with an unknown storage engine: {name}; use fjall or memory"
        ))),
    }
}

/// mongod's maximum cache size, in GiB.
const CACHE_GB_MAX: f64 = 10_000.0;

fn cache_bytes(given: &Given) -> Result<Option<u64>, ConfigError> {
    let key = "storage.wiredTiger.engineConfig.cacheSizeGB";
    let Some(gib) = given.float(key)? else { return Ok(None) };
    if !(0.0..=CACHE_GB_MAX).contains(&gib) {
        return Err(ConfigError::Value(format!("{key} must be between 0 and {CACHE_GB_MAX}")));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
    let bytes = (gib * f64::from(1 << 30)) as u64;
    Ok(Some(bytes))
}

/// Parses `<setname>` or `<setname>/<seeds>`; the seeds are ignored.
fn set_name(text: &str) -> Result<String, ConfigError> {
    let name = text.split('/').next().unwrap_or_default();
    if name.is_empty() {
        return Err(ConfigError::Value("replication.replSetName must not be empty".to_owned()));
    }
    Ok(name.to_owned())
}

fn min_retention(given: &Given) -> Result<Duration, ConfigError> {
    hours(given, "storage.oplogMinRetentionHours", 0.0)
}

fn scrub_interval(given: &Given) -> Result<Option<Duration>, ConfigError> {
    const WEEK_HOURS: f64 = 168.0;
    let every = hours(given, "storage.scrubIntervalHours", WEEK_HOURS)?;
    Ok((!every.is_zero()).then_some(every))
}

fn hours(given: &Given, key: &str, default: f64) -> Result<Duration, ConfigError> {
    const SECS_PER_HOUR: f64 = 3600.0;
    let hours = given.float(key)?.unwrap_or(default);
    match Duration::try_from_secs_f64(hours * SECS_PER_HOUR) {
        Ok(duration) => Ok(duration),
        Err(_) if hours > 0.0 => Ok(Duration::MAX),
        Err(_) => Err(ConfigError::Value(format!("{key} must be greater than or equal to 0"))),
    }
}

fn backup_root(text: Option<&str>) -> Result<Option<PathBuf>, ConfigError> {
    let root = text.map(PathBuf::from);
    if root.as_ref().is_some_and(|root| !root.is_absolute()) {
        let why = "storage.backupRoot must be an absolute path".to_owned();
        return Err(ConfigError::Value(why));
    }
    Ok(root)
}

fn history_window(text: Option<&str>) -> Result<HistoryWindow, ConfigError> {
    text.map_or(Ok(HistoryWindow::default()), str::parse)
        .map_err(|error| ConfigError::Value(error.to_string()))
}

fn profile(text: &str) -> Result<&'static Profile, ConfigError> {
    Profile::named(text).ok_or_else(|| {
        let known: Vec<_> = Profile::all().iter().map(|profile| profile.fcv).collect();
        ConfigError::Value(format!("--impersonate {text} is not one of {}", known.join(", ")))
    })
}

fn log_settings(given: &Given, verbosity: u8) -> Result<LogSettings, ConfigError> {
    let one_of = |key: &str, what: &str| {
        ConfigError::Value(format!("{key} must be {what}, not '{}'", given.text(key).unwrap_or("")))
    };
    let path = given.text("systemLog.path").map(PathBuf::from);
    match (given.text("systemLog.destination"), &path) {
        (None, _) | (Some("file"), Some(_)) => {}
        (Some("file"), None) => {
            return Err(ConfigError::Value(
                "systemLog.path is required if systemLog.destination is to file".to_owned(),
            ));
        }
        (Some("syslog"), _) => {
            let why = "run it in the foreground under the service manager of the system";
            return Err(ConfigError::Unsupported { name: "systemLog.destination".to_owned(), why });
        }
        (Some(_), _) => return Err(one_of("systemLog.destination", "'file'")),
    }
    Ok(LogSettings {
        path,
        append: given.switch("systemLog.logAppend")?,
        rotate: match given.text("systemLog.logRotate") {
            None | Some("rename") => LogRotate::Rename,
            Some("reopen") => LogRotate::Reopen,
            Some(_) => return Err(one_of("systemLog.logRotate", "'rename' or 'reopen'")),
        },
        format: match given.text("systemLog.logFormat") {
            None => None,
            Some("json") => Some(LogFormat::Json),
            Some("text") => Some(LogFormat::Text),
            Some(_) => return Err(one_of("systemLog.logFormat", "'json' or 'text'")),
        },
        verbosity,
        quiet: given.switch("systemLog.quiet")?,
        local_time: match given.text("systemLog.timeStampFormat") {
            None | Some("iso8601-local") => true,
            Some("iso8601-utc") => false,
            Some(_) => {
                return Err(one_of(
                    "systemLog.timeStampFormat",
                    "'iso8601-utc' or 'iso8601-local'",
                ));
            }
        },
    })
}

fn without_effect(given: &Given) -> Vec<String> {
    let idle = |key: &str| by_key(key).is_some_and(|opt| opt.support == Support::NoEffect);
    given.values.iter().filter(|(key, _)| idle(key)).map(|(_, at)| at.name.clone()).collect()
}

/// The given options with their types, nested as getCmdLineOpts shows them.
fn nested(given: &Given) -> Document {
    let mut root = Document::new();
    for (key, written) in &given.values {
        let kind = OPTIONS.iter().find(|opt| opt.key == *key).map_or(Kind::Text, |opt| opt.kind);
        insert(&mut root, key, typed(kind, &written.text));
    }
    if !given.parameters.is_empty() {
        let pairs = given.parameters.iter().map(|(name, value)| (name.clone(), Bson::from(value)));
        root.insert("setParameter", pairs.collect::<Document>());
    }
    if given.values.contains_key("systemLog.path") {
        insert(&mut root, "systemLog.destination", "file".into());
    }
    root
}

fn typed(kind: Kind, text: &str) -> Bson {
    let number = match kind {
        Kind::Int | Kind::Verbosity => text.parse::<i32>().ok().map(Bson::Int32),
        Kind::Float => text.parse::<f64>().ok().map(Bson::Double),
        Kind::Switch => text.parse::<bool>().ok().map(Bson::Boolean),
        Kind::Text | Kind::Pairs => None,
    };
    number.unwrap_or_else(|| text.into())
}

fn insert(root: &mut Document, key: &str, value: Bson) {
    match key.split_once('.') {
        None => {
            root.insert(key, value);
        }
        Some((section, rest)) => {
            if !matches!(root.get(section), Some(Bson::Document(_))) {
                root.insert(section, Document::new());
            }
            if let Some(Bson::Document(inner)) = root.get_mut(section) {
                insert(inner, rest, value);
            }
        }
    }
}

//! Server parameters: those of mongod that have a meaning here.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use bson::{Bson, RawBson, RawBsonRef};
use parking_lot::Mutex;
use repl::{Patience, RollbackSettings, io::delay::Clock};

use crate::{config::Settings, history_window::HistoryWindow, logging::Log};

/// One parameter.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Whether setParameter accepts it at run time.
    pub at_run_time: bool,
    kind: Kind,
}

enum Kind {
    /// A number stored here, with its default and its limits.
    Int { slot: Slot, default: i64, min: i64, max: i64, long: bool },
    /// Like `Int`, for a boolean.
    Flag { slot: Slot, default: bool },
    /// The clock of a delayed member, which replication stores.
    DelayedClock,
    /// The history window.
    HistoryWindow,
    /// The verbosity of the log.
    LogLevel,
    /// Whether connections are logged.
    Quiet,
    /// A value that cannot be changed.
    Fixed(fn() -> Bson),
    /// A value determined by the settings.
    Setting(fn(&Named) -> &'static str),
}

#[derive(Clone, Copy)]
enum Slot {
    ShutdownTimeoutMillis,
    CursorTimeoutMillis,
    SlowMs,
    TestCommands,
    LocalhostAuthBypass,
    AuthFailedDelayMs,
    InitialSyncAttempts,
    InitialSyncRetrySecs,
    RollbackLimitSecs,
    RollbackFiles,
    RollbackBatchSize,
}

const SLOTS: usize = 11;

/// Settings that are shown as parameters.
struct Named {
    cluster_auth_mode: &'static str,
    tls_mode: &'static str,
}

/// The values.
pub struct Parameters {
    log: Log,
    history_window: Mutex<HistoryWindow>,
    named: Named,
    slots: [AtomicI64; SLOTS],
}

/// Why a `--setParameter` is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// An unknown parameter.
    #[error("Unknown --setParameter '{0}'")]
    Unknown(String),
    /// It cannot be set, or not to this value.
    #[error("Bad value for parameter \"{name}\": {reason}")]
    Value {
        /// The parameter.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl Parameters {
    /// Default values, overridden by the command line.
    pub fn new(settings: &Settings, log: &Log) -> Result<Self, ParameterError> {
        let named = Named {
            cluster_auth_mode: settings.security.cluster_auth_mode.name(),
            tls_mode: settings.tls.mode.name(),
        };
        let this = Self {
            log: log.clone(),
            named,
            history_window: Mutex::new(settings.history_window),
            slots: Default::default(),
        };
        for parameter in PARAMETERS {
            match parameter.kind {
                Kind::Int { slot, default, .. } => {
                    this.slot(slot).store(default, Ordering::Relaxed);
                }
                Kind::Flag { slot, default } => {
                    this.slot(slot).store(i64::from(default), Ordering::Relaxed);
                }
                _ => {}
            }
        }
        this.slot(Slot::SlowMs)
            .store(i64::try_from(settings.slow_ms).unwrap_or(i64::MAX), Ordering::Relaxed);
        for (name, text) in &settings.parameters {
            let parameter = find(name).ok_or_else(|| ParameterError::Unknown(name.clone()))?;
            let value = match text.as_str() {
                "true" => RawBson::Boolean(true),
                "false" => RawBson::Boolean(false),
                text => {
                    text.parse().map_or_else(|_| RawBson::String(text.to_owned()), RawBson::Int64)
                }
            };
            this.set(parameter, value.as_raw_bson_ref())?;
        }
        Ok(this)
    }

    /// The value for getParameter.
    pub fn get(&self, parameter: &Parameter) -> Bson {
        match parameter.kind {
            Kind::Int { slot, long, .. } => {
                let value = self.slot(slot).load(Ordering::Relaxed);
                match i32::try_from(value) {
                    Ok(value) if !long => Bson::Int32(value),
                    _ => Bson::Int64(value),
                }
            }
            Kind::Flag { slot, .. } => Bson::Boolean(self.slot(slot).load(Ordering::Relaxed) != 0),
            Kind::DelayedClock => Bson::String(Clock::Run.to_string()),
            Kind::HistoryWindow => Bson::String(self.history_window().to_string()),
            Kind::LogLevel => Bson::Int32(i32::from(self.log.verbosity())),
            Kind::Quiet => Bson::Boolean(self.log.quiet()),
            Kind::Fixed(value) => value(),
            Kind::Setting(name) => name(&self.named).into(),
        }
    }

    /// Sets a value.
    pub fn set(&self, parameter: &Parameter, value: RawBsonRef<'_>) -> Result<(), ParameterError> {
        let refused = |reason: &str| {
            Err(ParameterError::Value {
                name: parameter.name.to_owned(),
                reason: reason.to_owned(),
            })
        };
        let number = match value {
            RawBsonRef::Int32(n) => Some(i64::from(n)),
            RawBsonRef::Int64(n) => Some(n),
            RawBsonRef::Boolean(flag) => Some(i64::from(flag)),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "saturates, and is checked against bounds"
            )]
            RawBsonRef::Double(n) => Some(n as i64),
            _ => None,
        };
        if let Kind::HistoryWindow = parameter.kind {
            let text = match (value, number) {
                (RawBsonRef::String(text), _) => text.to_owned(),
                (_, Some(secs)) => secs.to_string(),
                _ => return refused("it must be a string such as '24h,20GB', or seconds"),
            };
            match text.parse() {
                Ok(window) => *self.history_window.lock() = window,
                Err(error) => return refused(&format!("{error}")),
            }
            return Ok(());
        }
        match (&parameter.kind, number) {
            (Kind::Int { slot, min, max, .. }, Some(n)) if (*min..=*max).contains(&n) => {
                self.slot(*slot).store(n, Ordering::Relaxed);
            }
            (Kind::Flag { slot, .. }, Some(n)) => {
                self.slot(*slot).store(i64::from(n != 0), Ordering::Relaxed);
            }
            (Kind::LogLevel, Some(n @ 0..=5)) => {
                self.log.set_verbosity(u8::try_from(n).unwrap_or(0))
            }
            (Kind::Quiet, Some(n)) => self.log.set_quiet(n != 0),
            (Kind::DelayedClock, _) => return refused("it is set at run time only"),
            (Kind::Fixed(_) | Kind::Setting(_), _) => return refused("it cannot be changed"),
            (_, Some(_)) => return refused("it is out of bounds"),
            (_, None) => return refused("it must be a number"),
        }
        Ok(())
    }

    /// How long a member quiesces when a signal ends it.
    pub(crate) fn shutdown_timeout_millis(&self) -> i64 {
        self.slot(Slot::ShutdownTimeoutMillis).load(Ordering::Relaxed)
    }

    /// Timeout of idle cursors.
    pub(crate) fn cursor_timeout_millis(&self) -> i64 {
        self.slot(Slot::CursorTimeoutMillis).load(Ordering::Relaxed)
    }

    /// Whether the localhost exception is enabled.
    pub(crate) fn localhost_auth_bypass(&self) -> bool {
        self.slot(Slot::LocalhostAuthBypass).load(Ordering::Relaxed) != 0
    }

    /// Delay of the reply to a failed login.
    pub(crate) fn auth_failed_delay(&self) -> Duration {
        let millis = self.slot(Slot::AuthFailedDelayMs).load(Ordering::Relaxed);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// The retry limits of initial syncs.
    pub(crate) fn initial_sync_patience(&self) -> Patience {
        let attempts = self.slot(Slot::InitialSyncAttempts).load(Ordering::Relaxed);
        let secs = self.slot(Slot::InitialSyncRetrySecs).load(Ordering::Relaxed);
        Patience {
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            retry_period: Duration::from_secs(u64::try_from(secs).unwrap_or(0)),
        }
    }

    /// The settings for rollback.
    pub fn rollback(&self) -> RollbackSettings {
        let batch = self.slot(Slot::RollbackBatchSize).load(Ordering::Relaxed);
        RollbackSettings {
            limit_secs: self.slot(Slot::RollbackLimitSecs).load(Ordering::Relaxed),
            write_files: self.slot(Slot::RollbackFiles).load(Ordering::Relaxed) != 0,
            batch_size: usize::try_from(batch).unwrap_or(1),
        }
    }

    /// Threshold of slow operations in the log.
    pub(crate) fn slow_ms(&self) -> i64 {
        self.slot(Slot::SlowMs).load(Ordering::Relaxed)
    }

    /// The history window.
    pub fn history_window(&self) -> HistoryWindow {
        *self.history_window.lock()
    }

    #[allow(clippy::indexing_slicing, reason = "the enum has as many values as the array")]
    fn slot(&self, slot: Slot) -> &AtomicI64 {
        &self.slots[slot as usize]
    }
}

/// The clock of a delayed member: `run`; `stop`, before something unwanted becomes due; or `cut`, which drops the
/// private tail.
pub(crate) const DELAYED_CLOCK: &str = "delayedClock";

/// All parameters, by name.
pub fn all() -> &'static [Parameter] {
    PARAMETERS
}

/// The parameter with this name.
pub fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name == name)
}

const fn int(name: &'static str, slot: Slot, default: i64, min: i64, max: i64) -> Parameter {
    Parameter { name, at_run_time: true, kind: Kind::Int { slot, default, min, max, long: false } }
}

const fn fixed(name: &'static str, value: fn() -> Bson) -> Parameter {
    Parameter { name, at_run_time: false, kind: Kind::Fixed(value) }
}

const fn setting(name: &'static str, value: fn(&Named) -> &'static str) -> Parameter {
    Parameter { name, at_run_time: false, kind: Kind::Setting(value) }
}

static PARAMETERS: &[Parameter] = &[
    Parameter {
        at_run_time: false,
        ..int("authFailedDelayMs", Slot::AuthFailedDelayMs, 0, 0, 5000)
    },
    fixed("authenticationMechanisms", || {
        Bson::Array(vec!["SCRAM-SHA-1".into(), "SCRAM-SHA-256".into()])
    }),
    setting("clusterAuthMode", |named| named.cluster_auth_mode),
    Parameter {
        name: "cursorTimeoutMillis",
        at_run_time: true,
        kind: Kind::Int {
            slot: Slot::CursorTimeoutMillis,
            default: 600_000,
            min: 1,
            max: i64::MAX,
            long: true,
        },
    },
    Parameter {
        name: "createRollbackDataFiles",
        at_run_time: true,
        kind: Kind::Flag { slot: Slot::RollbackFiles, default: true },
    },
    Parameter { name: DELAYED_CLOCK, at_run_time: true, kind: Kind::DelayedClock },
    Parameter { at_run_time: false, ..int("enableTestCommands", Slot::TestCommands, 0, 0, 1) },
    Parameter { name: "historyWindow", at_run_time: true, kind: Kind::HistoryWindow },
    Parameter {
        at_run_time: false,
        ..int("enableLocalhostAuthBypass", Slot::LocalhostAuthBypass, 1, 0, 1)
    },
    int(
        "initialSyncTransientErrorRetryPeriodSeconds",
        Slot::InitialSyncRetrySecs,
        24 * 60 * 60,
        0,
        i32::MAX as i64,
    ),
    fixed("localLogicalSessionTimeoutMinutes", || Bson::Int32(crate::sessions::TIMEOUT_MINUTES)),
    Parameter { name: "logLevel", at_run_time: true, kind: Kind::LogLevel },
    fixed("maxBSONDepth", || Bson::Int32(200)),
    fixed("maxSessions", || Bson::Int32(1_000_000)),
    int("numInitialSyncAttempts", Slot::InitialSyncAttempts, 10, 1, i32::MAX as i64),
    Parameter { name: "quiet", at_run_time: true, kind: Kind::Quiet },
    int("rollbackRemoteOplogQueryBatchSize", Slot::RollbackBatchSize, 2_000, 1, i32::MAX as i64),
    int("rollbackTimeLimitSecs", Slot::RollbackLimitSecs, 24 * 60 * 60, 1, i32::MAX as i64),
    int(
        "shutdownTimeoutMillisForSignaledShutdown",
        Slot::ShutdownTimeoutMillis,
        15_000,
        0,
        i32::MAX as i64,
    ),
    int("slowms", Slot::SlowMs, 100, -1, i32::MAX as i64),
    setting("sslMode", |named| match named.tls_mode {
        "allowTLS" => "allowSSL",
        "preferTLS" => "preferSSL",
        "requireTLS" => "requireSSL",
        other => other,
    }),
    setting("tlsMode", |named| named.tls_mode),
];

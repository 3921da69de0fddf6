//! The log in mongod's format.
//!
//! All crates log through `tracing`; this layer converts an event to mongod's structured line, or to a line of text:
//! ```text
//! {"t":{"$date":"…"},"s":"I",  "c":"NETWORK",  "id":22943,   "ctx":"listener","msg":"Connection accepted","attr":{…}}
//! ```
//! Special fields: `id` (mongod's number if the message has the same meaning), `ctx`, and `startup_warning`, which
//! keeps the line for `getLog: "startupWarnings"`. All others are `attr`. The component comes from the target: one of
//! our modules, or an explicit upper-case name.

mod line;
mod ring;
mod sink;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use parking_lot::Mutex;
use tracing::{Event, Level, Metadata, Subscriber, field::Visit};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogFormat, LogSettings};
use line::Line;
use ring::Ring;
pub use ring::RingView;
use sink::Sink;

/// The open log. Clones share it.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    sink: Mutex<Sink>,
    verbosity: AtomicU8,
    quiet: AtomicBool,
    format: LogFormat,
    local_time: bool,
    global: Mutex<Ring>,
    startup_warnings: Mutex<Ring>,
}

impl Log {
    /// Opens the log; renames an old file unless it is to be continued.
    pub fn open(settings: &LogSettings) -> io::Result<Self> {
        let sink = Sink::open(settings)?;
        let text = settings.path.is_none() && io::IsTerminal::is_terminal(&io::stdout());
        let by_place = if text { LogFormat::Text } else { LogFormat::Json };
        Ok(Self(Arc::new(Inner {
            sink: Mutex::new(sink),
            verbosity: AtomicU8::new(settings.verbosity),
            quiet: AtomicBool::new(settings.quiet),
            format: settings.format.unwrap_or(by_place),
            local_time: settings.local_time,
            global: Mutex::default(),
            startup_warnings: Mutex::default(),
        })))
    }

    /// Makes this the log of the process.
    pub fn install(&self) -> Result<(), tracing_subscriber::util::TryInitError> {
        tracing_subscriber::registry().with(self.clone()).try_init()?;
        // Filter early: the engine logs at every step.
        log::set_max_level(log::LevelFilter::Warn);
        Ok(())
    }

    /// Rotates the log for logRotate.
    pub fn rotate(&self) -> io::Result<()> {
        self.0.sink.lock().rotate()
    }

    /// The newest lines: `getLog: "global"`.
    pub fn global(&self) -> RingView {
        self.0.global.lock().view()
    }

    /// The startup warnings: `getLog: "startupWarnings"`.
    pub(crate) fn startup_warnings(&self) -> RingView {
        self.0.startup_warnings.lock().view()
    }

    /// The level: 0 (information) to 5.
    pub fn verbosity(&self) -> u8 {
        self.0.verbosity.load(Ordering::Relaxed)
    }

    /// Sets the level.
    pub(crate) fn set_verbosity(&self, level: u8) {
        self.0.verbosity.store(level.min(5), Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    /// True if connections are not logged.
    pub fn quiet(&self) -> bool {
        self.0.quiet.load(Ordering::Relaxed)
    }

    /// Sets whether connections are not logged.
    pub(crate) fn set_quiet(&self, quiet: bool) {
        self.0.quiet.store(quiet, Ordering::Relaxed);
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries log only warnings and errors.
        let ours = ["server", "repl", "storage", "query", "protocol", "understudy"];
        let target = metadata.target();
        let own = ours.iter().any(|name| {
            target.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        });
        let named = !target.bytes().any(|byte| byte.is_ascii_lowercase());
        let most = match self.verbosity() {
            _ if !own && !named => Level::WARN,
            0 => Level::INFO,
            1 => Level::DEBUG,
            _ => Level::TRACE,
        };
        *metadata.level() <= most
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_event() && self.wants(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let now = line::now(self.0.local_time);
        let mut fields = Fields::default();
        event.record(&mut fields);
        let warning = fields.startup_warning;
        let line = Line { now, metadata: event.metadata(), fields };
        let json = line.to_json();
        let out = match self.0.format {
            LogFormat::Json => None,
            LogFormat::Text => Some(line.to_text()),
        };
        self.0.sink.lock().write(out.as_deref().unwrap_or(&json));
        if warning {
            self.0.startup_warnings.lock().push(json.clone());
        }
        self.0.global.lock().push(json);
    }
}

/// A document as JSON for the log; long ones are abbreviated.
pub fn shown(doc: &bson::RawDocument) -> String {
    const LEN_MAX: usize = 4 * 1024;
    if doc.as_bytes().len() > LEN_MAX {
        return format!("(document of {} bytes)", doc.as_bytes().len());
    }
    serde_json::to_string(&doc).unwrap_or_else(|error| format!("(broken document: {error})"))
}

/// The fields of an event, by meaning.
#[derive(Default)]
struct Fields {
    id: u64,
    ctx: Option<String>,
    msg: String,
    startup_warning: bool,
    /// Name and JSON text of each other field.
    attr: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
        match field.name() {
            "id" => self.id = value,
            name => self.attr.push((name, value.to_string())),
        }
    }

    fn record_i64(&mut self, field: &tracing::field::Field, value: i64) {
        match field.name() {
            "id" => self.id = u64::try_from(value).unwrap_or(0),
            name => self.attr.push((name, value.to_string())),
        }
    }

    fn record_f64(&mut self, field: &tracing::field::Field, value: f64) {
        self.attr.push((field.name(), serde_json::Value::from(value).to_string()));
    }

    fn record_bool(&mut self, field: &tracing::field::Field, value: bool) {
        match field.name() {
            "startup_warning" => self.startup_warning = value,
            name => self.attr.push((name, value.to_string())),
        }
    }

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.msg),
            "ctx" => self.ctx = Some(value.to_owned()),
            name => self.attr.push((name, line::attr_value(value))),
        }
    }

    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests;

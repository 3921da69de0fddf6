//! Formats a log line as JSON or as text.

use std::fmt::Write;

use jiff::{Timestamp, tz::TimeZone};
use tracing::{Level, Metadata};

use super::Fields;

pub(super) struct Line<'a> {
    pub(super) now: String,
    pub(super) metadata: &'a Metadata<'a>,
    pub(super) fields: Fields,
}

impl Line<'_> {
    /// mongod's structured format, with its padding.
    pub(super) fn to_json(&self) -> String {
        let severity = self.severity();
        let component = self.component();
        let id = self.fields.id.to_string();
        let mut out = String::with_capacity(256);
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "{{\"t\":{{\"$date\":\"{}\"}},\"s\":\"{severity}\",{:s$}\"c\":\"{component}\",{:c$}\"id\":{id},{:i$}\"ctx\":{},\"msg\":{}",
            self.now,
            "",
            "",
            "",
            quoted(self.ctx()),
            quoted(&self.fields.msg),
            s = 3_usize.saturating_sub(severity.len()),
            c = 9_usize.saturating_sub(component.len()),
            i = 8_usize.saturating_sub(id.len()),
        );
        if !self.fields.attr.is_empty() {
            let pairs: Vec<_> =
                self.fields.attr.iter().map(|(name, json)| format!("\"{name}\":{json}")).collect();
            let _ = write!(out, ",\"attr\":{{{}}}", pairs.join(","));
        }
        if self.fields.startup_warning {
            out.push_str(",\"tags\":[\"startupWarnings\"]");
        }
        out.push('}');
        out
    }

    pub(super) fn to_text(&self) -> String {
        let mut out = format!(
            "{} {:<2} {:<8} [{}] {}",
            self.now,
            self.severity(),
            self.component(),
            self.ctx(),
            self.fields.msg
        );
        for (name, json) in &self.fields.attr {
            let _ = write!(out, " {name}={json}");
        }
        out
    }

    fn severity(&self) -> &'static str {
        match *self.metadata.level() {
            Level::ERROR => "E",
            Level::WARN => "W",
            Level::INFO => "I",
            Level::DEBUG => "D1",
            Level::TRACE => "D2",
        }
    }

    fn component(&self) -> &str {
        let target = self.metadata.target();
        if !target.bytes().any(|byte| byte.is_ascii_lowercase()) {
            return target;
        }
        let mut parts = target.split("::");
        match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
            ("repl", _) => "REPL",
            ("storage", _) => "STORAGE",
            ("query", _) => "QUERY",
            ("protocol", _) | ("server", "listener" | "connection") => "NETWORK",
            ("server", "commands" | "dispatch") => "COMMAND",
            ("server" | "understudy", _) => "CONTROL",
            _ => "-",
        }
    }

    /// mongod shows the thread; we show the task, or the module.
    fn ctx(&self) -> &str {
        self.fields
            .ctx
            .as_deref()
            .or_else(|| self.metadata.target().rsplit("::").next())
            .unwrap_or("-")
    }
}

/// Longer texts are truncated: what clients send must not fill the disk.
const TEXT_LEN_MAX: usize = 10 * 1024;

/// Formats a JSON string.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at >= TEXT_LEN_MAX) {
        Some((end, _)) => {
            let start = text.get(..end).unwrap_or_default();
            serde_json::Value::from(format!("{start}...")).to_string()
        }
        None => serde_json::Value::from(text).to_string(),
    }
}

/// Formats a value of `attr`. A text that is a JSON document or array is kept as it is; anything else becomes a
/// string.
pub(super) fn attr_value(text: &str) -> String {
    let document =
        text.starts_with(['{', '[']) && serde_json::from_str::<serde_json::Value>(text).is_ok();
    if document { text.to_owned() } else { quoted(text) }
}

/// The time in mongod's format.
pub(super) fn now(local: bool) -> String {
    let now = Timestamp::now();
    if local {
        now.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S.%3f%:z").to_string()
    } else {
        now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
    }
}

//! `status`: shows the state of a node on one screen, with an exit code for alerting.
//!
//! [`Found::ask`] queries the node. [`Found::report`] decides from the result alone what is printed and what is an
//! alarm.

use std::time::Duration;

use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};
use protocol::Timestamp;

use crate::{
    past::{Node, long, number},
    screen::{Paint, Screen, count, grouped},
};

/// The limits beyond which there is an alarm.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum seconds behind the primary.
    pub lag_secs: u64,
    /// Minimum percentage of the disk that must be free.
    pub disk_percent: u64,
}

/// The interval of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Clears the screen and moves to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Prints the state of a node, repeatedly with `watch`. True if there is no alarm.
pub fn run(screen: &mut Screen, from: &str, limits: Limits, watch: bool) -> Result<bool> {
    loop {
        let report = Found::ask(from)?.report(limits, |ts| screen.time(ts));
        if watch && !screen.is_json() {
            write!(screen.out(), "{CLEAR}")?;
        }
        report.print(screen)?;
        if !watch {
            return Ok(report.alarms.is_empty());
        }
        screen.out().flush()?;
        std::thread::sleep(WATCH_EVERY);
    }
}

/// The replies of a node to the status commands.
#[derive(Debug, Default)]
struct Found {
    server: Document,
    /// `None` if the node is not a member of a set.
    set: Option<Document>,
    oplog: Document,
    oplog_begin: Option<Timestamp>,
    database: Document,
}

impl Found {
    fn ask(from: &str) -> Result<Self> {
        let node = Node::connect(from)?;
        let run = |db: &str, command: Document| node.client.database(db).run_command(command).run();
        Ok(Self {
            server: run("admin", doc! { "serverStatus": 1 })?,
            set: run("admin", doc! { "replSetGetStatus": 1 }).ok(),
            // A node in initial sync has no oplog to show yet.
            oplog: run("local", doc! { "collStats": "oplog.rs" }).unwrap_or_default(),
            oplog_begin: node.oplog_begin().unwrap_or_default(),
            database: run("local", doc! { "dbStats": 1 }).unwrap_or_default(),
        })
    }

    fn report(&self, limits: Limits, time: impl Fn(Timestamp) -> String) -> Report {
        let mut report = Report::default();
        self.member(&mut report, limits);
        self.window(&mut report, &time);
        self.oplog(&mut report, &time);
        self.machine(&mut report, limits);
        self.safety(&mut report);
        report
    }

    /// Reports the identity of the node and its lag.
    fn member(&self, report: &mut Report, limits: Limits) {
        let host = self.server.get_str("host").unwrap_or("?");
        let version = self.server.get_str("version").unwrap_or("?");
        let up = span(number(self.server.get("uptimeEstimate")).unwrap_or(0));
        let Some(set) = &self.set else {
            report.line("node", format!("{host}, alone, as MongoDB {version}, up {up}"));
            return;
        };
        let members = documents(set, "members");
        let own = members.iter().find(|it| it.get_bool("self").unwrap_or(false));
        let state = own.map_or("UNKNOWN", |own| own.get_str("stateStr").unwrap_or("UNKNOWN"));
        let name = set.get_str("set").unwrap_or("?");
        report.line("node", format!("{host}, {state} of {name}, as MongoDB {version}, up {up}"));
        report.row.insert("state", state);
        if state != "SECONDARY" {
            report.alarm(format!("the state is {state}, not SECONDARY: see the node's log"));
        }
        let primary = members.iter().find(|it| it.get_i32("state").is_ok_and(|state| state == 1));
        let Some(primary) = primary else {
            report.line("lag", "not known: no primary is seen".to_owned());
            report.alarm("the node sees no primary: check the set and the network".to_owned());
            return;
        };
        let applied = |it: &Document| it.get_datetime("optimeDate").ok().copied();
        let behind = match (applied(primary), own.and_then(|own| applied(own))) {
            (Some(there), Some(here)) => there.timestamp_millis() - here.timestamp_millis(),
            _ => return,
        };
        let lag = u64::try_from(behind).unwrap_or(0) / 1000;
        let delay = self.delay_secs();
        let source = set.get_str("syncSourceHost").ok().filter(|it| !it.is_empty());
        let delayed =
            if delay > 0 { format!(", {} on purpose", span(delay)) } else { String::new() };
        report.line(
            "lag",
            format!(
                "{lag} s behind {}{delayed}, syncing from {}",
                primary.get_str("name").unwrap_or("?"),
                source.unwrap_or("nobody")
            ),
        );
        report.row.insert("lagSecs", long(lag));
        if lag > limits.lag_secs.saturating_add(delay) {
            report.alarm(format!("{lag} s behind the primary (--lag-max {})", limits.lag_secs));
        }
    }

    fn delay_secs(&self) -> u64 {
        let delayed = self.server.get_document("delayedMember").ok();
        delayed.and_then(|it| number(it.get("secondaryDelaySecs")).ok()).unwrap_or(0)
    }

    /// Reports how far back the node can be read.
    fn window(&self, report: &mut Report, time: &impl Fn(Timestamp) -> String) {
        let Ok(window) = self.server.get_document("historyWindow") else { return };
        let of = |name: &str| number(window.get(name)).unwrap_or(0);
        let at = |name: &str| window.get_timestamp(name).map(|ts| time(ts.into()));
        let (Ok(oldest), Ok(newest)) = (at("oldestReadable"), at("newestReadable")) else { return };
        let (reach, bytes, dropped) = (of("reachSecs"), of("bytes"), of("droppedBytes"));
        let wanted = window.get_str("window").unwrap_or("?");
        report.line("window", format!("{} of {wanted}: {oldest} to {newest}", span(reach)));
        let most = window.get("bytesMax").and_then(|max| number(Some(max)).ok());
        let limit = most.map_or(String::new(), |max| format!(" of {} at most", size(max)));
        let old = bytes.saturating_sub(dropped);
        report.line(
            "",
            format!(
                "{} of old versions{limit}, {} of dropped collections",
                size(old),
                size(dropped)
            ),
        );
        report.row.insert("windowSecs", long(reach));
        report.row.insert("windowBytes", long(bytes));
        // The same limit as for the node's own warning: nine tenths of the size are used.
        if most.is_some_and(|max| old.saturating_mul(10) >= max.saturating_mul(9)) {
            report.alarm(format!(
                "the history window is being cut by its size: raise it by setParameter historyWindow (now {wanted})"
            ));
        }
    }

    fn oplog(&self, report: &mut Report, time: &impl Fn(Timestamp) -> String) {
        let (Some(begin), Ok(bytes)) = (self.oplog_begin, number(self.oplog.get("size"))) else {
            return;
        };
        let entries = number(self.oplog.get("count")).unwrap_or(0);
        let from = time(begin);
        let entries = if entries == 1 {
            "1 entry".to_owned()
        } else {
            format!("{} entries", grouped(entries))
        };
        report.line("oplog", format!("from {from} on, {entries}, {}", size(bytes)));
        report.row.insert("oplogBegin", bson::Timestamp::from(begin));
        report.row.insert("oplogBytes", long(bytes));
    }

    /// Reports memory, connections and disk.
    fn machine(&self, report: &mut Report, limits: Limits) {
        let of = |section: &str, name: &str| {
            let section = self.server.get_document(section).ok();
            section.and_then(|section| number(section.get(name)).ok()).unwrap_or(0)
        };
        let resident = of("mem", "resident");
        let connections = count(of("connections", "current"), "connection");
        report.line("memory", format!("{resident} MiB, {connections}"));
        report.row.insert("memoryMiB", long(resident));
        let disk = |name: &str| number(self.database.get(name)).ok();
        let (Some(used), Some(total)) = (disk("fsUsedSize"), disk("fsTotalSize")) else { return };
        let free = total.saturating_sub(used);
        let percent = (free * 100).checked_div(total).unwrap_or(0);
        report.line("disk", format!("{} of {} free ({percent}%)", size(free), size(total)));
        report.row.insert("diskFreeBytes", long(free));
        if percent < limits.disk_percent {
            report.alarm(format!(
                "{percent}% of the disk are free (--disk-min {}): make room, or shorten the history window",
                limits.disk_percent
            ));
        }
    }

    /// Reports damage and backups.
    fn safety(&self, report: &mut Report) {
        let scrub = self.server.get_document("scrub").cloned().unwrap_or_default();
        let date = |doc: &Document, name: &str| doc.get_datetime(name).ok().map(day);
        let checked = match date(&scrub, "lastWhole") {
            Some(at) => format!("none; all files were checked at {at}"),
            None => "none is known; the files were not checked yet".to_owned(),
        };
        let last = scrub.get_document("last").cloned().unwrap_or_default();
        let damage = match scrub.get_str("damage") {
            Ok(damage) => Some(damage.to_owned()),
            Err(_) if last.get_str("result").is_ok_and(|it| it == "damaged") => {
                let files = last.get_array("damaged").map(Vec::as_slice).unwrap_or_default();
                Some(files.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Err(_) => None,
        };
        report.row.insert("damage", damage.clone());
        report.line("damage", damage.clone().unwrap_or(checked));
        if let Some(damage) = damage {
            report.alarm(format!(
                "the store is damaged ({damage}): restore a backup, or empty the dbpath to sync anew"
            ));
        }
        let backups = self.server.get_document("backups").cloned().unwrap_or_default();
        let text = match (backups.get_str("root"), backups.get_document("last")) {
            (_, Ok(last)) => format!(
                "the last at {} to {}, {}",
                date(&backups, "lastAt").unwrap_or_default(),
                last.get_str("path").unwrap_or("?"),
                size(number(last.get("bytes")).unwrap_or(0))
            ),
            (Ok(root), Err(_)) => format!("below {root}, none since the node was started"),
            (Err(_), Err(_)) => "none: the node was started without --backupRoot".to_owned(),
        };
        report.line("backups", text);
        if let Ok(at) = backups.get_datetime("lastAt") {
            report.row.insert("lastBackup", *at);
        }
    }
}

/// The output of `status`.
#[derive(Debug, Default)]
struct Report {
    lines: Vec<(&'static str, String)>,
    row: Document,
    alarms: Vec<String>,
}

impl Report {
    fn line(&mut self, name: &'static str, text: String) {
        self.lines.push((name, text));
    }

    fn alarm(&mut self, text: String) {
        self.alarms.push(text);
    }

    fn print(&self, screen: &mut Screen) -> Result<()> {
        if screen.is_json() {
            let mut row = self.row.clone();
            row.insert("alarms", self.alarms.clone());
            screen.row(&row, "")?;
            return Ok(());
        }
        for (name, text) in &self.lines {
            let name = screen.paint(Paint::Bold, format_args!("{name:<8}"));
            screen.say(format_args!("{name} {text}"))?;
        }
        let name = screen.paint(Paint::Bold, format_args!("{:<8}", "alarms"));
        if self.alarms.is_empty() {
            screen.say(format_args!("{name} {}", screen.paint(Paint::Green, "none")))?;
        }
        for alarm in &self.alarms {
            screen.say(format_args!("{name} {}", screen.paint(Paint::Red, alarm)))?;
        }
        Ok(())
    }
}

fn documents<'a>(doc: &'a Document, name: &str) -> Vec<&'a Document> {
    let list = doc.get_array(name).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Bson::as_document).collect()
}

/// Formats a duration by its two largest units, such as `3d 4h` or `12m 5s`.
fn span(secs: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut rest = secs;
    let mut parts = Vec::new();
    for (unit, name) in units {
        let n = rest / unit;
        rest %= unit;
        if n > 0 || !parts.is_empty() {
            parts.push((n, name));
        }
    }
    let parts = parts.iter().take(2).filter(|(n, _)| *n > 0);
    let text = parts.map(|(n, name)| format!("{n}{name}")).collect::<Vec<_>>().join(" ");
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Formats a size, such as `1.5 GiB`.
fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = bytes;
    while whole >= 1024 && unit + 1 < units.len() {
        whole /= 1024;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or("bytes");
    if unit == 0 {
        return format!("{bytes} {name}");
    }
    let tenths = u128::from(bytes) * 10 / (1_u128 << (10 * unit));
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

fn day(at: &DateTime) -> String {
    at.try_to_rfc3339_string().unwrap_or_else(|_| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let at = |secs: u32| bson::Timestamp { time: secs, increment: 1 };
        let date = |secs: i64| DateTime::from_millis(secs * 1000);
        Found {
            server: doc! {
                "host": "backup.example:27027", "version": "8.2.0", "uptimeEstimate": 273_600_i64,
                "historyWindow": {
                    "window": "24h,half", "oldestReadable": at(1_794_744_000),
                    "newestReadable": at(1_794_830_400), "reachSecs": 86_400_i64, "bytes": 300_000_000_i64,
                    "droppedBytes": 100_000_000_i64, "bytesMax": 268_435_456_i64,
                },
                "mem": { "resident": 120 }, "connections": { "current": 3 },
                "scrub": { "lastWhole": date(1_794_800_000) },
                "backups": { "root": "/backups", "lastAt": date(1_794_820_000),
                    "last": { "path": "/backups/monday", "bytes": 2_000_000_000_i64 } },
            },
            set: Some(doc! { "set": "rs0", "syncSourceHost": "db1.example:27017", "members": [
                { "name": "db1.example:27017", "state": 1, "stateStr": "PRIMARY", "optimeDate": date(1_794_830_401) },
                { "name": "backup.example:27027", "state": 2, "stateStr": "SECONDARY", "self": true,
                    "optimeDate": date(1_794_830_400) },
            ] }),
            oplog: doc! { "size": 1_500_000_000_i64, "count": 1_234_567_i64 },
            oplog_begin: Some(Timestamp::new(1_794_740_000, 1)),
            database: doc! { "fsUsedSize": 60_000_000_000_i64, "fsTotalSize": 100_000_000_000_i64 },
        }
    }

    fn shown(found: &Found) -> String {
        let limits = Limits { lag_secs: 60, disk_percent: 10 };
        let report = found.report(limits, protocol::moment::shown);
        let lines = report.lines.iter().map(|(name, text)| format!("{name:<8} {text}\n"));
        let alarms = report.alarms.iter().map(|text| format!("ALARM    {text}\n"));
        lines.chain(alarms).collect()
    }

    #[test]
    fn a_healthy_node_on_one_screen() {
        let want = "\
node     backup.example:27027, SECONDARY of rs0, as MongoDB 8.2.0, up 3d 4h
lag      1 s behind db1.example:27017, syncing from db1.example:27017
window   1d of 24h,half: 2026-11-15T12:00:00Z to 2026-11-16T12:00:00Z
         190.7 MiB of old versions of 256.0 MiB at most, 95.3 MiB of dropped collections
oplog    from 2026-11-15T10:53:20Z on, 1,234,567 entries, 1.3 GiB
memory   120 MiB, 3 connections
disk     37.2 GiB of 93.1 GiB free (40%)
damage   none; all files were checked at 2026-11-16T03:33:20Z
backups  the last at 2026-11-16T09:06:40Z to /backups/monday, 1.8 GiB
";
        assert_eq!(shown(&found()), want);
    }

    /// Each change of the node's replies raises an alarm with the expected text.
    #[test]
    fn every_alarm_is_raised() {
        let alarm = |change: &dyn Fn(&mut Found), says: &str| {
            let mut found = found();
            change(&mut found);
            let shown = shown(&found);
            assert!(shown.contains("ALARM") && shown.contains(says), "{says} in\n{shown}");
        };
        let members = |found: &mut Found, at: usize, name: &str, value: Bson| {
            let set = found.set.as_mut().unwrap();
            let list = set.get_array_mut("members").unwrap();
            list[at].as_document_mut().unwrap().insert(name, value);
        };
        alarm(&|it| members(it, 1, "stateStr", "RECOVERING".into()), "the state is RECOVERING");
        alarm(&|it| members(it, 0, "state", 2.into()), "sees no primary");
        let late = DateTime::from_millis(1_794_830_500_000);
        alarm(&|it| members(it, 0, "optimeDate", late.into()), "100 s behind the primary");
        alarm(&|it| drop(it.database.insert("fsUsedSize", 95_000_000_000_i64)), "5% of the disk");
        let section = |found: &mut Found, section: &str, name: &str, value: Bson| {
            found.server.get_document_mut(section).unwrap().insert(name, value);
        };
        alarm(
            &|it| section(it, "historyWindow", "bytesMax", 200_000_000_i64.into()),
            "being cut by its size",
        );
        alarm(&|it| section(it, "scrub", "damage", "table 7".into()), "damaged (table 7)");
    }

    #[test]
    fn a_delay_on_purpose_is_no_alarm() {
        let mut found = found();
        found.server.insert("delayedMember", doc! { "secondaryDelaySecs": 3600_i64 });
        let late = DateTime::from_millis((1_794_830_400 + 3630) * 1000);
        let list = found.set.as_mut().unwrap().get_array_mut("members").unwrap();
        list[0].as_document_mut().unwrap().insert("optimeDate", late);
        let shown = shown(&found);
        assert!(shown.contains("3630 s behind db1.example:27017, 1h on purpose"), "{shown}");
        assert!(!shown.contains("ALARM"), "{shown}");
    }
}

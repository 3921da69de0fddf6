use std::path::Path;

use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::config::LogRotate;

fn settings(path: Option<&Path>) -> LogSettings {
    LogSettings {
        path: path.map(Path::to_owned),
        append: false,
        rotate: LogRotate::Rename,
        format: Some(LogFormat::Json),
        verbosity: 0,
        quiet: false,
        local_time: false,
    }
}

fn logged(log: &Log, speak: impl FnOnce()) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(log.clone()), speak);
}

#[test]
fn a_line_is_mongods() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(&settings(Some(&dir.path().join("log")))).unwrap();
    logged(&log, || {
        tracing::info!(target: "NETWORK", id = 22943, ctx = "listener", remote = "1.2.3.4:5", n = 2, "Connection accepted");
        tracing::debug!(target: "NETWORK", "not at this level");
        tracing::warn!(target: "CONTROL", startup_warning = true, "a \"quoted\" word");
    });
    let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    let tail = r#""s":"I",  "c":"NETWORK",  "id":22943,   "ctx":"listener","msg":"Connection accepted","attr":{"remote":"1.2.3.4:5","n":2}}"#;
    assert!(lines[0].ends_with(tail), "{}", lines[0]);
    for line in &lines {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert_eq!(log.global().total, 2);
    assert_eq!(log.startup_warnings().lines, [lines[1]]);
}

#[test]
fn rotation_moves_the_file_aside_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(&settings(Some(&dir.path().join("log")))).unwrap();
    logged(&log, || {
        tracing::info!(target: "CONTROL", "before");
        log.rotate().unwrap();
        log.rotate().unwrap();
        tracing::info!(target: "CONTROL", "after");
    });
    let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(text.contains("after") && !text.contains("before"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn the_ring_keeps_the_newest() {
    let mut ring = Ring::default();
    for n in 0..3000 {
        ring.push(n.to_string());
    }
    let view = ring.view();
    assert_eq!((view.total, view.lines.len()), (3000, 1024));
    assert_eq!(view.lines.last().map(String::as_str), Some("2999"));
    ring.push("x".repeat(2 * 1024 * 1024));
    assert_eq!(ring.view().lines.len(), 1);
}

use super::*;

fn argv(args: &[&str]) -> Vec<String> {
    std::iter::once("understudy").chain(args.iter().copied()).map(str::to_owned).collect()
}

fn settings(args: &[&str]) -> Settings {
    match parse(&argv(args)) {
        Ok(Asked::Run(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

fn refusal(args: &[&str]) -> String {
    parse(&argv(args)).unwrap_err().to_string()
}

fn with_file(text: &str, args: &[&str]) -> Result<Asked, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mongod.conf");
    std::fs::write(&path, text).unwrap();
    let mut all = vec!["--config", path.to_str().unwrap()];
    all.extend(args);
    parse(&argv(&all))
}

#[test]
fn backups_have_no_place_by_default_and_an_absolute_one_if_any() {
    assert_eq!(settings(&[]).backup_root, None);
    let given = settings(&["--backupRoot", "/srv/backups"]).backup_root;
    assert_eq!(given.unwrap().to_str(), Some("/srv/backups"));
    assert!(refusal(&["--backupRoot", "backups"]).contains("absolute"));
}

#[test]
fn a_scrub_comes_once_a_week_unless_told_otherwise() {
    let hours = |args: &[&str]| settings(args).scrub_interval.map(|every| every.as_secs() / 3600);
    assert_eq!(hours(&[]), Some(168));
    assert_eq!(hours(&["--scrubIntervalHours", "24"]), Some(24));
    assert_eq!(hours(&["--scrubIntervalHours", "0"]), None);
    assert!(refusal(&["--scrubIntervalHours", "-1"]).contains("scrubIntervalHours"));
}

#[test]
fn defaults_are_mongods() {
    let settings = settings(&[]);
    assert_eq!(settings.port, 27017);
    assert_eq!(settings.bind_ips, ["127.0.0.1"]);
    assert_eq!(settings.max_conns, 1_000_000);
    assert_eq!(settings.compressors, ["snappy", "zstd", "zlib"]);
    assert_eq!(settings.db_path.to_str(), Some("/data/db"));
    assert_eq!(settings.repl_set, None);
    assert_eq!(settings.history_window.to_string(), "24h,half");
}

#[test]
fn flags_win_over_the_file() {
    let file = "
# comment
net:
  port: 27030
  bindIp: 10.0.0.1,localhost
net.maxIncomingConnections: 99
replication:
  replSetName: rs7
storage: {dbPath: /srv/x, journal: {enabled: true}}
systemLog: {destination: file, path: /var/log/u.log, logAppend: true, verbosity: 2}
setParameter: {logLevel: 1, enableTestCommands: true}
";
    let Ok(Asked::Run(got)) = with_file(file, &["--port", "27031", "--setParameter", "logLevel=3"])
    else {
        panic!("refused")
    };
    assert_eq!(got.port, 27031);
    assert_eq!(got.bind_ips, ["10.0.0.1", "localhost"]);
    assert_eq!(got.max_conns, 99);
    assert_eq!(got.repl_set.as_deref(), Some("rs7"));
    assert!(got.log.append);
    assert_eq!(got.log.verbosity, 2);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(got.parameters, [pair("enableTestCommands", "true"), pair("logLevel", "3")]);
    assert_eq!(got.without_effect, ["storage.journal.enabled"]);
    assert_eq!(got.parsed.get_document("net").unwrap().get_i32("port").unwrap(), 27031);
}

#[test]
fn unknown_options_get_mongods_words() {
    assert_eq!(refusal(&["--foo"]), "Error parsing command line: unrecognised option '--foo'");
    assert_eq!(
        refusal(&["--port"]),
        "Error parsing command line: the required argument for option '--port' is missing"
    );
    assert_eq!(
        refusal(&["--port", "abc"]),
        "Error parsing option \"port\" as int: Did not consume whole string."
    );
    assert_eq!(refusal(&["--port", "70000"]), "net.port must be less than or equal to 65535");
    assert_eq!(
        refusal(&["-f", "no-such-file.yaml"]),
        "Error opening config file 'no-such-file.yaml': No such file or directory"
    );
    let unknown = with_file("net:\n  foo: 1\n", &[]).unwrap_err();
    assert_eq!(unknown.to_string(), "Unrecognized option: net.foo");
    let mistyped = with_file("net:\n  port: abc\n", &[]).unwrap_err();
    assert_eq!(
        mistyped.to_string(),
        "Error parsing option \"net.port\" as int: Did not consume whole string."
    );
    let broken = with_file("net:\n port: 1\n  x: [", &[]).unwrap_err();
    assert!(matches!(broken, ConfigError::Yaml(_)), "{broken}");
}

#[test]
fn an_option_we_lack_is_refused_by_name() {
    let password = ["--tlsCertificateKeyFilePassword", "p"];
    for args in [&password[..], &["--tlsCRLFile", "k"], &["--configsvr"], &["--fork"]] {
        let err = refusal(args);
        assert!(err.contains("does not support"), "{err}");
    }
    let err = with_file("sharding:\n  clusterRole: shardsvr\n", &[]).unwrap_err();
    assert!(matches!(err, ConfigError::Unsupported { .. }), "{err}");
}

#[test]
fn access_control_goes_by_the_rules_of_mongod() {
    let security = |args: &[&str]| settings(args).security;
    assert!(!security(&[]).authorization);
    assert!(security(&["--auth"]).authorization);
    let keyed = security(&["--replSet", "rs", "--keyFile", "k"]);
    assert!(keyed.authorization && keyed.cluster_auth_mode == ClusterAuthMode::KeyFile);
    let on_the_way = security(&["--keyFile", "k", "--transitionToAuth"]);
    assert!(!on_the_way.authorization && on_the_way.transition);
    let Ok(Asked::Run(got)) = with_file("security:\n  authorization: enabled\n", &[]) else {
        panic!("refused")
    };
    assert!(got.security.authorization);
    for (args, says) in [
        (&["--auth", "--replSet", "rs"][..], "security.keyFile is required"),
        (&["--transitionToAuth"], "must be used with keyFile or x509"),
        (&["--clusterAuthMode", "keyFile"], "keyFile is required"),
        (&["--clusterAuthMode", "magic"], "unsupported value for clusterAuthMode magic"),
        (&["--clusterAuthMode", "x509"], "need to enable TLS"),
    ] {
        let err = refusal(args);
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

#[test]
fn tls_goes_by_the_rules_of_mongod() {
    let files = ["--tlsCertificateKeyFile", "c", "--tlsCAFile", "a"];
    let with = |more: &[&str]| settings(&[more, &files[..]].concat()).tls;
    assert_eq!(with(&["--tlsMode", "preferTLS"]).mode, TlsMode::PreferTls);
    let tls = with(&["--tlsMode", "requireTLS", "--tlsDisabledProtocols", "TLS1_0,TLS1_2"]);
    assert!(tls.disable_1_2 && !tls.disable_1_3);
    for (args, says) in [
        (&["--tlsMode", "often"][..], "unsupported value for tlsMode often"),
        (&["--tlsMode", "requireTLS"], "need tlsCertificateKeyFile"),
        (&["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", "c"], "net.tls.CAFile"),
        (&["--tlsDisabledProtocols", "TLS9"], "Unrecognized disabledProtocols"),
    ] {
        let err = refusal(args);
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

#[test]
fn the_oplog_is_kept_by_time_too() {
    let kept = |args: &[&str]| settings(args).oplog_min_retention.as_secs();
    assert_eq!(kept(&[]), 0);
    assert_eq!(kept(&["--oplogMinRetentionHours", "1.5"]), 5400);
    let Ok(Asked::Run(got)) = with_file("storage:\n  oplogMinRetentionHours: 2\n", &[]) else {
        panic!("refused")
    };
    assert_eq!(got.oplog_min_retention.as_secs(), 7200);
    for hours in ["-1", "nan"] {
        let err = refusal(&["--oplogMinRetentionHours", hours]);
        assert!(err.contains("must be greater than or equal to 0"), "{err}");
    }
}

#[test]
fn verbosity_counts_letters() {
    assert_eq!(settings(&["-vvv"]).log.verbosity, 3);
    assert_eq!(settings(&["--vv"]).log.verbosity, 2);
    assert_eq!(settings(&["--verbose"]).log.verbosity, 1);
}

#[test]
fn windows_and_sets_are_read() {
    let window = |text| settings(&["--historyWindow", text]).history_window.to_string();
    assert_eq!(
        (window("24h,20GB"), window("90m"), window("0")),
        ("24h,20GB".to_owned(), "90m".to_owned(), "0".to_owned())
    );
    assert!(refusal(&["--historyWindow", "soon"]).contains("historyWindow"));
    assert_eq!(settings(&["--replSet", "rs/a:1,b:2"]).repl_set.as_deref(), Some("rs"));
    assert_eq!(settings(&["--impersonate", "5.0"]).impersonate.unwrap().fcv, "5.0");
}

#[test]
fn the_table_has_no_name_twice() {
    let mut flags: Vec<_> =
        options::OPTIONS.iter().map(|opt| opt.flag).filter(|flag| !flag.is_empty()).collect();
    let all = flags.len();
    flags.sort_unstable();
    flags.dedup();
    assert_eq!(flags.len(), all);
}

/// The config file that MongoDB's packages install, including its comments.
const PACKAGED: &str = "
storage:
  dbPath: /var/lib/mongodb
#  engine:
#  wiredTiger:

systemLog:
  destination: file
  logAppend: true
  path: /var/log/mongodb/mongod.log

net:
  port: 27017
  bindIp: 127.0.0.1

processManagement:
  timeZoneInfo: /usr/share/zoneinfo

#security:

#operationProfiling:

#replication:

#sharding:
";

#[test]
fn the_file_of_the_packages_is_taken_and_what_has_no_meaning_is_named() {
    let Ok(Asked::Run(got)) = with_file(PACKAGED, &["--replSet", "rs0"]) else { panic!("refused") };
    assert_eq!(got.db_path.to_str(), Some("/var/lib/mongodb"));
    assert_eq!(got.without_effect, ["processManagement.timeZoneInfo"]);
}

#[test]
fn what_the_server_does_anyway_is_taken_and_the_opposite_refused() {
    for (taken, refused) in [
        ("operationProfiling: {mode: off}", "operationProfiling: {mode: all}"),
        (
            "replication: {enableMajorityReadConcern: true}",
            "replication: {enableMajorityReadConcern: false}",
        ),
    ] {
        let got = with_file(taken, &[]);
        assert!(matches!(got, Ok(Asked::Run(_))), "{taken}: {got:?}");
        let err = with_file(refused, &[]).unwrap_err().to_string();
        assert!(err.contains("does not support"), "{refused}: {err}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let file = "net: {port: 70000, foo: 1}\nsharding: {clusterRole: shardsvr}\nprocessManagement: {fork: true}\n";
    let err = with_file(file, &["--historyWindow", "soon", "--setParameter", "x"]).unwrap_err();
    let ConfigError::Several(all) = &err else { panic!("{err}") };
    assert_eq!(all.len(), 6, "{err}");
    let text = err.to_string();
    for part in [
        "net.port must be less than or equal to 65535",
        "Unrecognized option: net.foo",
        "'sharding.clusterRole'",
        "'processManagement.fork'",
        "historyWindow 'soon'",
        "Illegal option assignment: \"x\"",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(text.lines().count(), 6, "{text}");
}

#[test]
fn completions_and_the_manual_page_are_printed() {
    let printed = |args: &[&str]| match parse(&argv(args)) {
        Ok(Asked::Print(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(printed(&["--completions", "bash"]).contains("--historyWindow"));
    assert!(printed(&["--manPage"]).contains("historyWindow"));
    assert!(printed(&["--version"]).starts_with("understudy 0."));
}

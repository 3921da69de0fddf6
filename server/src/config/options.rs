//! Every option of mongod: its flag, its name in the config file, its type, and how we treat it.

use std::collections::BTreeMap;

use super::ConfigError;

/// One option.
#[derive(Debug)]
pub(super) struct Opt {
    /// `--flag`; empty for an option that only the file has.
    pub(super) flag: &'static str,
    /// Dotted name in the YAML file; the flag itself if the file has no such option.
    pub(super) key: &'static str,
    pub(super) kind: Kind,
    pub(super) support: Support,
    /// Text for `--help`; empty for unsupported options.
    pub(super) help: &'static str,
}

/// The type of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Int,
    Float,
    /// A boolean that needs no argument on the command line.
    Switch,
    /// `-v` with as many letters as levels; a number in the file.
    Verbosity,
    /// `name=value`, repeatable; a mapping in the file.
    Pairs,
}

/// How we treat an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    Yes,
    /// Accepted with a warning: it tunes something this server does not have, and has no effect that a client could
    /// see.
    NoEffect,
    /// Accepted silently with this value, which is this server's behaviour anyway. Any other value is refused.
    Only(&'static str, &'static str),
    /// Refused. The text says what to do instead.
    No(&'static str),
}

/// A value as written, and its origin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Written {
    /// The flag or key as the user wrote it, for error texts.
    pub(super) name: String,
    pub(super) text: String,
}

/// The result of the first step: dotted keys with texts, and the `setParameter` pairs.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) values: BTreeMap<&'static str, Written>,
    pub(super) parameters: BTreeMap<String, String>,
    /// All errors so far. They are reported together.
    pub(super) wrong: Vec<ConfigError>,
}

impl Given {
    /// Records a value, or an error if the option is refused.
    pub(super) fn put(&mut self, opt: &'static Opt, name: &str, text: &str) {
        let refused = match opt.support {
            Support::Yes | Support::NoEffect => None,
            Support::No(_) if opt.kind == Kind::Switch && text == "false" => None,
            Support::No(why) => Some(why),
            // YAML parses an unquoted `off` as false.
            Support::Only("off", _) if text == "false" => None,
            Support::Only(value, why) => (value != text).then_some(why),
        };
        if let Some(why) = refused {
            self.wrong.push(ConfigError::Unsupported { name: name.to_owned(), why });
            return;
        }
        self.values.insert(opt.key, Written { name: name.to_owned(), text: text.to_owned() });
    }

    /// Adds a `setParameter` pair.
    pub(super) fn put_parameter(&mut self, name: &str, value: &str) {
        self.parameters.insert(name.to_owned(), value.to_owned());
    }

    /// Overrides values with those of `other`.
    pub(super) fn overlay(&mut self, other: Given) {
        self.values.extend(other.values);
        self.wrong.extend(other.wrong);
        self.parameters.extend(other.parameters);
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|written| written.text.as_str())
    }

    pub(super) fn switch(&self, key: &str) -> Result<bool, ConfigError> {
        match self.values.get(key) {
            None => Ok(false),
            Some(written) => match written.text.as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(written.mistyped("bool", "Did not consume whole string.")),
            },
        }
    }

    pub(super) fn int(&self, key: &str) -> Result<Option<i64>, ConfigError> {
        self.values
            .get(key)
            .map(|written| {
                written
                    .text
                    .parse()
                    .map_err(|_| written.mistyped("int", "Did not consume whole string."))
            })
            .transpose()
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.values
            .get(key)
            .map(|written| {
                written
                    .text
                    .parse()
                    .map_err(|_| written.mistyped("double", "Did not consume whole string."))
            })
            .transpose()
    }
}

impl Written {
    fn mistyped(&self, kind: &'static str, reason: &'static str) -> ConfigError {
        ConfigError::Type { name: self.name.clone(), kind, reason }
    }
}

/// The option with this key of the config file.
pub(super) fn by_key(key: &str) -> Option<&'static Opt> {
    let key = if key == "replication.replSetName" { "replication.replSet" } else { key };
    OPTIONS.iter().find(|opt| opt.key == key)
}

const fn yes(flag: &'static str, key: &'static str, kind: Kind, help: &'static str) -> Opt {
    Opt { flag, key, kind, support: Support::Yes, help }
}

const fn no_effect(flag: &'static str, key: &'static str, kind: Kind) -> Opt {
    Opt { flag, key, kind, support: Support::NoEffect, help: "" }
}

const fn only(
    flag: &'static str,
    key: &'static str,
    kind: Kind,
    value: &'static str,
    why: &'static str,
) -> Opt {
    Opt { flag, key, kind, support: Support::Only(value, why), help: "" }
}

const fn no(flag: &'static str, key: &'static str, kind: Kind, why: &'static str) -> Opt {
    Opt { flag, key, kind, support: Support::No(why), help: "" }
}

const NO_ALLOWLIST: &str = "let a firewall decide from where members may come";
const NO_TLS_PASSWORD: &str = "the key must be in plain PEM: protect the file by its permissions";
const NO_SHARDING: &str = "it is a member of a replica set and holds no sharding role of its own";
const NO_UNIX: &str = "it listens on TCP only";
const NO_SERVICE: &str = "run it in the foreground under the service manager of the system";
const NO_JOB: &str = "it is done by a command of its own, not by a start option";
const NO_PROFILER: &str = "there is no profiler";
const MAJORITY: &str = "majority reads are always on; leave the option out";

use Kind::{Float, Int, Pairs, Switch, Text, Verbosity};

/// The table, in the order of mongod's help.
#[rustfmt::skip]
pub(super) static OPTIONS: &[Opt] = &[
    yes("networkMessageCompressors", "net.compression.compressors", Text, "Comma-separated compressors for the network, or 'disabled' (default snappy,zstd,zlib)"),
    yes("config", "config", Text, "mongod's YAML configuration file"),
    no("configExpand", "configExpand", Text, "expand the file before it is read"),
    yes("port", "net.port", Int, "Port to listen on (default 27017)"),
    yes("ipv6", "net.ipv6", Switch, "Enable IPv6"),
    yes("listenBacklog", "net.listenBacklog", Int, "Backlog of the listening sockets (default SOMAXCONN)"),
    yes("maxConns", "net.maxIncomingConnections", Int, "Most connections at one time (default 1000000)"),
    yes("pidfilepath", "processManagement.pidFilePath", Text, "File to write the process id to"),
    no_effect("timeZoneInfo", "processManagement.timeZoneInfo", Text),
    yes("nounixsocket", "nounixsocket", Switch, "Taken for mongod's sake: there are no unix sockets"),
    no("", "net.unixDomainSocket.enabled", Switch, NO_UNIX),
    no("unixSocketPrefix", "net.unixDomainSocket.pathPrefix", Text, NO_UNIX),
    no("filePermissions", "net.unixDomainSocket.filePermissions", Text, NO_UNIX),
    no("fork", "processManagement.fork", Switch, NO_SERVICE),
    yes("verbose", "systemLog.verbosity", Verbosity, "Log more; -vvvvv for the most"),
    yes("quiet", "systemLog.quiet", Switch, "Do not log connections"),
    yes("logpath", "systemLog.path", Text, "Log file, instead of standard output"),
    no("syslog", "syslog", Switch, NO_SERVICE),
    no("syslogFacility", "systemLog.syslogFacility", Text, NO_SERVICE),
    yes("", "systemLog.destination", Text, ""),
    yes("logappend", "systemLog.logAppend", Switch, "Append to the log file instead of moving it aside"),
    yes("logRotate", "systemLog.logRotate", Text, "What logRotate does: rename or reopen (default rename)"),
    yes("timeStampFormat", "systemLog.timeStampFormat", Text, "Times in the log: iso8601-utc or iso8601-local"),
    yes("logFormat", "systemLog.logFormat", Text, "json (mongod's structured lines) or text (default: text at a terminal, else json)"),
    no_effect("", "systemLog.traceAllExceptions", Switch),
    yes("setParameter", "setParameter", Pairs, "Set a server parameter: name=value"),
    no("extensions", "processManagement.loadExtensions", Text, "there are no extensions"),
    yes("bind_ip", "net.bindIp", Text, "Comma-separated addresses to listen on (default localhost)"),
    yes("bind_ip_all", "net.bindIpAll", Switch, "Listen on all addresses"),
    yes("noauth", "noauth", Switch, "Run without access control"),
    yes("auth", "auth", Switch, "Run with access control"),
    yes("", "security.authorization", Text, ""),
    yes("transitionToAuth", "security.transitionToAuth", Switch, "Authenticate where the other side can, and refuse nobody"),
    yes("keyFile", "security.keyFile", Text, "File with the key that the members of the set share; turns access control on"),
    yes("clusterAuthMode", "security.clusterAuthMode", Text, "How members authenticate: keyFile, sendKeyFile, sendX509 or x509"),
    no("clusterIpSourceAllowlist", "security.clusterIpSourceAllowlist", Text, NO_ALLOWLIST),
    no("", "security.javascriptEnabled", Switch, "JavaScript is never run"),
    yes("noscripting", "noscripting", Switch, "Taken for mongod's sake: JavaScript is never run"),
    yes("slowms", "operationProfiling.slowOpThresholdMs", Int, "Log operations slower than this (default 100)"),
    no_effect("slowTaskWaitTimeProfilingMs", "operationProfiling.slowTaskWaitTimeProfilingMs", Int),
    no_effect("slowOpSampleRate", "operationProfiling.slowOpSampleRate", Float),
    no("profileFilter", "operationProfiling.filter", Text, NO_PROFILER),
    only("profile", "profile", Int, "0", NO_PROFILER),
    only("", "operationProfiling.mode", Text, "off", NO_PROFILER),
    no_effect("cpu", "cpu", Switch),
    no("sysinfo", "sysinfo", Switch, "run the hostInfo command"),
    no("notablescan", "notablescan", Switch, "every query is answered"),
    no("shutdown", "shutdown", Switch, "send SIGTERM to the process, or run the shutdown command"),
    no("proxyPort", "net.proxyPort", Int, "the proxy protocol is not spoken"),
    yes("oplogSize", "replication.oplogSizeMB", Int, "Size of the oplog in MB"),
    yes("replSet", "replication.replSet", Text, "Name of the replica set"),
    yes("replSetName", "replication.replSet", Text, "Name of the replica set"),
    only("", "replication.enableMajorityReadConcern", Switch, "true", MAJORITY),
    only("enableMajorityReadConcern", "enableMajorityReadConcern", Text, "true", MAJORITY),
    no("serverless", "replication.serverless", Text, "serverless mode belongs to Atlas"),
    no("configsvr", "configsvr", Switch, NO_SHARDING),
    no("shardsvr", "shardsvr", Switch, NO_SHARDING),
    no("", "sharding.clusterRole", Text, NO_SHARDING),
    no("routerPort", "net.routerPort", Int, NO_SHARDING),
    no("maintenanceMode", "sharding.maintenanceMode", Text, NO_SHARDING),
    yes("storageEngine", "storage.engine", Text, "Storage engine: fjall (default) or memory"),
    yes("dbpath", "storage.dbPath", Text, "Directory of the data (default /data/db)"),
    yes("historyWindow", "storage.historyWindow", Text, "How far back reads can go, by time, by size or both: 24h, 90m, 20GB, '24h,20GB', or 0 (default 24h,half: 24h, less if that outgrows half of the data)"),
    yes("backupRoot", "storage.backupRoot", Text, "Directory below which the command checkpoint may write backups (without it, nowhere)"),
    yes("scrubIntervalHours", "storage.scrubIntervalHours", Float, "Read all files in the background and compare them with their checksums, once in so many hours (default 168; 0: never)"),
    no_effect("directoryperdb", "storage.directoryPerDB", Switch),
    no_effect("syncdelay", "storage.syncPeriodSecs", Float),
    no_effect("journalCommitInterval", "storage.journal.commitIntervalMs", Int),
    no_effect("journal", "storage.journal.enabled", Switch),
    no("nojournal", "nojournal", Switch, "it is always durable"),
    no("upgrade", "upgrade", Switch, NO_JOB),
    no("repair", "repair", Switch, NO_JOB),
    no("validate", "validate", Switch, NO_JOB),
    no("restore", "restore", Switch, NO_JOB),
    no("queryableBackupMode", "storage.queryableBackupMode", Switch, NO_JOB),
    yes("oplogMinRetentionHours", "storage.oplogMinRetentionHours", Float, "Keep entries of the oplog for so many hours, whatever their size (default 0)"),
    no("grpcPort", "net.grpc.port", Int, "gRPC is not spoken"),
    no("grpcServerMaxThreads", "net.grpc.serverMaxThreads", Int, "gRPC is not spoken"),
    no("tlsOnNormalPorts", "tlsOnNormalPorts", Switch, "use --tlsMode requireTLS"),
    yes("tlsMode", "net.tls.mode", Text, "TLS: disabled, allowTLS, preferTLS or requireTLS"),
    yes("tlsCertificateKeyFile", "net.tls.certificateKeyFile", Text, "PEM file with our certificate and its key"),
    no("tlsCertificateKeyFilePassword", "net.tls.certificateKeyFilePassword", Text, NO_TLS_PASSWORD),
    yes("tlsClusterFile", "net.tls.clusterFile", Text, "PEM file with the certificate and key for other members, if they are others"),
    no("tlsClusterPassword", "net.tls.clusterPassword", Text, NO_TLS_PASSWORD),
    yes("tlsCAFile", "net.tls.CAFile", Text, "PEM file with the authorities whose certificates are believed"),
    yes("tlsClusterCAFile", "net.tls.clusterCAFile", Text, "The same for those who come to us, if they are others"),
    no("tlsCRLFile", "net.tls.CRLFile", Text, "revocation lists are not read; give out certificates that are valid for a short time"),
    yes("tlsDisabledProtocols", "net.tls.disabledProtocols", Text, "Versions that are not to be spoken: TLS1_2 or TLS1_3"),
    yes("tlsAllowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates", Switch, "A client needs no certificate"),
    yes("tlsAllowInvalidHostnames", "net.tls.allowInvalidHostnames", Switch, "A member's certificate may be for another host"),
    yes("tlsAllowInvalidCertificates", "net.tls.allowInvalidCertificates", Switch, "Certificates are not checked"),
    no_effect("tlsLogVersions", "net.tls.logVersions", Text),
    yes("wiredTigerCacheSizeGB", "storage.wiredTiger.engineConfig.cacheSizeGB", Float, "Gibibytes of the engine's cache of blocks (default: 32 MiB)"),
    no_effect("wiredTigerCacheSizePct", "storage.wiredTiger.engineConfig.cacheSizePct", Float),
    no_effect("zstdDefaultCompressionLevel", "storage.wiredTiger.engineConfig.zstdCompressionLevel", Int),
    no_effect("wiredTigerJournalCompressor", "storage.wiredTiger.engineConfig.journalCompressor", Text),
    no_effect("wiredTigerDirectoryForIndexes", "storage.wiredTiger.engineConfig.directoryForIndexes", Switch),
    no_effect("wiredTigerCollectionBlockCompressor", "storage.wiredTiger.collectionConfig.blockCompressor", Text),
    no_effect("wiredTigerIndexPrefixCompression", "storage.wiredTiger.indexConfig.prefixCompression", Text),
    yes("impersonate", "processManagement.impersonate", Text, "Pin the MongoDB version shown to clients and members: 4.4, 5.0, 6.0, 7.0, 8.0 or 8.2 (default: the set's own)"),
];

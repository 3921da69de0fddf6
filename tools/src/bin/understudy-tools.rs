//! The command line of `understudy-tools`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use tools::{
    backup,
    inspect::{self, Inspect},
    past::{
        at,
        diff::{self, Form},
        drops, export, log,
        restore::{self, Restore},
        serve, verify,
    },
};

/// Reads the past of an Understudy, restores it, exports it, compares it.
///
/// A TIME is 2026-11-16T12:00:00Z (with a time zone), -15m (before now), 'Timestamp(1794792414,3)' or now.
#[derive(Debug, Parser)]
#[command(name = "understudy-tools", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The node to read from.
#[derive(Debug, Args)]
struct From {
    /// Connection string of the Understudy.
    #[arg(long, default_value = "mongodb://127.0.0.1:27017")]
    from: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the collections at a moment, with their counts and sizes.
    At {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(allow_hyphen_values = true)]
        time: String,
        /// Databases or collections; default: all.
        ns: Vec<String>,
    },
    /// Show which documents were added, removed and changed between two moments.
    Diff {
        #[command(flatten)]
        from: From,
        /// How differences are shown.
        #[arg(long, value_enum, default_value = "summary")]
        form: Form,
        /// The earlier moment.
        #[arg(allow_hyphen_values = true)]
        then: String,
        /// The later moment.
        #[arg(allow_hyphen_values = true)]
        now: String,
        /// Databases or collections; default: all.
        ns: Vec<String>,
    },
    /// Show every version of one document, with time, operation and session.
    Log {
        #[command(flatten)]
        from: From,
        /// db.collection
        ns: String,
        /// The `_id` as extended JSON, such as 5, '"x"' or '{"$oid": "..."}'.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Show when collections and databases were dropped.
    FindDrop {
        #[command(flatten)]
        from: From,
        /// Only drops of this database or collection.
        ns: Option<String>,
    },
    /// Write collections as they were at a moment into a live cluster.
    Restore {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(long, allow_hyphen_values = true)]
        at: String,
        /// A database or collection; may be given several times. Default: all.
        #[arg(long)]
        ns: Vec<String>,
        /// Connection string of the cluster.
        #[arg(long)]
        to: String,
        /// FROM=TO: give a database or collection another name in the cluster.
        #[arg(long)]
        rename: Vec<String>,
        /// Replace existing collections.
        #[arg(long)]
        drop: bool,
        /// Only print what would be done.
        #[arg(long)]
        dry_run: bool,
        /// File that records the progress.
        #[arg(long, default_value = "understudy-restore.json")]
        state: PathBuf,
    },
    /// Write a moment as a mongodump archive, for mongorestore --archive.
    Export {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(long, allow_hyphen_values = true)]
        at: String,
        /// A database or collection; may be given several times. Default: all.
        #[arg(long)]
        ns: Vec<String>,
        /// The output file; - for standard output.
        out: PathBuf,
    },
    /// Open a port on which every client reads that moment, for clients that cannot set an appName or a read concern.
    Serve {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(long, allow_hyphen_values = true)]
        at: String,
        /// The port on 127.0.0.1; default: any free port.
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Compare the node with the primary at the same moments, while both are in use.
    Verify {
        #[command(flatten)]
        from: From,
        /// Connection string of the set, or of its primary.
        #[arg(long)]
        primary: String,
        /// Databases or collections; default: all.
        ns: Vec<String>,
    },
    /// Read every file of a backup and check that it is complete and undamaged.
    VerifyBackup {
        /// The backup directory.
        dir: PathBuf,
    },
    /// Look into a dbpath that no server is using.
    Inspect(Inspect),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::At { from, time, ns } => at::run(&from.from, &time, &ns),
        Command::Diff { from, form, then, now, ns } => {
            diff::run(&from.from, &then, &now, &ns, form)
        }
        Command::Log { from, ns, id } => log::run(&from.from, &ns, &id),
        Command::FindDrop { from, ns } => drops::run(&from.from, ns.as_deref()),
        Command::Restore { from, at, ns, to, rename, drop, dry_run, state } => {
            let from = from.from;
            restore::run(&Restore { from, at, ns, to, rename, drop, dry_run, state })
        }
        Command::Export { from, at, ns, out } => export::run(&from.from, &at, &ns, &out),
        Command::Serve { from, at, port } => serve::run(&from.from, &at, port),
        Command::Verify { from, primary, ns } => verify::run(&from.from, &primary, &ns),
        Command::VerifyBackup { dir } => backup::verify(&dir),
        Command::Inspect(what) => inspect::run(&what),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

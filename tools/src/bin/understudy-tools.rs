//! One command line for all that is done around a node.

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
/// A TIME is 2026-11-16T12:00:00Z (with its zone), -15m (so long before now), 'Timestamp(1794792414,3)' or now.
#[derive(Debug, Parser)]
#[command(name = "understudy-tools", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The node that is read.
#[derive(Debug, Args)]
struct From {
    /// The Understudy.
    #[arg(long, default_value = "mongodb://127.0.0.1:27017")]
    from: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the collections of a moment, with their counts and sizes.
    At {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(allow_hyphen_values = true)]
        time: String,
        /// Databases or collections; all, if none is named.
        ns: Vec<String>,
    },
    /// Shows which documents came, went and changed between two moments.
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
        /// Databases or collections; all, if none is named.
        ns: Vec<String>,
    },
    /// Shows every version of one document, with time, operation and session.
    Log {
        #[command(flatten)]
        from: From,
        /// db.collection
        ns: String,
        /// The `_id` as extended JSON, such as 5, '"x"' or '{"$oid": "..."}'.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Shows when collections and databases were dropped.
    FindDrop {
        #[command(flatten)]
        from: From,
        /// Only drops of this database or collection.
        ns: Option<String>,
    },
    /// Writes collections of a moment into a live cluster.
    Restore {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(long, allow_hyphen_values = true)]
        at: String,
        /// A database or collection; may be given several times. All, if none is named.
        #[arg(long)]
        ns: Vec<String>,
        /// The cluster.
        #[arg(long)]
        to: String,
        /// FROM=TO: another name in the cluster, of a database or a collection.
        #[arg(long)]
        rename: Vec<String>,
        /// Replace collections that are there.
        #[arg(long)]
        drop: bool,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
        /// Where to keep how far it is.
        #[arg(long, default_value = "understudy-restore.json")]
        state: PathBuf,
    },
    /// Writes a moment as a mongodump archive, for mongorestore --archive.
    Export {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(long, allow_hyphen_values = true)]
        at: String,
        /// A database or collection; may be given several times. All, if none is named.
        #[arg(long)]
        ns: Vec<String>,
        /// The file; - for standard output.
        out: PathBuf,
    },
    /// Opens a port on which every client reads that moment: for those that can set neither name nor region.
    Serve {
        #[command(flatten)]
        from: From,
        /// The moment.
        #[arg(long, allow_hyphen_values = true)]
        at: String,
        /// The port, on 127.0.0.1; any that is free, if none is named.
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Compares the node with the primary at the same moments, while both are at work.
    Verify {
        #[command(flatten)]
        from: From,
        /// The set, or its primary.
        #[arg(long)]
        primary: String,
        /// Databases or collections; all, if none is named.
        ns: Vec<String>,
    },
    /// Reads every file of a backup and says whether it is what was backed up.
    VerifyBackup {
        /// The directory.
        dir: PathBuf,
    },
    /// Looks into a dbpath that no server is using.
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

//! The command line of `understudy-tools`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, Parser, Subcommand};
use tools::{
    backup, complaint,
    inspect::{self, Inspect},
    past::{
        at,
        diff::{self, Form},
        drops, export, log,
        recover::{self, Recover},
        restore::{self, Restore},
        serve, verify,
    },
    screen::{Look, Screen},
    status::{self, Limits},
};

/// Reads the past of an Understudy, restores it, exports it, compares it.
///
/// A TIME is 14:03, 'yesterday 14:03', '2026-11-16 12:00' (local time, unless Z, +01:00 or the name of a zone follows),
/// -15m, -7d (before now; s, m, h, d), 'Timestamp(1794792414,3)' or now.
///
/// Exit codes: 0 fine, 1 differences (diff, verify) or alarms (status), 2 trouble.
#[derive(Debug, Parser)]
#[command(name = "understudy-tools", version = env!("UNDERSTUDY_VERSION"))]
struct Cli {
    #[command(flatten)]
    look: Look,
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
    /// Show when collections and databases were dropped, and mass deletes and updates.
    FindDrop {
        #[command(flatten)]
        from: From,
        /// Only drops of this database or collection.
        ns: Option<String>,
        /// Show deletes and updates that affected at least this many documents and a tenth of the collection.
        #[arg(long, default_value_t = 100)]
        least: u64,
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
        /// Do not ask before --drop replaces collections.
        #[arg(long)]
        yes: bool,
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
    /// Read every file of a dbpath that no server is using, and compare it with its checksum.
    Scrub {
        /// The dbpath.
        dir: PathBuf,
    },
    /// Find the last drop, mass delete or mass update, show it, and restore the data after confirmation.
    Recover {
        #[command(flatten)]
        from: From,
        /// The database or collection; default: what was lost last.
        ns: Option<String>,
        /// Connection string of the cluster; default: the primary that the node sees.
        #[arg(long)]
        to: Option<String>,
        /// Consider deletes and updates of at least this many documents.
        #[arg(long, default_value_t = 100)]
        least: u64,
        /// The number of the loss to restore; the newest is 1.
        #[arg(long, default_value_t = 1)]
        pick: usize,
        /// Only show what was lost and what would be done.
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
        /// File that records the progress.
        #[arg(long, default_value = "understudy-restore.json")]
        state: PathBuf,
    },
    /// Show the state of a node. The exit code is 1 if there is an alarm.
    Status {
        #[command(flatten)]
        from: From,
        /// Repeat every two seconds, until Ctrl-C.
        #[arg(long)]
        watch: bool,
        /// Alarm if the node is more than this many seconds behind the primary.
        #[arg(long, default_value_t = 60)]
        lag_max: u64,
        /// Alarm if less than this percentage of the disk is free.
        #[arg(long, default_value_t = 10)]
        disk_min: u64,
    },
    /// Look into a dbpath that no server is using.
    Inspect(Inspect),
    /// Print the completions for a shell; source them, or put them where the shell looks.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    Man {
        /// The directory, such as /usr/local/share/man/man1.
        dir: PathBuf,
    },
}

/// The result of a command, which determines the exit code.
enum Answer {
    /// Exit code 0.
    Fine,
    /// Exit code 1: there are differences, or alarms.
    Differs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut screen = Screen::new(cli.look);
    let done = run(&mut screen, cli.command).and_then(|answer| {
        screen.out().flush()?;
        Ok(answer)
    });
    match done {
        Ok(Answer::Fine) => ExitCode::SUCCESS,
        Ok(Answer::Differs) => ExitCode::FAILURE,
        Err(error) => complaint::report(&error),
    }
}

fn run(screen: &mut Screen, command: Command) -> Result<Answer> {
    match command {
        Command::At { from, time, ns } => at::run(screen, &from.from, &time, &ns)?,
        Command::Diff { from, form, then, now, ns } => {
            return Ok(equal(diff::run(screen, &from.from, &then, &now, &ns, form)?));
        }
        Command::Log { from, ns, id } => log::run(screen, &from.from, &ns, &id)?,
        Command::FindDrop { from, ns, least } => {
            drops::run(screen, &from.from, ns.as_deref(), least)?;
        }
        Command::Restore { from, at, ns, to, rename, drop, dry_run, yes, state } => {
            let from = from.from;
            let what = Restore { from, at, ns, to, rename, drop, dry_run, yes, state };
            restore::run(screen, &what)?;
        }
        Command::Export { from, at, ns, out } => export::run(screen, &from.from, &at, &ns, &out)?,
        Command::Serve { from, at, port } => serve::run(screen, &from.from, &at, port)?,
        Command::Verify { from, primary, ns } => {
            return Ok(equal(verify::run(screen, &from.from, &primary, &ns)?));
        }
        Command::VerifyBackup { dir } => backup::verify(screen, &dir)?,
        Command::Scrub { dir } => backup::scrub(screen, &dir)?,
        Command::Recover { from, ns, to, least, pick, dry_run, yes, state } => {
            let from = from.from;
            recover::run(screen, &Recover { from, to, ns, least, pick, dry_run, yes, state })?;
        }
        Command::Status { from, watch, lag_max, disk_min } => {
            let limits = Limits { lag_secs: lag_max, disk_percent: disk_min };
            return Ok(equal(status::run(screen, &from.from, limits, watch)?));
        }
        Command::Inspect(what) => inspect::run(screen, &what)?,
        Command::Completions { shell } => {
            // Generated as a whole first: the generator does not survive a reader that leaves.
            let mut text = Vec::new();
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "understudy-tools", &mut text);
            screen.out().write_all(&text)?;
        }
        Command::Man { dir } => clap_mangen::generate_to(Cli::command(), &dir)
            .with_context(|| format!("write manual pages into {}", dir.display()))?,
    }
    Ok(Answer::Fine)
}

fn equal(equal: bool) -> Answer {
    if equal { Answer::Fine } else { Answer::Differs }
}

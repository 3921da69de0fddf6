//! `cargo run --profile dist --bin bench` compares Understudy with a real mongod.

use std::path::PathBuf;

use anyhow::{Context, Result};
use bench::{Load, Sizes, run, run_steady};
use clap::Parser;

/// Measures a real mongod 8.2 and Understudy as hidden members of the same set.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    sizes: Sizes,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(subcommand)]
    other: Option<Other>,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Run an even load for minutes and report our replication lag, memory and warnings.
    Steady(Load),
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(Other::Steady(load)) = args.other {
        return run_steady(load);
    }
    let comparison = run(args.sizes)?;
    println!("\n{}", comparison.table());
    if let Some(path) = args.json {
        let text = serde_json::to_string_pretty(&comparison)?;
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

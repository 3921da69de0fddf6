//! `cargo run --profile dist --bin bench_reads` compares reads from Understudy with reads from a real mongod.

use std::path::PathBuf;

use anyhow::{Context, Result};
use bench::reads::{ReadSizes, run};
use clap::Parser;

/// Reads from a real mongod 8.2 and from Understudy, both hidden members of the same set.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    sizes: ReadSizes,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let reads = run(&args.sizes)?;
    println!("\n{}", reads.table());
    if let Some(path) = args.json {
        let text = serde_json::to_string_pretty(&reads)?;
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

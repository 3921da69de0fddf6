//! `at TIME`: lists the collections at a moment.

use anyhow::Result;
use bson::doc;
use protocol::moment;

use super::source::{Node, number};

/// Prints the collections, counts and sizes at a moment.
pub fn run(from: &str, at: &str, wanted: &[String]) -> Result<()> {
    let past = Node::connect(from)?.past(at)?;
    println!("at {} ({})", past.ts, moment::shown(past.ts));
    println!("{:>12} {:>14} {:>8}  collection", "documents", "bytes", "indexes");
    let mut total = (0, 0);
    for collection in past.chosen(wanted)? {
        if !collection.has_data() {
            println!("{:>12} {:>14} {:>8}  {} ({})", "", "", "", collection.ns(), collection.kind);
            continue;
        }
        let stats = past.run(&collection.db, doc! { "collStats": &collection.name })?;
        let (count, size) = (number(stats.get("count"))?, number(stats.get("size"))?);
        let indexes = number(stats.get("nindexes"))?;
        total = (total.0 + count, total.1 + size);
        println!("{count:>12} {size:>14} {indexes:>8}  {}", collection.ns());
    }
    println!("{:>12} {:>14} {:>8}  in all", total.0, total.1, "");
    Ok(())
}

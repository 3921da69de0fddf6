//! `at TIME`: lists the collections at a moment.

use anyhow::Result;
use bson::doc;

use super::source::{Node, long, number};
use crate::screen::Screen;

/// Prints the collections, counts and sizes at a moment.
pub fn run(screen: &mut Screen, from: &str, at: &str, wanted: &[String]) -> Result<()> {
    let past = Node::connect(from)?.past(screen, at)?;
    let time = screen.time(past.ts);
    screen.say(format_args!("at {time} ({})", past.ts))?;
    screen.say(format_args!("{:>12} {:>14} {:>8}  collection", "documents", "bytes", "indexes"))?;
    let mut total = (0, 0);
    for collection in past.chosen(wanted)? {
        let ns = collection.ns();
        let mut row = doc! {
            "at": bson::Timestamp::from(past.ts), "time": &time, "ns": &ns, "type": &collection.kind,
        };
        if !collection.has_data() {
            let text = format!("{:>12} {:>14} {:>8}  {ns} ({})", "", "", "", collection.kind);
            screen.row(&row, text)?;
            continue;
        }
        let stats = past.run(&collection.db, doc! { "collStats": &collection.name })?;
        let (count, size) = (number(stats.get("count"))?, number(stats.get("size"))?);
        let indexes = number(stats.get("nindexes"))?;
        total = (total.0 + count, total.1 + size);
        row.extend(
            doc! { "documents": long(count), "bytes": long(size), "indexes": long(indexes) },
        );
        screen.row(&row, format_args!("{count:>12} {size:>14} {indexes:>8}  {ns}"))?;
    }
    screen.say(format_args!("{:>12} {:>14} {:>8}  in all", total.0, total.1, ""))?;
    Ok(())
}

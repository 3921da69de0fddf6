//! Follows the oplog of a running mongod through an exhaust cursor and prints what arrives.
//!
//! Run it with `cargo run -p protocol --example tail_oplog -- host:port [entries]`. If the set uses a key file, set
//! `KEY` to its key.

use std::{env, error::Error, sync::Arc, time::Duration};

use bson::rawdoc;
use protocol::{
    Compressors, HostAndPort, OplogQueryMetadata, ReplSetMetadata,
    client::{Authenticator, ConnectOptions, Connection, ScramAuthenticator},
    oplog_entry::OplogEntry,
};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let host: HostAndPort = args.next().ok_or("usage: tail_oplog host:port [entries]")?.parse()?;
    let wanted: usize = args.next().map_or(Ok(usize::MAX), |text| text.parse())?;
    let member = |key| Arc::new(ScramAuthenticator::member([key])) as Arc<dyn Authenticator>;
    let options = ConnectOptions {
        compressors: Compressors::DEFAULT,
        authenticator: env::var("KEY").ok().map(member),
        ..Default::default()
    };
    let mut connection = Connection::connect(&host, &options).await?;
    println!("{connection:?}");
    let find = rawdoc! {
        "find": "oplog.rs", "filter": { "ts": { "$gte": bson::Timestamp { time: 0, increment: 1 } } },
        "tailable": true, "awaitData": true, "batchSize": 10, "$replData": 1, "$oplogQueryData": 1,
    };
    let reply = connection.run("local", find, LIMIT).await?;
    let cursor = reply.get_document("cursor")?;
    let id = cursor.get_i64("id")?;
    let mut seen = show(cursor.get_array("firstBatch")?, wanted)?;
    let get_more = rawdoc! {
        "getMore": id, "collection": "oplog.rs", "batchSize": 1000, "maxTimeMS": 5000,
        "$replData": 1, "$oplogQueryData": 1,
    };
    let mut stream = connection.exhaust("local", get_more, LIMIT).await?;
    while seen < wanted
        && let Some(reply) = stream.next(LIMIT).await?
    {
        println!("{:?}", ReplSetMetadata::from_message(&reply)?);
        println!("{:?}", OplogQueryMetadata::from_message(&reply)?);
        let batch = reply.get_document("cursor")?.get_array("nextBatch")?;
        seen += show(batch, wanted - seen)?;
    }
    Ok(())
}

fn show(batch: &bson::RawArray, most: usize) -> Result<usize, Box<dyn Error>> {
    let mut shown = 0;
    for raw in batch.into_iter().take(most) {
        let raw = raw?;
        let entry = OplogEntry::parse(raw.as_document().ok_or("an entry is no document")?)?;
        println!("{} {} {:?}", entry.op_time, entry.op.ns, entry.op.kind);
        shown += 1;
    }
    Ok(shown)
}

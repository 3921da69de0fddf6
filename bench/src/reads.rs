//! Compares reads from Understudy with reads from a real mongod. Both are hidden members of one set, hold the same
//! data, and are asked by the same driver, one after the other for each kind of read.
//!
//! Rates are measured at the client. CPU is what the server used per read, which is more telling when client and
//! server share the cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bson::{Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt;
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, Collection, Database};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tests::node::Node;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::{mongod, understudy};

use super::measure::Usage;
use super::workload::{load_customers, load_documents};
use super::{LONGEST, PATIENCE, percentile};

/// What is read, and for how long.
#[derive(Clone, Debug, clap::Args)]
pub struct ReadSizes {
    /// Documents of 500 bytes, with three secondary indexes.
    #[arg(long, default_value_t = 1_000_000)]
    pub documents: u64,
    /// Numbers of concurrent connections; each kind of read is measured once for each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32])]
    pub connections: Vec<u32>,
    /// Minimum duration of each measurement; a read that has begun is completed.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Measure only the kinds of reads whose names contain this.
    #[arg(long)]
    pub only: Option<String>,
    /// Cache size of each server, in GiB.
    #[arg(long, default_value_t = 1.0)]
    pub cache_gb: f64,
    /// Seed of the data and the reads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A kind of read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    ById,
    ByIndex,
    Range,
    Scan,
    SortLimit,
    Group,
    Lookup,
    Drain,
}

impl Read {
    const ALL: [Self; 8] = [
        Self::ById,
        Self::ByIndex,
        Self::Range,
        Self::Scan,
        Self::SortLimit,
        Self::Group,
        Self::Lookup,
        Self::Drain,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ById => "find by _id",
            Self::ByIndex => "find by an index",
            Self::Range => "range of 100",
            Self::Scan => "scan with a filter",
            Self::SortLimit => "sort with limit 10",
            Self::Group => "$group over all",
            Self::Lookup => "$lookup for 1,000",
            Self::Drain => "read 20,000 by getMore",
        }
    }

    /// Reads once and checks that the number of results is as expected.
    async fn run(self, db: &Database, documents: u64, rng: &mut StdRng) -> Result<()> {
        let orders = db.collection::<RawDocumentBuf>("orders");
        let any = |rng: &mut StdRng, below: u64| {
            i64::try_from(rng.random_range(0..below.max(1))).unwrap_or(0)
        };
        let (got, want) = match self {
            Self::ById => {
                let id = any(rng, documents);
                (found(&orders, doc! { "_id": id }).await?, 1..=1)
            }
            Self::ByIndex => {
                let customer = any(rng, 100_000);
                (found(&orders, doc! { "customer": customer }).await?, 0..=1_000)
            }
            Self::Range => {
                let id = any(rng, documents.saturating_sub(100));
                let range = doc! { "_id": { "$gte": id, "$lt": id + 100 } };
                (found(&orders, range).await?, 100..=100)
            }
            Self::Scan => {
                // No index covers `amount`; one document in ten thousand matches.
                let filter = doc! { "amount": { "$gte": 9_999.0 } };
                (found(&orders, filter).await?, 0..=documents / 1_000)
            }
            Self::SortLimit => {
                let cursor = orders.find(doc! {}).sort(doc! { "amount": -1 }).limit(10).await?;
                (drained(cursor).await?, 10..=10)
            }
            Self::Group => {
                let group = doc! { "$group": {
                    "_id": "$status",
                    "n": { "$sum": 1 },
                    "sum": { "$sum": "$amount" },
                    "most": { "$max": "$amount" },
                } };
                (drained(orders.aggregate([group]).await?).await?, 1..=4)
            }
            Self::Lookup => {
                let id = any(rng, documents.saturating_sub(1_000));
                let pipeline = [
                    doc! { "$match": { "_id": { "$gte": id, "$lt": id + 1_000 } } },
                    doc! { "$lookup": {
                        "from": "customers", "localField": "customer", "foreignField": "_id", "as": "who",
                    } },
                    doc! { "$group": { "_id": { "$size": "$who" }, "n": { "$sum": 1 } } },
                ];
                (drained(orders.aggregate(pipeline).await?).await?, 1..=1)
            }
            Self::Drain => {
                let cursor = orders.find(doc! {}).limit(20_000).batch_size(1_000).await?;
                (drained(cursor).await?, documents.min(20_000)..=20_000)
            }
        };
        ensure!(want.contains(&got), "{}: {got} documents, not {want:?}", self.name());
        Ok(())
    }
}

async fn found(orders: &Collection<RawDocumentBuf>, filter: Document) -> Result<u64> {
    drained(orders.find(filter).await?).await
}

async fn drained<T: for<'a> serde::Deserialize<'a> + Unpin + Send + Sync + 'static>(
    mut cursor: mongodb::Cursor<T>,
) -> Result<u64> {
    let mut documents = 0;
    while cursor.try_next().await?.is_some() {
        documents += 1;
    }
    Ok(documents)
}

/// Result of one kind of read on one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rate {
    /// Reads per second.
    pub per_sec: f64,
    /// CPU time of the server per read, in milliseconds.
    pub cpu_ms: f64,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The kind of read.
    pub name: &'static str,
    /// Number of connections.
    pub connections: u32,
    /// The real mongod.
    pub mongod: Rate,
    /// Understudy.
    pub understudy: Rate,
}

/// A median latency with little data and with much data: it should grow only with the size of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// The measured request.
    pub name: &'static str,
    /// Milliseconds on the real mongod: with little data, with much data.
    pub mongod: (f64, f64),
    /// Milliseconds on Understudy.
    pub understudy: (f64, f64),
}

/// All measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Reads {
    /// Rates of the kinds of reads.
    pub rows: Vec<Row>,
    /// Latencies with little and with much data.
    pub growth: Vec<Growth>,
    /// Resident memory of both after all reads, in MiB.
    pub resident_mib: (f64, f64),
    /// Peak resident memory of both, in MiB.
    pub peak_mib: (f64, f64),
}

/// Runs everything.
pub fn run(sizes: &ReadSizes) -> Result<Reads> {
    let mut set = ReplSet::named("bench-reads").limit(LONGEST).start()?;
    println!("loading {} documents into the primary", sizes.documents);
    load_documents(set.primary()?, "orders", sizes.documents, sizes.seed)?;
    load_documents(set.primary()?, "few", sizes.documents / 10, sizes.seed)?;
    load_customers(set.primary()?)?;
    let name = set.name().to_owned();
    let members = [
        mongod::options("member-mongod", Version::V8_2, Some(&name))?,
        understudy::options("member-understudy", Some(&name))?,
    ];
    let mut indexes = Vec::new();
    for mut options in members {
        options.args.extend(["--wiredTigerCacheSizeGB".to_owned(), sizes.cache_gb.to_string()]);
        let index = set.add(options, Member { votes: 0 })?;
        set.await_state(set.node(index)?, "SECONDARY", PATIENCE)?;
        indexes.push(index);
    }
    let &[real, ours] = indexes.as_slice() else { bail!("two members were added") };
    set.await_caught_up_within(PATIENCE)?;
    let (real, ours) = (set.node(real)?, set.node(ours)?);
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    let mut rows = Vec::new();
    for connections in &sizes.connections {
        for read in Read::ALL.into_iter().filter(|read| wanted(sizes, read.name())) {
            let measure = |node| runtime.block_on(rate(node, read, *connections, sizes));
            let (mongod, understudy) = (measure(real)?, measure(ours)?);
            let row = Row { name: read.name(), connections: *connections, mongod, understudy };
            println!("{}", row.line());
            rows.push(row);
        }
    }
    let mut growth = Vec::new();
    if sizes.only.is_none() {
        let (mongod, ours) =
            (runtime.block_on(grown(real, sizes))?, runtime.block_on(grown(ours, sizes))?);
        for ((name, mongod), (_, understudy)) in mongod.into_iter().zip(ours) {
            growth.push(Growth { name, mongod, understudy });
        }
    }
    let (mongod, understudy) = (Usage::of(real)?, Usage::of(ours)?);
    set.finish_without_comparing()?;
    Ok(Reads {
        rows,
        growth,
        resident_mib: (mongod.resident_mib, understudy.resident_mib),
        peak_mib: (mongod.peak_mib, understudy.peak_mib),
    })
}

fn wanted(sizes: &ReadSizes, name: &str) -> bool {
    sizes.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
}

async fn client(node: &Node, connections: u32) -> Result<Client> {
    let host = ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(node.port()) };
    let options = ClientOptions::builder()
        .hosts(vec![host])
        .direct_connection(true)
        .app_name("bench-reads".to_owned())
        .max_pool_size(connections)
        .build();
    let client = Client::with_options(options).context("make a client")?;
    client.database("bench").run_command(doc! { "ping": 1 }).await.context("ping")?;
    Ok(client)
}

/// Runs `connections` workers until the time is over. Each worker reads once before, to warm the caches.
async fn rate(node: &Node, read: Read, connections: u32, sizes: &ReadSizes) -> Result<Rate> {
    let db = client(node, connections).await?.database("bench");
    let window = Duration::from_secs_f64(sizes.seconds);
    let documents = sizes.documents;
    let mut rng = StdRng::seed_from_u64(sizes.seed);
    read.run(&db, documents, &mut rng).await?;
    let done = Arc::new(AtomicU64::new(0));
    let used = Usage::of(node)?.cpu_secs;
    let begun = Instant::now();
    let workers: Vec<_> = (0..connections)
        .map(|worker| {
            let (db, done) = (db.clone(), done.clone());
            let mut rng = StdRng::seed_from_u64(sizes.seed ^ (u64::from(worker) << 32));
            tokio::spawn(async move {
                while begun.elapsed() < window {
                    read.run(&db, documents, &mut rng).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, anyhow::Error>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    let reads = done.load(Ordering::Relaxed) as f64;
    let cpu_secs = Usage::of(node)?.cpu_secs - used;
    Ok(Rate { per_sec: reads / begun.elapsed().as_secs_f64(), cpu_ms: cpu_secs * 1e3 / reads })
}

type Grown = (&'static str, (f64, f64));

/// Median latencies of the same requests with little and with much data.
async fn grown(node: &Node, sizes: &ReadSizes) -> Result<Vec<Grown>> {
    const TIMES: usize = 200;
    let client = client(node, 1).await?;
    let db = client.database("bench");
    let mut rng = StdRng::seed_from_u64(sizes.seed);
    let mut out = Vec::new();
    let mut pair = [0.0; 2];
    for (slot, name) in pair.iter_mut().zip(["few", "orders"]) {
        let coll = db.collection::<RawDocumentBuf>(name);
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let begun = Instant::now();
            let filter = doc! { "customer": rng.random_range(0..100_000_i64) };
            drained(coll.find(filter).limit(1).await?).await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        *slot = median(times);
    }
    out.push(("find by an index, a tenth and all", (pair[0], pair[1])));
    for (slot, name) in pair.iter_mut().zip(["few", "orders"]) {
        let coll = db.collection::<RawDocumentBuf>(name);
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let begun = Instant::now();
            drained(coll.find(doc! {}).skip(100).limit(10).await?).await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        *slot = median(times);
    }
    out.push(("skip 100, limit 10, a tenth and all", (pair[0], pair[1])));
    out.push((
        "getMore of 100, at the start and far on",
        get_mores(&client, sizes.documents).await?,
    ));
    Ok(out)
}

/// Latency of a getMore at the beginning of a collection and near its end. All run in one session: a cursor belongs
/// to the session that opened it, and the driver would use any idle session for a command without one.
async fn get_mores(client: &Client, documents: u64) -> Result<(f64, f64)> {
    const BATCH: u64 = 100;
    let db = client.database("bench");
    let mut session = client.start_session().await?;
    let find = doc! { "find": "orders", "batchSize": i64::try_from(BATCH)? };
    let first = db.run_command(find).session(&mut session).await?;
    let id = first.get_document("cursor")?.get_i64("id")?;
    // The first batch came with the find, and the last one may close the cursor.
    let batches = usize::try_from((documents / BATCH).saturating_sub(2))?;
    let counted = (batches / 2).min(200);
    ensure!(counted > 0, "{documents} documents are too few for getMores of {BATCH}");
    let (mut near, mut late) = (Vec::new(), Vec::new());
    for at in 0..batches {
        let begun = Instant::now();
        let more =
            doc! { "getMore": id, "collection": "orders", "batchSize": i64::try_from(BATCH)? };
        let reply = db.run_command(more).session(&mut session).await?;
        let millis = begun.elapsed().as_secs_f64() * 1e3;
        ensure!(reply.get_document("cursor")?.get_i64("id")? == id, "the cursor ended early");
        if at < counted {
            near.push(millis);
        } else if at >= batches - counted {
            late.push(millis);
        }
    }
    // killCursors may come from any session; the driver sends it without one.
    db.run_command(doc! { "killCursors": "orders", "cursors": [id] }).await?;
    Ok((median(near), median(late)))
}

fn median(mut millis: Vec<f64>) -> f64 {
    millis.sort_by(f64::total_cmp);
    percentile(&millis, 50)
}

impl Row {
    fn line(&self) -> String {
        let (m, u) = (self.mongod, self.understudy);
        format!(
            "{:<24} {:>4} {:>11.1} {:>11.1} {:>6.2}   {:>10.3} {:>10.3} {:>6.2}",
            self.name,
            self.connections,
            m.per_sec,
            u.per_sec,
            u.per_sec / m.per_sec,
            m.cpu_ms,
            u.cpu_ms,
            u.cpu_ms / m.cpu_ms,
        )
    }
}

impl Reads {
    /// The results as a text table.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<24} {:>4} {:>11} {:>11} {:>6}   {:>10} {:>10} {:>6}\n",
            "reads/s, CPU ms each",
            "conn",
            "mongod 8.2",
            "understudy",
            "ratio",
            "mongod",
            "understudy",
            "ratio"
        );
        for row in &self.rows {
            out.push_str(&row.line());
            out.push('\n');
        }
        out.push_str(&format!(
            "\n{:<42} {:>17} {:>17}\n",
            "median, ms", "mongod 8.2", "understudy"
        ));
        for Growth { name, mongod: m, understudy: u } in &self.growth {
            out.push_str(&format!(
                "{name:<42} {:>8.3} {:>8.3} {:>8.3} {:>8.3}\n",
                m.0, m.1, u.0, u.1
            ));
        }
        for (name, (m, u)) in
            [("resident after it, MiB", self.resident_mib), ("peak, MiB", self.peak_mib)]
        {
            out.push_str(&format!("{name:<42} {m:>17.0} {u:>17.0}\n"));
        }
        out
    }
}

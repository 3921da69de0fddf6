//! Queries that ask for too much: the primary's answer, in time, in bounded memory, without blocking others.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bson::{Bson, Document, doc};
use tests::driver;
use tests::node::Node;
use tests::proxy::Proxy;
use tests::repl_set::ReplSet;
use tests::wait::{PATIENCE, wait_for};

/// Maximum memory of our process after all queries, in an unoptimised build.
const PEAK_MIB_MAX: u64 = 1_024;
/// How long after its time limit a command may end, on a busy machine with a slow last document.
const LATE_MAX: Duration = Duration::from_secs(60);

#[test]
fn queries_that_ask_for_too_much() -> Result<()> {
    let set = set("hostile")?;
    for (name, command) in commands() {
        let begun = Instant::now();
        let want = settled(set.primary()?.answer("test", command.clone())?);
        let theirs = begun.elapsed();
        let begun = Instant::now();
        let got = settled(set.ours()?.answer("test", command.clone())?);
        let took = begun.elapsed();
        println!("{name}: {theirs:.1?}, ours {took:.1?}");
        ensure!(want == got, "{name}: {got} instead of {want}");
        ensure!(took < theirs + LATE_MAX, "{name} took {took:?}, the primary {theirs:?}");
        // Other clients are still served.
        set.ours()?.run("test", doc! { "find": "c", "limit": 1 })?;
    }
    let peak = peak_mib(set.ours()?)?;
    println!("peak {peak} MiB, the primary's {}", peak_mib(set.primary()?)?);
    ensure!(peak < PEAK_MIB_MAX, "the peak of our memory is {peak} MiB");
    set.finish()
}

/// If the client disconnects, its query ends.
#[test]
fn the_query_of_a_client_that_vanishes_ends() -> Result<()> {
    let set = set("vanish")?;
    let ours = set.ours()?;
    let endless = doc! {
        "aggregate": "c", "pipeline": blow_up(), "cursor": {}, "comment": "endless",
    };
    let proxy = Proxy::to_server(ours.port())?;
    let client = driver::connect(proxy.port())?;
    std::thread::scope(|scope| -> Result<()> {
        let asking = scope.spawn(move || client.database("test").run_command(endless).run());
        wait_for("the query to run", PATIENCE, || runs(ours))?;
        proxy.cut()?;
        wait_for("the query to end", PATIENCE, || runs(ours).map(|runs| !runs))?;
        let asked = asking.join().map_err(|_| anyhow!("the asking thread panicked"))?;
        ensure!(asked.is_err(), "a query without end gave an answer");
        Ok(())
    })?;
    set.finish()
}

/// True if the endless query is running.
fn runs(node: &Node) -> Result<bool> {
    let running = node.admin(doc! { "currentOp": 1, "command.comment": "endless" })?;
    Ok(!running.get_array("inprog")?.is_empty())
}

fn set(test: &str) -> Result<ReplSet> {
    let set = ReplSet::named(test).ours_hidden(1).start()?;
    let primary = set.primary()?;
    let text = "amber basin cedar delta ember fjord grove haven inlet jetty knoll ".repeat(5);
    let documents: Vec<Document> = (0..2_000)
        .map(|n| doc! { "_id": n, "a": n % 500, "b": n % 7, "text": format!("{text}{n}") })
        .collect();
    primary.run("test", doc! { "insert": "c", "documents": documents })?;
    // Intermediate values of this document add up to much memory.
    let long = doc! { "q": { "_id": 0 }, "u": { "$set": { "long": "x".repeat(100_000) } } };
    primary.run("test", doc! { "update": "c", "updates": [long] })?;
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    primary.run("test", doc! { "createIndexes": "c", "indexes": [index] })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    Ok(set)
}

/// A pipeline that produces ten billion documents.
fn blow_up() -> Vec<Document> {
    let thousand = doc! { "$range": [0, 1_000] };
    let lists = doc! { "x": &thousand, "y": &thousand, "z": &thousand };
    let mut stages = vec![doc! { "$limit": 10 }, doc! { "$set": lists }];
    stages.extend(["$x", "$y", "$z"].map(|path| doc! { "$unwind": path }));
    stages.push(doc! { "$count": "n" });
    stages
}

fn commands() -> Vec<(String, Document)> {
    let find = |filter: Document| doc! { "find": "c", "filter": filter, "sort": { "_id": 1 } };
    let many = |n: i32, of: fn(i32) -> Document| (0..n).map(of).collect::<Vec<_>>();
    let mut out = vec![
        ("an $or of 5,000", find(doc! { "$or": many(5_000, |n| doc! { "b": n + 3 }) })),
        ("an $or of 5,000 by an index", find(doc! { "$or": many(5_000, |n| doc! { "a": n * 3 }) })),
        (
            "an $or of 2,000 pairs",
            find(doc! { "$or": many(2_000, |n| doc! { "a": n * 5, "b": { "$gt": n % 7 } }) }),
        ),
        ("an $in of 200,000", find(doc! { "a": { "$in": (400..200_400).collect::<Vec<i32>>() } })),
        ("a filter of 15 MiB", find(doc! { "text": "x".repeat(15 << 20) })),
        (
            "a filter of 60,000 parts",
            find(doc! { "$and": many(60_000, |n| doc! { "b": { "$ne": n + 2 } }) }),
        ),
        ("a regex that is too long", find(doc! { "text": { "$regex": "a".repeat(33_000) } })),
        (
            "a regex with 400 parentheses",
            find(doc! { "text": { "$regex": format!("{}a{}", "(".repeat(400), ")".repeat(400)) } }),
        ),
        ("a stage too many", aggregate(vec![doc! { "$match": {} }; 1_001])),
        ("documents out of nothing", timed(aggregate(blow_up()), 2_000)),
    ]
    .into_iter()
    .map(|(name, command)| (name.to_owned(), command))
    .collect::<Vec<_>>();
    for depth in [40, 90] {
        let deep = (0..depth).fold(doc! { "b": 3 }, |inner, _| doc! { "$and": [inner] });
        out.push((format!("{depth} levels of $and"), find(deep)));
        let deep = (0..depth).fold(Bson::from(1), |inner, _| doc! { "$add": [inner, 1] }.into());
        out.push((
            format!("{depth} levels of $add"),
            find(doc! { "$expr": { "$eq": ["$a", deep] } }),
        ));
    }
    let size = |expression: Document| {
        let shown = doc! { "$project": { "n": { "$size": expression } } };
        timed(aggregate(vec![doc! { "$sort": { "_id": 1 } }, doc! { "$limit": 1 }, shown]), 60_000)
    };
    let reduce = |rounds: i32, first: Bson, each: Document| {
        size(
            doc! { "$reduce": { "input": { "$range": [0, rounds] }, "initialValue": first, "in": each } },
        )
    };
    let twice = doc! { "$concatArrays": ["$$value", "$$value"] };
    let one_more = doc! { "$concatArrays": ["$$value", ["$text"]] };
    let map = |rounds: i32, each: Document| {
        size(doc! { "$map": { "input": { "$range": [0, rounds] }, "in": each } })
    };
    let filter = |rounds: i32, cond: Document| {
        size(doc! { "$filter": { "input": { "$range": [0, rounds] }, "cond": cond } })
    };
    let large = doc! { "$strLenBytes": { "$concat": ["$long", "$long"] } };
    let forever = doc! { "$map": {
        "input": { "$range": [0, 100_000] },
        "in": { "$sum": { "$map": { "input": { "$range": [0, 100_000] }, "as": "n", "in": { "$add": ["$$n", "$$this"] } } } },
    } };
    out.extend([
        (
            "an array that doubles".to_owned(),
            reduce(40, Bson::Array(vec![1.into(), 2.into()]), twice),
        ),
        ("an array that grows".to_owned(), reduce(3_000, Bson::Array(Vec::new()), one_more)),
        ("a list of lists".to_owned(), map(1_000, doc! { "$range": [0, 100_000] })),
        (
            "what each test throws away".to_owned(),
            filter(8_000, doc! { "$concat": ["$long", "$long"] }),
        ),
        ("what each round throws away".to_owned(), map(8_000, large)),
        ("rounds without end".to_owned(), timed(size(forever), 2_000)),
    ]);
    out
}

fn aggregate(pipeline: Vec<Document>) -> Document {
    doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} }
}

fn timed(mut command: Document, millis: i32) -> Document {
    command.insert("maxTimeMS", millis);
    command
}

/// Removes fields that differ between any two servers.
fn settled(mut answer: Document) -> Document {
    for field in ["$clusterTime", "operationTime"] {
        answer.remove(field);
    }
    if let Ok(cursor) = answer.get_document_mut("cursor") {
        cursor.remove("id");
    }
    answer
}

fn peak_mib(node: &Node) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process()?.id()))?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    Ok(peak.context("no VmHWM")?.parse::<u64>()? / 1_024)
}

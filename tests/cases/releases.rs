//! Features of later releases are unknown to older ones: compares our node with a real hidden secondary of the older
//! release.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use tests::compare::KnownDifferences;
use tests::mongod;
use tests::repl_set::{Member, ReplSet};
use tests::servers::Version;
use tests::wait::PATIENCE;

#[test]
fn what_5_0_lacks_is_unknown_on_5_0() -> Result<()> {
    unknown_as_on("lacking-5-0", Version::V5_0)
}

#[test]
fn what_4_4_lacks_is_unknown_on_4_4() -> Result<()> {
    unknown_as_on("lacking-4-4", Version::V4_4)
}

fn unknown_as_on(test: &str, version: Version) -> Result<()> {
    let mut set = ReplSet::named(test).version(version).ours_hidden(1).start()?;
    let real = mongod::options("real", version, Some(set.name()))?;
    let real = set.add(real, Member { votes: 0 })?;
    let documents: Vec<Document> =
        (0..3).map(|n| doc! { "_id": n, "a": n, "s": "x", "arr": [n, 2] }).collect();
    set.primary()?.run("test", doc! { "insert": "c", "documents": documents })?;
    set.await_state(set.node(real)?, "SECONDARY", PATIENCE)?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    let known = KnownDifferences::load()?;
    let mut complaints = Vec::new();
    for command in commands() {
        let ask = |node: &tests::node::Node| -> Result<Document> {
            Ok(settled(node.answer("test", command.clone())?))
        };
        let (want, got) = (ask(set.node(real)?)?, ask(set.ours()?)?);
        let name = format!("{command} on {}", version.label());
        if let Err(e) = known.check(&name, &want, &got) {
            complaints.push(format!("{name}: {e:#}"));
        }
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    set.finish()
}

/// Removes what the driver adds to a quoted command: the session, the cluster time.
fn settled(mut answer: Document) -> Document {
    if let Ok(text) = answer.get_str("errmsg")
        && let (Some(from), Some(to)) = (text.find(", $db: "), text.rfind(" }. "))
        && let (Some(head), Some(tail)) = (text.get(..from), text.get(to..))
    {
        let text = format!("{head}{tail}");
        answer.insert("errmsg", text);
    }
    answer
}

fn commands() -> Vec<Document> {
    let mut pipelines = Vec::new();
    for name in STAGES {
        pipelines.push(doc! { *name: {} });
    }
    for name in OPERATORS {
        pipelines.push(doc! { "$set": { "x": { *name: [] } } });
    }
    for name in ["$sortArray", "$dateAdd", "$nothing"] {
        pipelines.push(doc! { "$project": { "x": { name: {} } } });
    }
    for name in ACCUMULATORS {
        pipelines.push(doc! { "$group": { "_id": null, "x": { *name: {} } } });
        let output = doc! { "x": { *name: {} } };
        pipelines.push(doc! { "$setWindowFields": { "sortBy": { "a": 1 }, "output": output } });
    }
    pipelines.extend(options());
    let mut commands: Vec<Document> = pipelines
        .into_iter()
        .map(|stage| doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} })
        .collect();
    // Errors with different codes, or that show the query.
    for stage in [
        doc! { "$project": { "x": { "$add": ["a", 1] } } },
        doc! { "$project": { "x": { "$divide": [1, 0] } } },
        doc! { "$project": { "x": { "$divide": ["$a", 0] } } },
    ] {
        commands.push(doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} });
    }
    commands.push(doc! { "find": "c", "min": { "a": 1 } });
    commands.push(doc! { "find": "c", "min": { "a": 1 }, "hint": { "_id": 1 } });
    commands.push(doc! { "find": "c", "filter": { "b": 1, "a": { "$gt": 2 } }, "hint": "x" });
    commands.push(doc! { "count": "c", "query": { "a": 1 }, "hint": "x" });
    commands.push(doc! { "find": "none", "min": { "a": 1 }, "hint": "x", "limit": 1 });
    let bits = doc! { "$expr": { "$bitAnd": ["$a", 1] } };
    let variables = doc! { "v": 1 };
    commands.extend([
        doc! { "find": "c", "filter": bits.clone() },
        doc! { "count": "c", "query": bits.clone() },
        doc! { "distinct": "c", "key": "a", "query": bits },
        doc! { "find": "c", "projection": { "x": { "$sortArray": { "input": "$arr", "sortBy": 1 } } } },
        doc! { "find": "c", "filter": { "$expr": { "$eq": ["$a", "$$v"] } }, "let": variables.clone() },
        doc! { "aggregate": "c", "pipeline": [], "cursor": {}, "let": variables },
    ]);
    commands
}

/// Options that are newer than their stage or operator.
fn options() -> Vec<Document> {
    let lookup = |spec: Document| doc! { "$lookup": spec };
    vec![
        doc! { "$set": { "x": { "$filter": { "input": "$arr", "cond": true, "limit": 1 } } } },
        doc! { "$set": { "x": { "$convert": { "input": "$a", "to": "int", "format": "hex" } } } },
        doc! { "$set": { "x": { "$convert": { "input": "$a", "to": "int", "byteOrder": "big" } } } },
        doc! { "$set": { "x": { "$ifNull": ["$missing", "$a", 2] } } },
        lookup(
            doc! { "from": "c", "localField": "a", "foreignField": "_id", "pipeline": [], "as": "x" },
        ),
        lookup(doc! { "pipeline": [{ "$documents": [{}] }], "as": "x" }),
        lookup(doc! { "from": "c", "pipeline": [{ "$densify": {} }], "as": "x" }),
        doc! { "$facet": { "a": [{ "$fill": {} }] } },
        doc! { "$unionWith": { "coll": "c", "pipeline": [{ "$set": { "x": { "$toUUID": "$s" } } }] } },
        doc! { "$bucketAuto": {
            "groupBy": "$a", "buckets": 1, "output": { "x": { "$firstN": { "input": "$a", "n": 1 } } },
        } },
    ]
}

const STAGES: &[&str] = &[
    "$densify",
    "$documents",
    "$fill",
    "$listCatalog",
    "$listClusterCatalog",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$nothing",
    "$querySettings",
    "$queryStats",
    "$rankFusion",
    "$score",
    "$scoreFusion",
    "$search",
    "$searchMeta",
    "$shardedDataDistribution",
    "$vectorSearch",
];

const OPERATORS: &[&str] = &[
    "$bitAnd",
    "$bitNot",
    "$bitOr",
    "$bitXor",
    "$expr",
    "$firstN",
    "$lastN",
    "$maxN",
    "$median",
    "$minN",
    "$nothing",
    "$percentile",
    "$sigmoid",
    "$similarityCosine",
    "$sortArray",
    "$toUUID",
    "$tsIncrement",
    "$tsSecond",
];

const ACCUMULATORS: &[&str] = &[
    "$bottom",
    "$bottomN",
    "$concatArrays",
    "$firstN",
    "$lastN",
    "$maxN",
    "$median",
    "$minN",
    "$nothing",
    "$percentile",
    "$setUnion",
    "$top",
    "$topN",
];

//! Index scans return the same documents in the same order as a mongod.
//!
//! Values come from small domains: ends of intervals coincide, arrays contain values outside of the bounds, different
//! texts are equal under a collation, and equal numbers have different types. Some queries are covered: the values
//! from the keys are compared including their types.

use anyhow::{Result, ensure};
use bson::{Bson, Document, Regex, doc, raw::cstr};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tests::node::Node;
use tests::repl_set::ReplSet;
use tests::wait::PATIENCE;

const QUERIES: u64 = 3_000;
const DOCUMENTS: i32 = 300;
const TEXTS: [&str; 7] = ["a", "A", "ab", "Ab", "ac", "b", "B"];

/// Collections with the same documents, each with one index.
fn indexes() -> Vec<(&'static str, Document, Document)> {
    let collation = doc! { "collation": { "locale": "en", "strength": 2 } };
    vec![
        ("up", doc! { "a": 1 }, doc! {}),
        ("down", doc! { "a": -1 }, doc! {}),
        ("two", doc! { "a": 1, "b": 1 }, doc! {}),
        ("mixed", doc! { "a": 1, "b": -1, "_id": 1 }, doc! {}),
        ("arrays", doc! { "z": 1, "x.a": 1, "x.b": 1, "_id": 1 }, doc! {}),
        ("collated", doc! { "s": 1 }, collation.clone()),
        ("collated_two", doc! { "s": -1, "a": 1 }, collation),
        ("partial", doc! { "a": 1 }, doc! { "partialFilterExpression": { "b": { "$gte": 2 } } }),
        ("sparse", doc! { "b": 1, "a": -1 }, doc! { "sparse": true }),
        ("text", doc! { "s": -1, "z": 1 }, doc! {}),
        ("hashed", doc! { "a": "hashed" }, doc! {}),
        ("none", doc! {}, doc! {}),
    ]
}

fn number(rng: &mut StdRng) -> Bson {
    let small = rng.random_range(0..6);
    match rng.random_range(0..48) {
        0..4 => Bson::Null,
        4..8 => Bson::Double(f64::from(small) + 0.5),
        8..12 => Bson::Int64(small.into()),
        12..16 => TEXTS.choose(rng).copied().unwrap_or_default().into(),
        16..20 => Bson::Double(f64::from(small)),
        20 => Bson::Double(-0.0),
        21 => decimal(&format!("{small}.0")),
        22 => match small {
            0 => decimal("-0"),
            1 => decimal("NaN"),
            2 => decimal("0.1"),
            _ => decimal("Infinity"),
        },
        23 if small < 3 => Bson::MinKey,
        23 => Bson::MaxKey,
        24 if small < 2 => Bson::Double(f64::NAN),
        24 => Bson::Double(if small < 4 { f64::INFINITY } else { f64::NEG_INFINITY }),
        25 => Bson::Int64(i64::MIN + i64::from(small)),
        26 => doc! { "k": small }.into(),
        27 => Bson::Boolean(small > 2),
        28 => Bson::DateTime(bson::DateTime::from_millis(small.into())),
        _ => Bson::Int32(small),
    }
}

fn decimal(text: &str) -> Bson {
    text.parse().map_or(Bson::Null, Bson::Decimal128)
}

fn value(rng: &mut StdRng, field: &str) -> Bson {
    match field {
        "s" => TEXTS.choose(rng).copied().unwrap_or_default().into(),
        _ => number(rng),
    }
}

fn document(id: i32, rng: &mut StdRng) -> Document {
    let mut out = doc! { "_id": id, "z": rng.random_range(0..3) };
    for field in ["a", "b", "s"] {
        match rng.random_range(0..10) {
            0 => {}
            1 if field == "b" => {
                let some = (0..rng.random_range(0..3)).map(|_| number(rng)).collect::<Vec<_>>();
                out.insert(field, some);
            }
            _ => {
                out.insert(field, value(rng, field));
            }
        }
    }
    let elements = (0..rng.random_range(0..4)).map(|_| doc! { "a": number(rng), "b": number(rng) });
    out.insert("x", elements.collect::<Vec<_>>());
    out
}

const PATTERNS: [&str; 4] = ["^a", "b", "^A$", "^a.*"];
const TYPES: [&str; 10] =
    ["int", "long", "double", "decimal", "number", "string", "null", "bool", "object", "minKey"];

const FIELDS: [&str; 6] = ["a", "b", "z", "s", "x.a", "x.b"];

fn condition(rng: &mut StdRng, field: &str) -> Bson {
    let operators = ["$gt", "$gte", "$lt", "$lte"];
    let mut any = || value(rng, field);
    let (first, second) = (any(), any());
    match rng.random_range(0..9) {
        0..3 => first,
        3 => {
            let mut list: Vec<Bson> =
                (0..rng.random_range(1..5)).map(|_| value(rng, field)).collect();
            if field == "s" && rng.random_bool(0.4) {
                let patterns = [cstr!("^a"), cstr!("^ab"), cstr!("^A")];
                let pattern = patterns.choose(rng).copied().unwrap_or(cstr!("^a")).into();
                let regex = Regex { pattern, options: cstr!("").into() };
                list.push(Bson::RegularExpression(regex));
            }
            doc! { "$in": list }.into()
        }
        4..6 => doc! { operators.choose(rng).copied().unwrap_or("$gt"): first }.into(),
        6 => doc! { "$gte": first, "$lte": second }.into(),
        7 => doc! { "$gt": first, "$lt": second }.into(),
        _ => match rng.random_range(0..7) {
            0 => doc! { "$ne": first }.into(),
            1 => doc! { "$exists": rng.random_bool(0.5) }.into(),
            2 => doc! { "$nin": [first, second] }.into(),
            // On keys with a collation, mongod compares operands with the sort keys of texts and finds nothing.
            3..6 if field == "s" => doc! { "$exists": true }.into(),
            3 => doc! { "$mod": [rng.random_range(1..4), 0] }.into(),
            4 => doc! { "$type": TYPES.choose(rng).copied().unwrap_or("int") }.into(),
            5 => doc! { "$type": ["long", TYPES.choose(rng).copied().unwrap_or("int")] }.into(),
            _ => doc! { "$regex": PATTERNS.choose(rng).copied().unwrap_or("^a") }.into(),
        },
    }
}

fn filter(rng: &mut StdRng, depth: u32) -> Document {
    let mut out = Document::new();
    for _ in 0..rng.random_range(1..4) {
        let field = FIELDS.choose(rng).copied().unwrap_or("a");
        let condition = condition(rng, field);
        out.insert(field, condition);
    }
    if depth > 0 && rng.random_bool(0.4) {
        let one = FIELDS.choose(rng).copied().unwrap_or("a");
        let branches = (0..rng.random_range(2..4)).map(|_| match rng.random_bool(0.7) {
            true => doc! { one: condition(rng, one) },
            false => filter(rng, depth - 1),
        });
        let branches: Vec<Document> = branches.collect();
        if rng.random_bool(0.6) {
            out.clear();
        }
        out.insert("$or", branches);
    }
    out
}

/// A find, a count or a distinct.
fn command(rng: &mut StdRng) -> Document {
    let indexes = indexes();
    let index = indexes.choose(rng).cloned().unwrap_or_default();
    let simple = |rng: &mut StdRng| {
        if rng.random_bool(0.2) {
            doc! {}
        } else {
            filter(rng, 1)
        }
    };
    let (name, _, options) = &index;
    let mut command = match rng.random_range(0..10) {
        0 | 1 => doc! { "count": *name, "query": simple(rng) },
        2 | 3 => {
            let key = ["a", "b", "s", "z", "x.a", "_id"].choose(rng).copied().unwrap_or("a");
            doc! { "distinct": *name, "key": key, "query": simple(rng) }
        }
        _ => return find(rng, index),
    };
    if let Some(collation) = options.get("collation").filter(|_| rng.random_bool(0.8)) {
        command.insert("collation", collation.clone());
    }
    command
}

fn find(rng: &mut StdRng, (name, keys, options): (&'static str, Document, Document)) -> Document {
    let batch = if rng.random_bool(0.2) { 40 } else { 1_000 };
    let mut find = doc! { "find": name, "filter": filter(rng, 2), "batchSize": batch };
    let sorts = [
        doc! { "a": 1, "_id": 1 },
        doc! { "a": -1, "_id": -1 },
        doc! { "a": 1, "b": -1, "_id": 1 },
        doc! { "b": 1, "_id": 1 },
        doc! { "s": 1, "_id": 1 },
        doc! { "x.a": 1, "_id": 1 },
        doc! { "x.a": -1, "_id": -1 },
        doc! { "x.b": 1, "_id": 1 },
        doc! { "x.a": 1, "x.b": 1, "_id": 1 },
    ];
    if rng.random_bool(0.6) {
        find.insert("sort", sorts.choose(rng).cloned().unwrap_or_default());
        if rng.random_bool(0.3) {
            find.insert("limit", rng.random_range(1..20));
        }
        if rng.random_bool(0.2) {
            find.insert("skip", rng.random_range(1..5));
        }
    }
    if let Some(collation) = options.get("collation").filter(|_| rng.random_bool(0.8)) {
        find.insert("collation", collation.clone());
    }
    let projections = [
        doc! { "_id": 0, "a": 1 },
        doc! { "_id": 0, "b": 1, "a": 1 },
        doc! { "_id": 0, "s": 1 },
        doc! { "_id": 0, "s": 1, "a": 1, "z": 1 },
        doc! { "_id": 0, "z": 1 },
        doc! { "_id": 0, "x.a": 1 },
        doc! { "_id": 1 },
        doc! { "a": 1, "b": 1 },
    ];
    if rng.random_bool(0.5) {
        find.insert("projection", projections.choose(rng).cloned().unwrap_or_default());
    }
    if ["up", "down", "two"].contains(&name) && rng.random_bool(0.2) {
        let end = |rng: &mut StdRng| {
            keys.keys().map(|key| (key.clone(), Bson::Int32(rng.random_range(0..7)))).collect()
        };
        let (min, max): (Document, Document) = (end(rng), end(rng));
        find.insert("hint", keys);
        find.insert("min", min);
        find.insert("max", max);
    }
    find
}

/// The results of a command from all batches.
fn found(node: &Node, command: &Document) -> mongodb::error::Result<Vec<Bson>> {
    let database = node.client().database("test");
    if command.contains_key("find") {
        let cursor = database.run_cursor_command(command.clone()).batch_size(40).run()?;
        return cursor.map(|row| row.map(Bson::Document)).collect();
    }
    let reply = database.run_command(command.clone()).run()?;
    Ok(match reply.get_array("values") {
        Ok(values) => values.clone(),
        Err(_) => reply.get("n").cloned().into_iter().collect(),
    })
}

/// The documents, ordered if a sort was given; or the error code.
fn answer(node: &Node, command: &Document) -> Result<Result<Vec<String>, i32>> {
    let found = match found(node, command) {
        Ok(found) => found,
        Err(error) => match error.kind.as_ref() {
            mongodb::error::ErrorKind::Command(refused) => return Ok(Err(refused.code)),
            _ => return Err(error.into()),
        },
    };
    // Which one of equal values is returned depends on the plan, and ours may differ for an `$or` or a collation.
    let other_way = command.contains_key("collation") || command.to_string().contains("$or");
    if command.contains_key("distinct") && other_way {
        return Ok(Ok(vec![found.len().to_string()]));
    }
    let mut rows: Vec<String> = found.iter().map(|value| format!("{value:?}")).collect();
    if !command.contains_key("sort") {
        rows.sort();
    }
    Ok(Ok(rows))
}

#[test]
fn random_bounds_find_what_the_primary_finds() -> Result<()> {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut rng = StdRng::seed_from_u64(seed);
    let set = ReplSet::named("index-walks").ours_hidden(1).start()?;
    let documents: Vec<Document> = (0..DOCUMENTS).map(|id| document(id, &mut rng)).collect();
    for (name, keys, options) in indexes() {
        set.primary()?.run("test", doc! { "insert": name, "documents": documents.clone() })?;
        if !keys.is_empty() {
            let mut index = doc! { "key": keys, "name": "one" };
            index.extend(options);
            set.primary()?.run("test", doc! { "createIndexes": name, "indexes": [index] })?;
        }
    }
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    let mut parted = Vec::new();
    let mut found = 0;
    for n in 0..QUERIES {
        let command = command(&mut rng);
        let (want, got) = (answer(set.primary()?, &command)?, answer(set.ours()?, &command)?);
        found += want.as_ref().map_or(0, Vec::len);
        if want != got {
            let told =
                |rows: &Result<Vec<String>, i32>, others: &Result<Vec<String>, i32>| match rows {
                    Ok(rows) => {
                        let others = others.as_deref().unwrap_or_default();
                        let own = rows.iter().filter(|row| !others.contains(row)).take(3);
                        format!("{} rows, {:?}", rows.len(), own.collect::<Vec<_>>())
                    }
                    Err(code) => format!("code {code}"),
                };
            let (ours, theirs) = (told(&got, &want), told(&want, &got));
            parted.push(format!("{n}: {command}\n    {theirs} and ours {ours}"));
        }
    }
    ensure!(found > 1_000, "only {found} documents were found");
    let shown: Vec<_> = parted.iter().take(24).map(String::as_str).collect();
    ensure!(parted.is_empty(), "SEED={seed}: {} differ\n{}", parted.len(), shown.join("\n"));
    set.finish()
}

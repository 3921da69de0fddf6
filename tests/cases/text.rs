//! Text search: sends the same `$text` queries to a real primary and to our node; scores must be equal to the last
//! bit.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tests::{
    compare::KnownDifferences,
    node::Node,
    repl_set::{Member, ReplSet},
    servers::Version,
    understudy,
    wait::PATIENCE,
    workload::seeds,
};

/// Rules, errors, plans, and commands with a text search.
#[test]
fn searches_are_answered_as_the_primary_answers_them() -> Result<()> {
    let mut set = ReplSet::named("text-rules").version(Version::V8_2).start()?;
    let primary = set.primary()?;
    let documents = vec![
        doc! { "_id": 1, "a": "dog cat", "n": 1, "arr": [{ "x": 1 }] },
        doc! { "_id": 2, "a": "dog", "n": 2 },
        doc! { "_id": 3, "a": "bird Dög", "n": 3 },
        doc! { "_id": 4, "n": 7 },
        doc! { "_id": 5, "n": 8, "a": "house" },
    ];
    primary.run("test", doc! { "insert": "r", "documents": documents })?;
    index(primary, "r", doc! { "key": { "a": "text" }, "name": "a_text" })?;
    index(primary, "r", doc! { "key": { "n": 1 }, "name": "n_1" })?;
    primary.run("test", doc! { "insert": "none", "documents": [{ "_id": 1, "a": "dog" }] })?;
    let documents: Vec<_> = (0..9)
        .map(|n| doc! { "_id": n, "p": n % 3, "q": "x", "a": format!("dog cat {n}"), "s": n })
        .collect();
    primary.run("test", doc! { "insert": "pre", "documents": documents })?;
    let set_index = |name: &str, spec: Document| index(set.primary()?, name, spec);
    set_index("pre", doc! { "key": { "p": 1, "q": 1, "a": "text", "s": 1 }, "name": "prefixed" })?;
    let primary = set.primary()?;
    let documents: Vec<_> = (0..4).map(|n| doc! { "_id": n, "a": "dog", "n": n }).collect();
    primary.run("test", doc! { "insert": "part", "documents": documents })?;
    let partial = doc! { "n": { "$gt": 1 } };
    set_index(
        "part",
        doc! { "key": { "a": "text" }, "name": "t", "partialFilterExpression": partial },
    )?;
    primary.run("test", doc! { "insert": "hidden", "documents": [{ "_id": 1, "a": "dog" }] })?;
    set_index("hidden", doc! { "key": { "a": "text" }, "name": "t", "hidden": true })?;
    let collation = doc! { "locale": "en", "strength": 1 };
    primary.run("test", doc! { "create": "collated", "collation": collation })?;
    primary.run(
        "test",
        doc! { "insert": "collated", "documents": [{ "_id": 1, "a": "dog", "p": "X" }] },
    )?;
    let simple = doc! { "locale": "simple" };
    set_index(
        "collated",
        doc! { "key": { "p": 1, "a": "text" }, "name": "t", "collation": simple },
    )?;
    let options = understudy::options("ours", Some(set.name()))?;
    set.add(options, Member { votes: 0 })?;
    set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
    set.await_caught_up()?;
    let mut judge = Judge::new(&set)?;
    for command in commands() {
        judge.ask(&command, false)?;
    }
    for command in plans() {
        judge.explain(&command)?;
    }
    judge.done()?;
    set.finish()
}

/// Random documents and searches in many languages, with initial sync, index builds, updates and deletes.
#[test]
fn random_texts_are_found_with_the_scores_of_the_primary() -> Result<()> {
    for seed in seeds(1) {
        println!("SEED={seed}");
        let mut random = Random(StdRng::seed_from_u64(seed));
        let mut set = ReplSet::named("text-random").version(Version::V8_2).start()?;
        let indexes = random.indexes();
        for (name, spec) in &indexes {
            random.fill(set.primary()?, name, 0)?;
            index(set.primary()?, name, spec.clone())?;
        }
        let options = understudy::options("ours", Some(set.name()))?;
        set.add(options, Member { votes: 0 })?;
        set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
        for (name, spec) in &indexes {
            // The cloned index gets writes; an index on another collection is built while we follow.
            random.fill(set.primary()?, name, 1000)?;
            random.change(set.primary()?, name)?;
            let built = format!("{name}_built");
            random.fill(set.primary()?, &built, 0)?;
            index(set.primary()?, &built, spec.clone())?;
            random.change(set.primary()?, &built)?;
        }
        set.await_caught_up()?;
        let mut judge = Judge::new(&set)?;
        for (name, spec) in &indexes {
            for name in [name.clone(), format!("{name}_built")] {
                for _ in 0..30 {
                    let query = random.query(spec);
                    let score = doc! { "s": { "$meta": "textScore" } };
                    judge
                        .ask(&doc! { "find": &name, "filter": query, "projection": score }, true)?;
                }
                judge.keys(&name)?;
            }
        }
        judge.done()?;
        set.finish()?;
    }
    Ok(())
}

fn index(primary: &Node, name: &str, spec: Document) -> Result<()> {
    primary.run("test", doc! { "createIndexes": name, "indexes": [spec] })?;
    Ok(())
}

/// Asks both and collects the differences.
struct Judge<'s> {
    primary: &'s Node,
    ours: &'s Node,
    known: KnownDifferences,
    asked: usize,
    complaints: Vec<String>,
}

impl<'s> Judge<'s> {
    fn new(set: &'s ReplSet) -> Result<Self> {
        let known = KnownDifferences::load()?;
        let (primary, ours) = (set.primary()?, set.ours()?);
        Ok(Self { primary, ours, known, asked: 0, complaints: Vec::new() })
    }

    /// With `by_id` the documents come in no particular order, and are compared by their `_id`.
    fn ask(&mut self, command: &Document, by_id: bool) -> Result<()> {
        let answer = |node: &Node| -> Result<Document> {
            let mut answer = node.answer("test", command.clone())?;
            // With scores documents come in the order of mongod's hash table.
            let shown = format!("{command}");
            let unordered = by_id || shown.contains("textScore") || shown.contains("$or");
            if let Ok(cursor) = answer.get_document_mut("cursor")
                && let Ok(batch) = cursor.get_array_mut("firstBatch")
                && unordered
            {
                batch.sort_by_key(|doc| format!("{doc}"));
            }
            Ok(answer)
        };
        let (want, got) = (answer(self.primary)?, answer(self.ours)?);
        self.compare(&format!("text {command}"), &want, &got);
        Ok(())
    }

    /// The stages of the plan with their relevant fields.
    fn explain(&mut self, command: &Document) -> Result<()> {
        let explain = doc! { "explain": command.clone(), "verbosity": "queryPlanner" };
        let answer = |node: &Node| -> Result<Document> {
            let answer = node.run("test", explain.clone())?;
            let planner = answer.get_document("queryPlanner")?;
            let mut plan = planner.get_document("winningPlan")?.clone();
            plan.remove("isCached");
            let parsed = planner.get_document("parsedQuery")?.clone();
            Ok(doc! { "plan": plan, "parsed": parsed })
        };
        let (want, got) = (answer(self.primary)?, answer(self.ours)?);
        self.compare(&format!("explain {command}"), &want, &got);
        Ok(())
    }

    /// Compares the number of keys in each index.
    fn keys(&mut self, name: &str) -> Result<()> {
        let keys = |node: &Node| -> Result<Document> {
            let report = node.run("test", doc! { "validate": name })?;
            ensure!(report.get_bool("valid")?, "{} has an invalid {name}: {report}", node.name());
            let keys = report.get_document("keysPerIndex")?.clone();
            let as_long = |value: Bson| match value {
                Bson::Int32(n) => Bson::Int64(i64::from(n)),
                other => other,
            };
            let mut keys: Vec<_> = keys.into_iter().map(|(k, v)| (k, as_long(v))).collect();
            keys.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(keys.into_iter().collect())
        };
        let (want, got) = (keys(self.primary)?, keys(self.ours)?);
        self.compare(&format!("keys of {name}"), &want, &got);
        Ok(())
    }

    fn compare(&mut self, what: &str, want: &Document, got: &Document) {
        self.asked += 1;
        if let Err(e) = self.known.check(what, want, got) {
            self.complaints.push(format!("{e:#}"));
        }
    }

    fn done(self) -> Result<()> {
        let (found, asked) = (self.complaints.len(), self.asked);
        ensure!(found == 0, "{found} of {asked} differ:\n{}", self.complaints.join("\n"));
        Ok(())
    }
}

fn text(search: &str) -> Document {
    doc! { "$text": { "$search": search } }
}

fn commands() -> Vec<Document> {
    let dog = text("dog");
    let score = doc! { "s": { "$meta": "textScore" } };
    let find = |name: &str, filter: Document| doc! { "find": name, "filter": filter };
    let with = |mut command: Document, more: Document| {
        command.extend(more);
        command
    };
    let both = |filter: Document| with(dog.clone(), filter);
    let operand = |operand: Bson| doc! { "$text": operand };
    let mut all: Vec<Document> = [
        dog.clone(),
        doc! { "$text": 1 },
        operand(doc! {}.into()),
        operand(doc! { "$search": 1 }.into()),
        operand(doc! { "$search": Bson::Null }.into()),
        operand(doc! { "$search": "dog", "$language": 1 }.into()),
        operand(doc! { "$search": "dog", "$language": "klingon" }.into()),
        operand(doc! { "$search": "dog", "$language": "de" }.into()),
        operand(doc! { "$search": "dog", "$caseSensitive": 1 }.into()),
        operand(doc! { "$search": "dog", "$diacriticSensitive": "x" }.into()),
        operand(doc! { "$search": "dog", "$foo": 1 }.into()),
        operand(doc! { "$search": "bird -dog", "$diacriticSensitive": true }.into()),
        operand(doc! { "$search": "Dog", "$caseSensitive": true }.into()),
        operand(doc! { "$search": "Dög", "$diacriticSensitive": true }.into()),
        doc! { "$and": [dog.clone(), dog.clone()] },
        doc! { "$or": [dog.clone(), dog.clone()] },
        doc! { "$and": [dog.clone(), { "n": 1 }] },
        doc! { "$or": [dog.clone(), { "n": 1 }] },
        doc! { "$or": [dog.clone(), { "n": 7 }] },
        doc! { "$or": [dog.clone(), { "a": 1 }] },
        doc! { "$or": [dog.clone(), { "n": 3 }], "a": { "$exists": true } },
        doc! { "$or": [{ "$and": [dog.clone(), { "n": 1 }] }, { "n": 3 }] },
        doc! { "$or": [{ "$or": [dog.clone(), { "n": 3 }] }, { "n": 1 }] },
        doc! { "$or": [text("dog -cat"), { "n": 1 }] },
        doc! { "$or": [dog.clone()] },
        doc! { "$nor": [dog.clone()] },
        doc! { "$nor": [{ "$and": [dog.clone(), { "n": 1 }] }] },
        doc! { "arr": { "$elemMatch": dog.clone() } },
        doc! { "a": dog.clone() },
        doc! { "n": { "$not": dog.clone() } },
        both(doc! { "n": { "$gt": 1 } }),
        both(doc! { "_id": 1 }),
        both(doc! { "$alwaysFalse": 1 }),
        both(doc! { "$expr": { "$gt": [{ "$meta": "textScore" }, 0.1] } }),
        text("-dog"),
        text(""),
        text("the"),
        text("bird -dog"),
        text("\"dog cat\""),
        text("dog -\"dog cat\""),
    ]
    .into_iter()
    .map(|filter| find("r", filter))
    .collect();
    for (name, filter) in [
        ("none", dog.clone()),
        ("nosuch", dog.clone()),
        ("hidden", dog.clone()),
        ("part", dog.clone()),
        ("part", both(doc! { "n": { "$gt": 2 } })),
        ("part", both(doc! { "n": { "$gt": 0 } })),
        ("collated", both(doc! { "p": "x" })),
        ("collated", both(doc! { "p": 5 })),
        ("pre", dog.clone()),
        ("pre", both(doc! { "p": 1 })),
        ("pre", both(doc! { "p": 1, "q": "x" })),
        ("pre", both(doc! { "p": { "$in": [1] }, "q": "x" })),
        ("pre", both(doc! { "p": { "$in": [1, 2] }, "q": "x" })),
        ("pre", both(doc! { "p": { "$gt": 0 }, "q": "x" })),
        ("pre", both(doc! { "p": 1, "q": "x", "s": { "$gt": 3 } })),
        ("pre", both(doc! { "p": Bson::Null, "q": "x" })),
        ("pre", doc! { "$or": [both(doc! { "p": 1, "q": "x" }), { "_id": 2 }] }),
        ("pre", doc! { "p": 1, "q": "x", "$or": [dog.clone(), { "_id": 0 }] }),
    ] {
        all.push(find(name, filter));
    }
    let by = |sort: Document| doc! { "sort": sort };
    let meta = doc! { "$meta": "textScore" };
    for more in [
        doc! { "projection": score.clone() },
        doc! { "projection": score.clone(), "sort": score.clone(), "limit": 1 },
        doc! { "projection": { "n": 1, "s": meta.clone() }, "sort": { "n": -1 } },
        doc! { "projection": { "a": meta.clone() } },
        doc! { "projection": { "a.s": meta.clone() } },
        doc! { "projection": { "_id": 0, "s": meta.clone() } },
        doc! { "projection": { "a": 0, "s": meta.clone() } },
        doc! { "projection": { "x": { "$multiply": [2, meta.clone()] } } },
        doc! { "projection": { "x": { "$meta": "sortKey" } }, "sort": { "s": meta.clone(), "_id": 1 } },
        by(doc! { "s": meta.clone(), "_id": -1 }),
        by(doc! { "_id": 1, "s": meta.clone() }),
        by(doc! { "s": { "$meta": "x" } }),
        by(doc! { "s": { "$meta": "textScore", "y": 1 } }),
        by(doc! { "$natural": 1 }),
        doc! { "hint": { "n": 1 } },
        doc! { "hint": "a_text" },
        doc! { "hint": { "$natural": 1 } },
        doc! { "tailable": true },
        doc! { "returnKey": true },
        doc! { "collation": { "locale": "en" } },
        doc! { "batchSize": 1, "singleBatch": true },
    ] {
        all.push(with(find("r", dog.clone()), more));
    }
    let or = doc! { "$or": [dog.clone(), { "n": 7 }] };
    all.push(with(find("r", or), doc! { "projection": score.clone(), "sort": score.clone() }));
    all.push(with(find("r", doc! {}), doc! { "projection": score.clone() }));
    all.push(with(find("r", doc! {}), by(score.clone())));
    all.push(with(find("r", doc! { "n": 1 }), doc! { "hint": "a_text" }));
    all.push(with(
        find("r", doc! {}),
        doc! { "hint": "a_text", "min": { "_fts": "", "_ftsx": 0 }, "returnKey": true },
    ));
    let key = doc! { "p": 1, "q": "x", "_fts": "", "_ftsx": 0, "s": 0 };
    all.push(with(
        find("pre", doc! {}),
        doc! { "hint": "prefixed", "min": key, "returnKey": true },
    ));
    for command in [
        doc! { "count": "r", "query": dog.clone() },
        doc! { "count": "r", "query": dog.clone(), "limit": 1 },
        doc! { "count": "r", "query": dog.clone(), "hint": { "n": 1 } },
        doc! { "count": "r", "query": { "$or": [dog.clone(), { "n": 3 }] } },
        doc! { "count": "none", "query": dog.clone() },
        doc! { "count": "nosuch", "query": dog.clone() },
        doc! { "count": "pre", "query": dog.clone() },
        doc! { "distinct": "none", "key": "n", "query": dog.clone() },
        doc! { "distinct": "nosuch", "key": "n", "query": dog.clone() },
    ] {
        all.push(command);
    }
    all.extend(pipelines());
    all
}

fn pipelines() -> Vec<Document> {
    let dog = doc! { "$match": text("dog") };
    let score = doc! { "s": { "$meta": "textScore" } };
    let meta = doc! { "$meta": "textScore" };
    let project = doc! { "$project": { "_id": 1, "s": meta.clone() } };
    let by_id = doc! { "$sort": { "_id": 1 } };
    let pipelines: Vec<Vec<Document>> = vec![
        vec![dog.clone()],
        vec![dog.clone(), project.clone()],
        vec![doc! { "$match": { "n": 1 } }, dog.clone()],
        vec![doc! { "$project": { "a": 1 } }, dog.clone()],
        vec![doc! { "$limit": 1 }, dog.clone()],
        vec![dog.clone(), doc! { "$sort": { "s": meta.clone(), "_id": 1 } }, project.clone()],
        vec![dog.clone(), doc! { "$sort": { "s": meta.clone(), "n": -1 } }, doc! { "$skip": 1 }],
        vec![dog.clone(), doc! { "$sort": score.clone() }, doc! { "$limit": 1 }],
        vec![dog.clone(), doc! { "$group": { "_id": Bson::Null, "m": { "$max": meta.clone() } } }],
        vec![dog.clone(), doc! { "$group": { "_id": meta.clone(), "c": { "$sum": 1 } } }],
        vec![dog.clone(), doc! { "$addFields": score.clone() }, by_id.clone()],
        vec![
            dog.clone(),
            doc! { "$set": { "x": meta.clone() } },
            doc! { "$match": { "x": { "$gt": 0.8 } } },
        ],
        vec![dog.clone(), doc! { "$set": { "z": 1 } }, project.clone(), by_id.clone()],
        vec![doc! { "$project": score.clone() }],
        vec![dog.clone(), doc! { "$group": { "_id": "$n" } }, project.clone(), by_id.clone()],
        vec![
            dog.clone(),
            doc! { "$unwind": { "path": "$n", "includeArrayIndex": "i" } },
            project.clone(),
        ],
        vec![dog.clone(), doc! { "$count": "c" }],
        vec![
            dog.clone(),
            doc! { "$facet": { "x": [by_id.clone(), project.clone()], "y": [{ "$sort": score.clone() }, { "$limit": 1 }] } },
        ],
        vec![doc! { "$facet": { "x": [dog.clone()] } }],
        vec![
            by_id.clone(),
            doc! { "$lookup": { "from": "r", "pipeline": [dog.clone(), project.clone(), by_id.clone()], "as": "j" } },
        ],
        vec![
            dog.clone(),
            doc! { "$lookup": { "from": "none", "localField": "_id", "foreignField": "_id", "as": "j" } },
            by_id.clone(),
            project.clone(),
        ],
        vec![
            dog.clone(),
            doc! { "$replaceRoot": { "newRoot": { "q": meta.clone() } } },
            project.clone(),
        ],
        vec![
            dog.clone(),
            by_id.clone(),
            doc! { "$group": { "_id": 1, "r": { "$push": "$$ROOT" }, "t": { "$sum": meta.clone() } } },
        ],
        vec![dog.clone(), by_id.clone(), doc! { "$set": { "whole": "$$ROOT", "s": meta.clone() } }],
        vec![
            dog.clone(),
            doc! { "$unset": "n" },
            doc! { "$sort": { "s": meta.clone(), "_id": 1 } },
        ],
        vec![dog.clone(), doc! { "$project": { "n": 1 } }, project.clone(), by_id.clone()],
        vec![dog.clone(), doc! { "$sortByCount": meta.clone() }],
        vec![dog.clone(), doc! { "$bucketAuto": { "groupBy": meta.clone(), "buckets": 2 } }],
        vec![
            dog.clone(),
            doc! { "$setWindowFields": { "sortBy": { "n": 1 }, "output": { "z": { "$sum": "$n" } } } },
            project.clone(),
        ],
        vec![
            doc! { "$match": { "$or": [text("dog"), { "n": 7 }] } },
            project.clone(),
            by_id.clone(),
        ],
        vec![doc! { "$match": { "$nor": [text("dog")] } }],
        vec![
            doc! { "$unionWith": { "coll": "r", "pipeline": [dog.clone()] } },
            doc! { "$sort": { "_id": 1, "n": 1 } },
        ],
    ];
    let aggregate = |name: &str, pipeline: &[Document]| {
        doc! { "aggregate": name, "pipeline": pipeline, "cursor": {} }
    };
    let mut all: Vec<_> = pipelines.iter().map(|pipeline| aggregate("r", pipeline)).collect();
    all.push(aggregate("none", std::slice::from_ref(&dog)));
    all.push(aggregate("nosuch", std::slice::from_ref(&dog)));
    let mut hinted = aggregate("r", std::slice::from_ref(&dog));
    hinted.insert("hint", doc! { "n": 1 });
    all.push(hinted);
    all
}

/// Queries whose plans must be shown as by the primary.
fn plans() -> Vec<Document> {
    let score = doc! { "s": { "$meta": "textScore" } };
    let find = |name: &str, filter: Document| doc! { "find": name, "filter": filter };
    let mut scored = find("r", text("dog cat -bird \"dog cat\""));
    scored.insert("projection", score.clone());
    let mut sorted = find("r", text("dog"));
    sorted.insert("sort", score);
    sorted.insert("limit", 2);
    let mut prefixed = text("dog");
    prefixed.insert("q", "x");
    prefixed.insert("p", 1);
    let mut suffixed = prefixed.clone();
    suffixed.insert("s", doc! { "$gt": 3 });
    suffixed.insert("z", 1);
    let mut filtered = text("dog");
    filtered.insert("n", 1);
    vec![
        find("r", text("dog")),
        find("r", text("dog cat -bird \"dog cat\"")),
        find("r", text("the")),
        find("r", filtered),
        find("r", doc! { "$or": [{ "n": 1 }, text("dog")] }),
        find(
            "r",
            doc! { "$text": { "$search": "dogs", "$language": "de", "$caseSensitive": true } },
        ),
        find("pre", prefixed),
        find("pre", suffixed),
        scored,
        sorted,
        doc! { "count": "r", "query": text("dog") },
    ]
}

/// Generates random texts, documents, indexes and searches.
struct Random(StdRng);

const LANGUAGES: [&str; 16] = [
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "spanish",
    "swedish",
    "turkish",
    "none",
];

const GAPS: [&str; 11] = [" ", " ", " ", ", ", ". ", "-", "/", "\n", "—", "'", "\t"];

const WORDS: [&str; 72] = [
    "dog",
    "dogs",
    "Dogs",
    "running",
    "Running",
    "runs",
    "the",
    "The",
    "don't",
    "l'homme",
    "O'Neil's",
    "naïve",
    "café",
    "Cafe",
    "ÉTÉ",
    "été",
    "İstanbul",
    "ISTANBUL",
    "ısı",
    "straße",
    "STRASSE",
    "evolução",
    "evoluções",
    "evolución",
    "akiből",
    "nőknek",
    "нога",
    "НОГИ",
    "книга",
    "日本語",
    "ὈΔΥΣΣΕΎΣ",
    "e\u{301}te\u{301}",
    "ŒUVRE",
    "3.14",
    "foo@bar.com",
    "C++",
    "a",
    "I",
    "são",
    "çok",
    "être",
    "même",
    "für",
    "der",
    "und",
    "hétérogénéité",
    "Laufen",
    "Häuser",
    "hauser",
    "continuellement",
    "generously",
    "nationalité",
    "besuchen",
    "besucht",
    "libros",
    "corriendo",
    "cantando",
    "giocatori",
    "andiamo",
    "kirjoissa",
    "taloista",
    "biblioteken",
    "huset",
    "husene",
    "boeken",
    "lopende",
    "cărțile",
    "frumoasă",
    "kitaplar",
    "evlerinde",
    "szerelmes",
    "könyvek",
];

impl Random {
    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        all.choose(&mut self.0).unwrap_or_else(|| unreachable!("an empty choice"))
    }

    fn chance(&mut self, of: f64) -> bool {
        self.0.random_bool(of)
    }

    fn word(&mut self) -> String {
        let word = *self.pick(&WORDS);
        match self.0.random_range(0..8) {
            0 => word.to_uppercase(),
            1 => word.to_lowercase(),
            _ => word.to_owned(),
        }
    }

    fn text(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.0.random_range(0..12) {
            text.push_str(&self.word());
            let gap = *self.pick(&GAPS);
            text.push_str(gap);
        }
        text
    }

    fn indexes(&mut self) -> Vec<(String, Document)> {
        let keys = [
            doc! { "a": "text" },
            doc! { "a": "text", "b.c": "text" },
            doc! { "$**": "text" },
            doc! { "p": 1, "a": "text", "b.c": "text" },
            doc! { "p": -1, "a": "text", "n": 1 },
            doc! { "b.c": "text", "list": "text" },
        ];
        let mut all = Vec::new();
        for (at, key) in keys.into_iter().enumerate() {
            let mut spec = doc! {
                "name": "t", "key": key.clone(), "default_language": *self.pick(&LANGUAGES),
                "language_override": *self.pick(&["language", "tongue"]),
                "textIndexVersion": *self.pick(&[3, 3, 2]),
            };
            if self.chance(0.5) && !key.contains_key("$**") {
                let texts = key.iter().filter(|(_, kind)| kind.as_str().is_some());
                let weights: Document = texts
                    .map(|(name, _)| (name.clone(), Bson::Int32(self.0.random_range(1..20))))
                    .collect();
                spec.insert("weights", weights);
            }
            if at == 1 {
                spec.insert("partialFilterExpression", doc! { "n": { "$gt": 2 } });
            }
            all.push((format!("c{at}"), spec));
        }
        all
    }

    fn document(&mut self, id: i32) -> Document {
        let mut doc =
            doc! { "_id": id, "n": self.0.random_range(0..10), "p": self.0.random_range(0..2) };
        for name in ["a", "x"] {
            if self.chance(0.7) {
                doc.insert(name, self.text());
            }
        }
        if self.chance(0.6) {
            let mut inner = doc! { "c": self.text() };
            if self.chance(0.3) {
                inner.insert("language", *self.pick(&LANGUAGES));
            }
            let inner = if self.chance(0.3) {
                Bson::Array(vec![inner.into(), doc! { "c": [self.text(), self.text()] }.into()])
            } else {
                inner.into()
            };
            doc.insert("b", inner);
        }
        if self.chance(0.3) {
            doc.insert("list", vec![Bson::from(self.text()), Bson::Null, self.text().into()]);
        }
        if self.chance(0.25) {
            doc.insert(*self.pick(&["language", "tongue"]), *self.pick(&LANGUAGES));
        }
        doc
    }

    fn fill(&mut self, primary: &Node, name: &str, from: i32) -> Result<()> {
        let documents: Vec<Document> = (from..from + 50).map(|id| self.document(id)).collect();
        primary.run("test", doc! { "insert": name, "documents": documents })?;
        Ok(())
    }

    fn change(&mut self, primary: &Node, name: &str) -> Result<()> {
        let mut updates = Vec::new();
        for _ in 0..30 {
            let id = self.0.random_range(0..50);
            let change = match self.0.random_range(0..5) {
                0 => Bson::from(self.document(id)),
                1 => doc! { "$set": { "a": self.text() } }.into(),
                2 => {
                    doc! { "$set": { "n": self.0.random_range(0..10), "b": { "c": self.text() } } }
                        .into()
                }
                3 => doc! { "$unset": { "a": 1 } }.into(),
                _ => doc! { "$set": { "language": *self.pick(&LANGUAGES) } }.into(),
            };
            updates.push(doc! { "q": { "_id": id }, "u": change });
        }
        primary.run("test", doc! { "update": name, "updates": updates, "ordered": false })?;
        let deletes: Vec<_> = (0..8)
            .map(|_| doc! { "q": { "_id": self.0.random_range(0..50) }, "limit": 1 })
            .collect();
        primary.run("test", doc! { "delete": name, "deletes": deletes })?;
        Ok(())
    }

    fn query(&mut self, spec: &Document) -> Document {
        let mut parts = Vec::new();
        for _ in 0..self.0.random_range(1..4) {
            let (word, other) = (self.word(), self.word());
            parts.push(match self.0.random_range(0..10) {
                0 => format!("-{word}"),
                1 => format!("\"{word}\""),
                2 => format!("-\"{word} {other}\""),
                3 => format!("{word}-{other}"),
                _ => word,
            });
        }
        let mut search = doc! { "$search": parts.join(" ") };
        if self.chance(0.4) {
            search.insert("$language", *self.pick(&LANGUAGES));
        }
        if self.chance(0.2) {
            search.insert("$caseSensitive", true);
        }
        if self.chance(0.2) {
            search.insert("$diacriticSensitive", true);
        }
        let mut query = doc! { "$text": search };
        let prefixed = spec.get_document("key").is_ok_and(|key| key.contains_key("p"));
        if prefixed {
            query.insert("p", self.0.random_range(0..2));
        }
        if spec.contains_key("partialFilterExpression") {
            query.insert("n", doc! { "$gt": self.0.random_range(1..5) });
        } else if self.chance(0.2) {
            query.insert("n", doc! { "$lt": 6 });
        }
        query
    }
}

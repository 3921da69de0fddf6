//! `explain`: compares the plans of a real primary and of our node for the same commands.
//!
//! The visible content is compared: the stages with their bounds, filters and patterns, the rejected plans (as a
//! set), and for `executionStats` the counts. What cannot be equal is excluded by name: see [`UNTOLD`] and [`known`].

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tests::{
    node::Node,
    repl_set::{Member, ReplSet},
    servers::Version,
    understudy,
    wait::PATIENCE,
    workload::seeds,
};

/// Number of compared plans.
const PROBES: usize = 600;

/// Maximum number of differences for reasons that are not listed in [`known`]: mongod's planner has rules for rare
/// combinations of predicates that we have not seen yet. CI's seed has none; a tie in the plan trial may add one.
const UNEXPLAINED_MAX: usize = 3;

/// Random finds, counts, distincts and aggregates over indexes of every kind.
#[test]
fn plans_are_those_of_the_primary() -> Result<()> {
    for seed in seeds(1) {
        println!("SEED={seed}");
        let mut set = ReplSet::named("explain").version(Version::V8_2).start()?;
        fill(set.primary()?, seed)?;
        let options = understudy::options("ours", Some(set.name()))?;
        set.add(options, Member { votes: 0 })?;
        set.await_state(set.ours()?, "SECONDARY", PATIENCE)?;
        set.await_caught_up()?;
        let mut random = Random(StdRng::seed_from_u64(seed));
        let mut judge = Judge::default();
        for _ in 0..PROBES {
            let command = random.command();
            judge.ask(set.primary()?, set.ours()?, &command)?;
        }
        judge.done()?;
        set.finish()?;
    }
    Ok(())
}

/// Inserts documents with a field for every kind of index.
fn fill(primary: &Node, seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
    let documents: Vec<Document> = (0..300)
        .map(|n| {
            let mut at = |max: i32| random.random_range(0..max);
            let words = ["ab", "Ab", "abc", "b", "C"];
            let word = usize::try_from(at(5)).ok().and_then(|at| words.get(at)).copied();
            let mut doc = doc! {
                "_id": n, "a": at(20), "b": at(5), "c": at(10), "e": at(30), "f": at(4), "g": at(12),
                "d": at(9), "h": at(40), "m": [at(6), at(6)], "n": { "x": at(7), "y": at(7) },
                "t": word.unwrap_or(""), "w": { "p": at(8), "q": at(8) }, "z": at(5),
            };
            if n % 3 == 0 {
                doc.insert("s", at(6));
            }
            if n % 10 == 0 {
                doc.insert("a", Bson::Null);
            }
            doc
        })
        .collect();
    primary.run("test", doc! { "insert": "p", "documents": documents })?;
    let collated = doc! { "locale": "en", "strength": 2 };
    let partial = doc! { "a": { "$gt": 5 } };
    let indexes = [
        doc! { "key": { "a": 1 }, "name": "a_1" },
        doc! { "key": { "b": 1, "c": 1 }, "name": "b_1_c_1" },
        doc! { "key": { "e": -1 }, "name": "e_-1" },
        doc! { "key": { "f": 1, "g": -1 }, "name": "f_1_g_-1" },
        doc! { "key": { "m": 1 }, "name": "m_1" },
        doc! { "key": { "n.x": 1, "n.y": 1 }, "name": "n.x_1_n.y_1" },
        doc! { "key": { "s": 1 }, "name": "s_1", "sparse": true },
        doc! { "key": { "d": 1 }, "name": "d_1", "partialFilterExpression": partial },
        doc! { "key": { "h": "hashed" }, "name": "h_hashed" },
        doc! { "key": { "w.$**": 1 }, "name": "w.$**_1" },
        doc! { "key": { "t": 1 }, "name": "t_1", "collation": collated },
    ];
    primary.run("test", doc! { "createIndexes": "p", "indexes": indexes.to_vec() })?;
    Ok(())
}

/// Fields that differ between any two servers, or between two runs.
const UNTOLD: [&str; 11] = [
    "isCached",
    "planNodeId",
    "slotBasedPlan",
    "executionTimeMillisEstimate",
    "executionTimeMillis",
    "saveState",
    "restoreState",
    "needYield",
    "usedDisk",
    "spilledDataStorageSize",
    "spills",
];

/// Asks both and collects the differences by subject.
#[derive(Default)]
struct Judge {
    asked: usize,
    equal: usize,
    differing: usize,
    known: BTreeMap<&'static str, usize>,
    complaints: BTreeMap<&'static str, Vec<String>>,
}

/// Why the primary's plan differs from ours, if it is of a kind that we never choose.
fn known(command: &Document, primary: &Told) -> Option<&'static str> {
    let asked = command.to_string();
    let plan = primary.plan.to_string();
    let all = format!("{plan}{}", primary.rejected);
    let has = |text: &str| all.contains(text);
    let kinds = [
        (has("SORT_MERGE"), "SORT_MERGE: we sort what the branches give"),
        (has("AND_SORTED"), "AND_SORTED: we never intersect two indexes"),
        (has("CollationKey"), "bounds of a collation: ICU's bytes are no part of our library"),
        (
            asked.contains("aggregate") && has(r#""transformBy": { "_id": 0"#),
            "what the stages above need: we hand on whole documents",
        ),
        (fetches_twice(&primary.plan), "a branch of $or that fetches: the primary counts it twice"),
        (asked.contains("w.p"), "wildcards: we don't know which paths below them hold no arrays"),
        (
            asked.contains(r#""$and": [{ "$or""#),
            "$or within $and: we don't hand predicates down to branches, nor drop those that another implies",
        ),
        (
            asked.contains(r#""$or""#) && asked.contains(r#""sort""#),
            "$or with a sort: which plans compete is not known to us",
        ),
        (primary.stages.to_string().contains("$willBeMerged"), "what a $group spilled"),
    ];
    kinds.into_iter().find_map(|(holds, why)| holds.then_some(why))
}

/// True if a branch of an `$or` fetches below another fetching stage.
fn fetches_twice(plan: &Bson) -> bool {
    let Bson::Document(plan) = plan else { return false };
    let branches = plan.get_array("inputStages").map_or(&[][..], Vec::as_slice);
    let fetches = |branch: &Bson| branch.to_string().contains(r#""FETCH""#);
    branches.iter().any(fetches) || plan.get("inputStage").is_some_and(fetches_twice)
}

impl Judge {
    fn ask(&mut self, primary: &Node, ours: &Node, command: &Document) -> Result<()> {
        let explain = doc! { "explain": command.clone(), "verbosity": "executionStats" };
        let answer = |node: &Node| node.answer("test", explain.clone()).map(|a| Told::of(&a));
        let (want, got) = (answer(primary)?, answer(ours)?);
        self.asked += 1;
        let parts = [
            ("parsed query", &want.parsed, &got.parsed),
            ("plan", &want.plan, &got.plan),
            ("rejected plans", &want.rejected, &got.rejected),
            ("totals", &want.totals, &got.totals),
            ("stages", &want.stages, &got.stages),
        ];
        if parts.iter().all(|(_, want, got)| want == got) {
            self.equal += 1;
            return Ok(());
        }
        // Whatever the plan, the results must be the same.
        let rows = ("rows", &want.returned, &got.returned);
        let parts = match known(command, &want) {
            Some(why) => {
                *self.known.entry(why).or_default() += 1;
                vec![rows]
            }
            None => parts.to_vec(),
        };
        let differing = self.complaints.values().map(Vec::len).sum::<usize>();
        for (name, want, got) in parts {
            if want != got {
                let text = format!("{command}\n  primary {want}\n  ours    {got}");
                self.complaints.entry(name).or_default().push(text);
            }
        }
        let now = self.complaints.values().map(Vec::len).sum::<usize>();
        self.differing += usize::from(now > differing);
        Ok(())
    }

    fn done(self) -> Result<()> {
        let (asked, differing) = (self.asked, self.differing);
        println!("{} of {asked} are equal", self.equal);
        for (why, n) in &self.known {
            println!("{n} of {asked} are known to differ: {why}");
        }
        for (name, found) in &self.complaints {
            println!("{} of {asked} differ in their {name}", found.len());
        }
        for (name, found) in &self.complaints {
            println!("== {name}\n{}", found.join("\n"));
        }
        let rows = self.complaints.get("rows").map_or(0, Vec::len);
        ensure!(rows == 0, "{rows} of {asked} commands return another number of rows");
        ensure!(
            differing <= UNEXPLAINED_MAX,
            "{differing} of {asked} plans differ for no known reason"
        );
        Ok(())
    }
}

/// The compared parts of an explanation.
struct Told {
    returned: Bson,
    parsed: Bson,
    plan: Bson,
    rejected: Bson,
    totals: Bson,
    stages: Bson,
}

impl Told {
    fn of(answer: &Document) -> Self {
        let (cursor, above) = match answer.get_array("stages").map(Vec::as_slice) {
            Ok([Bson::Document(first), above @ ..]) => {
                (first.get_document("$cursor").unwrap_or(first), above)
            }
            _ => (answer, &[][..]),
        };
        let empty = Document::new();
        let planner = cursor.get_document("queryPlanner").unwrap_or(&empty);
        let stats = cursor.get_document("executionStats").unwrap_or(&empty);
        let plan = |plan: Option<&Bson>| match plan {
            Some(Bson::Document(plan)) => settled(plan.get("queryPlan").unwrap_or(&plan.into())),
            _ => Bson::Null,
        };
        let winning = plan(planner.get("winningPlan"));
        let grouped = winning.to_string().contains("GROUP");
        let rejected = planner.get_array("rejectedPlans").map_or(&[][..], Vec::as_slice);
        let rejected = rejected.iter().map(|one| plan(Some(one)));
        // Below a grouping mongod shows rejected plans with the projection that they would pass on.
        let mut rejected: Vec<Bson> =
            rejected.map(|one| if grouped { unprojected(one) } else { one }).collect();
        rejected.sort_by_key(Bson::to_string);
        // mongod's second execution engine (SBE), which runs groupings, counts keys between intervals differently.
        let names = match grouped {
            true => &["nReturned", "totalDocsExamined"][..],
            false => &["nReturned", "totalKeysExamined", "totalDocsExamined"],
        };
        let totals: Document = names
            .iter()
            .map(|name| (*name, stats.get(name).cloned().unwrap_or(Bson::Null)))
            .map(|(n, v)| (n.to_owned(), v))
            .collect();
        let mut told: Vec<Bson> = above.iter().map(settled).collect();
        told.extend(answer.get("errmsg").cloned());
        Self {
            returned: stats.get("nReturned").cloned().unwrap_or(Bson::Null),
            parsed: planner.get("parsedQuery").cloned().unwrap_or(Bson::Null),
            plan: winning,
            rejected: rejected.into(),
            totals: totals.into(),
            stages: told.into(),
        }
    }
}

/// A plan without the projection on top of it.
fn unprojected(plan: Bson) -> Bson {
    match plan {
        Bson::Document(mut doc)
            if doc.get_str("stage").is_ok_and(|name| name.starts_with("PROJECTION")) =>
        {
            doc.remove("inputStage").unwrap_or(Bson::Null)
        }
        other => other,
    }
}

/// Removes what differs between any two servers, and sorts the fields.
fn settled(told: &Bson) -> Bson {
    match told {
        Bson::Document(doc) => {
            let kept = doc.iter().filter(|(name, _)| !UNTOLD.contains(&name.as_str()));
            // We do not track which paths below a wildcard are multikey, and `isSparse` of such an index depends on
            // mongod's engine.
            let wild = matches!(doc.get_str("indexName"), Ok(name) if name.contains("$**"));
            let untold =
                |name: &str| name.to_lowercase().contains("multikey") || name == "isSparse";
            let kept = kept.filter(|(name, _)| !wild || !untold(name));
            let fields: BTreeMap<_, _> = kept.map(|(name, v)| (name.clone(), settled(v))).collect();
            Bson::Document(fields.into_iter().collect())
        }
        Bson::Array(items) => Bson::Array(items.iter().map(settled).collect()),
        Bson::Int64(n) => i32::try_from(*n).map_or(Bson::Int64(*n), Bson::Int32),
        other => other.clone(),
    }
}

/// Generates random commands.
struct Random(StdRng);

impl Random {
    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of.choose(&mut self.0).cloned().unwrap_or_else(|| unreachable!("lists are not empty"))
    }

    fn below(&mut self, max: i32) -> i32 {
        self.0.random_range(0..max)
    }

    fn command(&mut self) -> Document {
        match self.below(12) {
            0..=6 => self.find(),
            7 => self.count(),
            8 => self.distinct(),
            _ => self.aggregate(),
        }
    }

    fn find(&mut self) -> Document {
        let mut command = doc! { "find": "p", "filter": self.filter() };
        if self.below(2) == 0 {
            command.insert("sort", self.sort());
        }
        if self.below(2) == 0 {
            command.insert("projection", self.projection());
        }
        if self.below(4) == 0 {
            command.insert("limit", self.below(20) + 1);
        }
        if self.below(6) == 0 {
            command.insert("skip", self.below(5) + 1);
        }
        if self.below(12) == 0 {
            command.insert("hint", self.one(&["a_1", "b_1_c_1", "e_-1", "f_1_g_-1", "_id_"]));
        }
        if self.below(12) == 0 {
            command.insert("collation", doc! { "locale": "en", "strength": 2 });
        }
        command
    }

    fn count(&mut self) -> Document {
        let mut command = doc! { "count": "p", "query": self.filter() };
        if self.below(6) == 0 {
            command.insert("limit", self.below(20) + 1);
        }
        if self.below(8) == 0 {
            command.insert("skip", self.below(5) + 1);
        }
        command
    }

    fn distinct(&mut self) -> Document {
        let key = self.one(&["a", "b", "c", "e", "f", "g", "m", "n.x", "s", "z", "_id"]);
        doc! { "distinct": "p", "key": key, "query": self.filter() }
    }

    fn aggregate(&mut self) -> Document {
        let mut pipeline = Vec::new();
        if self.below(4) > 0 {
            pipeline.push(doc! { "$match": self.filter() });
        }
        if self.below(3) == 0 {
            pipeline.push(doc! { "$sort": self.sort() });
        }
        match self.below(7) {
            0 => pipeline.push(doc! { "$project": self.projection() }),
            1 => {
                let by = self.one(&["$a", "$b", "$f", "$z", "$m"]);
                pipeline.push(doc! { "$group": { "_id": by } });
            }
            2 => {
                let by = self.one(&["$a", "$b", "$z"]);
                pipeline.push(doc! { "$group": { "_id": by, "n": { "$sum": "$c" } } });
            }
            3 => pipeline.push(doc! { "$count": "n" }),
            4 => pipeline.push(doc! { "$limit": self.below(20) + 1 }),
            5 => pipeline.push(doc! { "$unwind": "$m" }),
            _ => pipeline.push(doc! { "$addFields": { "k": { "$add": ["$a", 1] } } }),
        }
        doc! { "aggregate": "p", "pipeline": pipeline, "cursor": {} }
    }

    /// One to three predicates, sometimes in an `$or`.
    fn filter(&mut self) -> Document {
        match self.below(10) {
            0 => doc! {},
            1..=3 => self.predicate(),
            4..=6 => doc! { "$and": [self.predicate(), self.predicate()] },
            7 => self.pair(),
            8 => doc! { "$or": [self.predicate(), self.predicate()] },
            _ => {
                let or = [self.predicate(), self.predicate()];
                doc! { "$and": [{ "$or": or.to_vec() }, self.predicate()] }
            }
        }
    }

    /// Predicates on both fields of a compound index.
    fn pair(&mut self) -> Document {
        let (first, second) = self.one(&[("b", "c"), ("f", "g"), ("n.x", "n.y")]);
        doc! { first: self.operand(5), second: self.operand(10) }
    }

    fn predicate(&mut self) -> Document {
        let (path, max) = self.one(&[
            ("a", 20),
            ("b", 5),
            ("c", 10),
            ("e", 30),
            ("f", 4),
            ("g", 12),
            ("m", 6),
            ("n.x", 7),
            ("n.y", 7),
            ("s", 6),
            ("d", 9),
            ("h", 40),
            ("w.p", 8),
            ("z", 5),
            ("_id", 300),
        ]);
        match self.below(24) {
            0 => doc! { "t": self.one(&["ab", "b", "C"]) },
            1 => doc! { "t": { "$regex": "^a" } },
            _ => doc! { path: self.operand(max) },
        }
    }

    fn operand(&mut self, max: i32) -> Bson {
        let n = self.below(max);
        match self.below(12) {
            0..=4 => n.into(),
            5 => doc! { "$gt": n }.into(),
            6 => doc! { "$gte": n, "$lt": n + 4 }.into(),
            7 => doc! { "$lte": n }.into(),
            8 | 9 => doc! { "$in": [n, self.below(max), self.below(max)] }.into(),
            10 => self.one(&[
                Bson::Null,
                doc! { "$ne": n }.into(),
                doc! { "$exists": true }.into(),
                doc! { "$mod": [3, 1] }.into(),
                doc! { "$type": "int" }.into(),
            ]),
            _ => doc! { "$lt": n }.into(),
        }
    }

    fn sort(&mut self) -> Document {
        self.one(&[
            doc! { "a": 1 },
            doc! { "a": -1 },
            doc! { "c": 1 },
            doc! { "b": 1, "c": 1 },
            doc! { "b": -1, "c": -1 },
            doc! { "b": 1, "c": -1 },
            doc! { "e": 1 },
            doc! { "f": 1, "g": -1 },
            doc! { "g": 1 },
            doc! { "m": 1 },
            doc! { "n.x": 1 },
            doc! { "s": 1 },
            doc! { "z": 1 },
            doc! { "_id": -1 },
            doc! { "h": 1 },
            doc! { "t": 1 },
        ])
    }

    fn projection(&mut self) -> Document {
        self.one(&[
            doc! { "_id": 0, "a": 1 },
            doc! { "a": 1 },
            doc! { "_id": 0, "b": 1, "c": 1 },
            doc! { "_id": 0, "c": 1 },
            doc! { "_id": 0, "e": 1 },
            doc! { "_id": 1 },
            doc! { "_id": 0, "f": 1, "g": 1 },
            doc! { "_id": 0, "m": 1 },
            doc! { "_id": 0, "n.x": 1 },
            doc! { "z": 0 },
            doc! { "_id": 0, "k": { "$add": ["$a", 1] } },
            doc! { "_id": 0, "b": 1, "k": { "$add": ["$c", 1] } },
        ])
    }
}

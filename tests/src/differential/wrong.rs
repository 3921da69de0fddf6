//! Random invalid commands: operators and stages with arguments that they do not accept, options of the wrong type.

use bson::{Bson, Document, doc};

use super::expressions::Kind;
use super::random::Random;
use super::{Case, Order};

/// Operators with a list of arguments.
const LISTED: [&str; 62] = [
    "$abs",
    "$add",
    "$allElementsTrue",
    "$and",
    "$anyElementTrue",
    "$arrayElemAt",
    "$arrayToObject",
    "$atan2",
    "$avg",
    "$binarySize",
    "$bitAnd",
    "$bitNot",
    "$bsonSize",
    "$cmp",
    "$concat",
    "$concatArrays",
    "$cond",
    "$dayOfYear",
    "$divide",
    "$eq",
    "$first",
    "$hour",
    "$ifNull",
    "$in",
    "$indexOfArray",
    "$indexOfBytes",
    "$indexOfCP",
    "$isArray",
    "$isNumber",
    "$isoWeek",
    "$log",
    "$ln",
    "$max",
    "$mergeObjects",
    "$mod",
    "$multiply",
    "$not",
    "$objectToArray",
    "$pow",
    "$range",
    "$reverseArray",
    "$round",
    "$setDifference",
    "$setEquals",
    "$setIsSubset",
    "$size",
    "$slice",
    "$split",
    "$stdDevPop",
    "$strLenBytes",
    "$strLenCP",
    "$strcasecmp",
    "$substr",
    "$substrCP",
    "$subtract",
    "$toDate",
    "$toLower",
    "$toObjectId",
    "$tsSecond",
    "$type",
    "$year",
    "$nothing",
];

/// Operators and their named arguments.
const NAMED: &[(&str, &[&str])] = &[
    ("$convert", &["input", "to", "onError", "onNull", "format", "byteOrder"]),
    ("$cond", &["if", "then", "else"]),
    ("$dateAdd", &["startDate", "unit", "amount", "timezone"]),
    ("$dateSubtract", &["startDate", "unit", "amount", "timezone"]),
    ("$dateDiff", &["startDate", "endDate", "unit", "timezone", "startOfWeek"]),
    ("$dateFromParts", &["year", "month", "day", "hour", "isoWeekYear", "isoWeek", "timezone"]),
    ("$dateFromString", &["dateString", "format", "timezone", "onNull", "onError"]),
    ("$dateToParts", &["date", "timezone", "iso8601"]),
    ("$dateToString", &["date", "format", "timezone", "onNull"]),
    ("$dateTrunc", &["date", "unit", "binSize", "timezone", "startOfWeek"]),
    ("$filter", &["input", "as", "cond", "limit"]),
    ("$firstN", &["n", "input"]),
    ("$getField", &["field", "input"]),
    ("$hour", &["date", "timezone"]),
    ("$let", &["vars", "in"]),
    ("$ltrim", &["input", "chars"]),
    ("$map", &["input", "as", "in"]),
    ("$maxN", &["n", "input"]),
    ("$median", &["input", "method"]),
    ("$percentile", &["input", "p", "method"]),
    ("$reduce", &["input", "initialValue", "in"]),
    ("$regexFind", &["input", "regex", "options"]),
    ("$regexFindAll", &["input", "regex", "options"]),
    ("$regexMatch", &["input", "regex", "options"]),
    ("$replaceAll", &["input", "find", "replacement"]),
    ("$replaceOne", &["input", "find", "replacement"]),
    ("$setField", &["field", "input", "value"]),
    ("$sortArray", &["input", "sortBy"]),
    ("$switch", &["branches", "default"]),
    ("$trim", &["input", "chars"]),
    ("$unsetField", &["field", "input"]),
    ("$zip", &["inputs", "useLongestLength", "defaults"]),
];

/// Stages and their options.
const STAGES: &[(&str, &[&str])] = &[
    ("$bucket", &["groupBy", "boundaries", "default", "output"]),
    ("$bucketAuto", &["groupBy", "buckets", "output", "granularity"]),
    ("$count", &["n"]),
    ("$densify", &["field", "range", "partitionByFields"]),
    ("$facet", &["one", "two", "a.b"]),
    ("$fill", &["sortBy", "output", "partitionBy", "partitionByFields"]),
    (
        "$graphLookup",
        &[
            "from",
            "startWith",
            "connectFromField",
            "connectToField",
            "as",
            "maxDepth",
            "depthField",
        ],
    ),
    ("$group", &["_id", "n", "m", "a.b"]),
    ("$lookup", &["from", "localField", "foreignField", "as", "let", "pipeline"]),
    ("$project", &["a", "a.b", "c", "$x", ""]),
    ("$redact", &["x"]),
    ("$replaceRoot", &["newRoot"]),
    ("$replaceWith", &["newRoot"]),
    ("$sample", &["size"]),
    ("$set", &["a", "a.b", "c", "$x", "b..c"]),
    ("$setWindowFields", &["partitionBy", "sortBy", "output"]),
    ("$skip", &["n"]),
    ("$limit", &["n"]),
    ("$sort", &["a", "c", "a.b", "$natural"]),
    ("$sortByCount", &["n"]),
    ("$unionWith", &["coll", "pipeline"]),
    ("$unset", &["a"]),
    ("$unwind", &["path", "preserveNullAndEmptyArrays", "includeArrayIndex"]),
    ("$nothing", &["x"]),
];

const ACCUMULATORS: [&str; 16] = [
    "$sum",
    "$avg",
    "$push",
    "$first",
    "$count",
    "$firstN",
    "$maxN",
    "$top",
    "$topN",
    "$bottomN",
    "$mergeObjects",
    "$stdDevPop",
    "$percentile",
    "$median",
    "$max",
    "$nothing",
];

const FUNCTIONS: [&str; 16] = [
    "$sum",
    "$rank",
    "$shift",
    "$derivative",
    "$integral",
    "$expMovingAvg",
    "$linearFill",
    "$locf",
    "$covariancePop",
    "$documentNumber",
    "$first",
    "$firstN",
    "$topN",
    "$median",
    "$count",
    "$nothing",
];

impl Random {
    /// A pipeline with a stage or operator whose arguments are usually invalid.
    pub(super) fn wrong_pipeline(&mut self) -> Case {
        let stage = match self.below(4) {
            0 => self.wrong_stage(),
            1 => {
                let function = self.wrong_call(&ACCUMULATORS);
                doc! { "$group": { "_id": null, "x": function } }
            }
            2 => {
                let mut function = self.wrong_call(&FUNCTIONS);
                if self.chance(40) {
                    let bounds = self.list(0, 3, |own| own.wrong_value());
                    let window = doc! { self.pick(&["documents", "range"]): bounds };
                    function.insert("window", window);
                }
                doc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "x": function } } }
            }
            _ => doc! { "$set": { "x": self.wrong_operator() } },
        };
        let pipeline = vec![doc! { "$sort": { "_id": 1 } }, doc! { "$limit": 5 }, stage];
        let command = doc! { "aggregate": "p", "pipeline": pipeline, "cursor": {} };
        Case { command, order: Order::Set }
    }

    /// An operator with too few, too many or unknown arguments, or arguments of the wrong type.
    pub(super) fn wrong_operator(&mut self) -> Document {
        if self.chance(40) {
            return self.wrong_call(&LISTED);
        }
        let (name, arguments) = self.pick(NAMED);
        if self.chance(15) {
            return doc! { name: self.wrong_value() };
        }
        doc! { name: self.some_of(arguments) }
    }

    fn wrong_call(&mut self, names: &[&str]) -> Document {
        let name = self.pick(names);
        let argument = match self.below(3) {
            0 => Bson::Array(self.list(0, 5, |own| own.leaf(Kind::Any))),
            1 => {
                let names = ["input", "n", "sortBy", "output", "by", "unit", "N", "p", "method"];
                Bson::Document(self.some_of(&names))
            }
            _ => self.wrong_value(),
        };
        doc! { name: argument }
    }

    fn wrong_stage(&mut self) -> Document {
        let (name, options) = self.pick(STAGES);
        // `$sample` returns different documents on each server, so it only gets invalid arguments.
        if name == "$sample" || self.chance(25) {
            return doc! { name: self.pick(&[
                Bson::Null,
                Bson::Int32(-1),
                Bson::String(String::new()),
                Bson::Array(vec![]),
                Bson::Document(doc! {}),
                Bson::Double(1.5),
                Bson::Document(doc! { "size": -1 }),
            ]) };
        }
        doc! { name: self.some_of(options) }
    }

    /// A document with some of these fields; sometimes with an unknown one.
    fn some_of(&mut self, names: &[&str]) -> Document {
        let mut some = Document::new();
        for name in names {
            if self.chance(70) {
                some.insert(*name, self.argument());
            }
        }
        if self.chance(10) {
            some.insert("unknown", 1);
        }
        some
    }

    fn argument(&mut self) -> Bson {
        match self.below(6) {
            0 => self.wrong_value(),
            1 => Bson::String(
                self.pick(&["day", "UTC", "x", "approximate", "other", "$$this"]).into(),
            ),
            2 => Bson::Array(self.list(0, 3, |own| own.leaf(Kind::Any))),
            3 => Bson::Document(doc! { "x": self.leaf(Kind::Any) }),
            _ => self.leaf(Kind::Any),
        }
    }

    fn wrong_value(&mut self) -> Bson {
        match self.below(8) {
            0 => Bson::Null,
            1 => Bson::Int32(self.int(-2, 3)),
            2 => Bson::String(self.text()),
            3 => Bson::Document(doc! {}),
            4 => Bson::Array(vec![]),
            5 => Bson::Boolean(true),
            6 => Bson::Document(doc! { "x": 1 }),
            _ => self.scalar(),
        }
    }

    /// Makes a command invalid somewhere: changes a value or a name.
    pub(super) fn spoil(&mut self, command: &mut Document) {
        if self.chance(20) {
            return self.spoil_option(command);
        }
        let mut places = Vec::new();
        let spoilt = ["filter", "query", "projection", "pipeline", "sort"];
        for (name, value) in command.iter().filter(|(name, _)| spoilt.contains(&name.as_str())) {
            collect(value, &mut vec![name.clone()], &mut places);
        }
        if places.is_empty() {
            return;
        }
        let place = self.pick(&places);
        let wrong = match self.below(4) {
            0 => Bson::String(self.text()),
            1 => self.number(),
            _ => self.value(1),
        };
        replace(command, &place, wrong);
    }

    /// Gives a command an option of the wrong type or an unknown option.
    fn spoil_option(&mut self, command: &mut Document) {
        let options: &[&str] = match command.keys().next().map(String::as_str) {
            Some("find") => &[
                "filter",
                "projection",
                "sort",
                "hint",
                "collation",
                "let",
                "skip",
                "limit",
                "batchSize",
                "singleBatch",
                "min",
                "max",
                "returnKey",
                "showRecordId",
                "tailable",
                "noCursorTimeout",
                "allowDiskUse",
                "maxTimeMS",
                "oplogReplay",
                "nothing",
            ],
            Some("count") => {
                &["query", "limit", "skip", "hint", "collation", "maxTimeMS", "nothing"]
            }
            Some("distinct") => &["key", "query", "hint", "collation", "maxTimeMS", "nothing"],
            _ => &[
                "pipeline",
                "cursor",
                "hint",
                "collation",
                "let",
                "explain",
                "allowDiskUse",
                "bypassDocumentValidation",
                "maxTimeMS",
                "nothing",
            ],
        };
        let wrong = match self.below(4) {
            0 => Bson::Null,
            1 => Bson::String(self.text()),
            2 => Bson::Array(Vec::new()),
            _ => Bson::MinKey,
        };
        command.insert(self.pick(options), wrong);
    }
}

/// Collects the paths of all nested values.
fn collect(value: &Bson, at: &mut Vec<String>, into: &mut Vec<Vec<String>>) {
    if at.len() > 1 {
        into.push(at.clone());
    }
    let mut below = |name: String, value: &Bson| {
        at.push(name);
        collect(value, at, into);
        at.pop();
    };
    match value {
        Bson::Document(inner) => inner.iter().for_each(|(name, value)| below(name.clone(), value)),
        Bson::Array(items) => {
            items.iter().enumerate().for_each(|(n, value)| below(n.to_string(), value))
        }
        _ => {}
    }
}

fn replace(document: &mut Document, place: &[String], by: Bson) {
    let Some((name, rest)) = place.split_first() else { return };
    if let Some(value) = document.get_mut(name) {
        replace_in(value, rest, by);
    }
}

fn replace_in(value: &mut Bson, place: &[String], by: Bson) {
    let Some((name, rest)) = place.split_first() else {
        *value = by;
        return;
    };
    match value {
        Bson::Document(inner) => replace(inner, place, by),
        Bson::Array(items) => {
            let item = name.parse::<usize>().ok().and_then(|at| items.get_mut(at));
            if let Some(item) = item {
                replace_in(item, rest, by);
            }
        }
        _ => {}
    }
}

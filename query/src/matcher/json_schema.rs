//! `$jsonSchema`: draft 4 as mongod supports it, parsed once.
//!
//! A keyword applies to one type and accepts values of other types: `minimum` to numbers, `required` to documents,
//! `items` to arrays.

use super::{
    operands::{self, TYPE_NAMES},
    parse::lossy,
    predicate::{TypeSet, is_nan},
    regex::Regex,
};
use crate::{
    error::QueryError,
    value::{Elements, OwnedValue, Shown, Value, compare_values},
};

const DEPTH_MAX: usize = 200;

/// A parsed schema: all its rules must hold.
#[derive(Debug, Clone, Default)]
pub struct Schema(Vec<Rule>);

#[derive(Debug, Clone)]
enum Rule {
    Types(TypeSet),
    Enum(Vec<OwnedValue>),
    Minimum { value: OwnedValue, exclusive: bool },
    Maximum { value: OwnedValue, exclusive: bool },
    MultipleOf(OwnedValue),
    Length { min: usize, max: usize },
    Pattern(Regex),
    Required(Vec<Vec<u8>>),
    PropertyCount { min: usize, max: usize },
    Properties(Box<Properties>),
    Dependencies(Vec<(Vec<u8>, Dependency)>),
    ItemCount { min: usize, max: usize },
    Items { first: Vec<Schema>, rest: Option<Box<Schema>>, none_beyond: bool },
    UniqueItems,
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Box<Schema>),
}

#[derive(Debug, Clone, Default)]
struct Properties {
    named: Vec<(Vec<u8>, Schema)>,
    patterns: Vec<(Regex, Schema)>,
    /// The schema of all other properties, if there is one.
    others: Option<Schema>,
    others_forbidden: bool,
}

#[derive(Debug, Clone)]
enum Dependency {
    Names(Vec<Vec<u8>>),
    Schema(Schema),
}

type Parsed<T> = Result<T, QueryError>;

impl Schema {
    /// Parses a schema; errors are mongod's.
    pub(super) fn parse(value: Value<'_>) -> Parsed<Self> {
        let Value::Document(doc) = value else {
            return Err(QueryError::type_mismatch("$jsonSchema must be an object"));
        };
        Self::of(doc, 0)
    }

    fn of(doc: &[u8], depth: usize) -> Parsed<Self> {
        if depth > DEPTH_MAX {
            return Err(QueryError::bad_value("$jsonSchema nests too deep"));
        }
        let get = |name: &str| Elements::of_bytes(doc).find(name.as_bytes()).map(|e| e.value());
        for field in Elements::of_bytes(doc) {
            check_keyword(&lossy(field.key))?;
        }
        if get("type").is_some() && get("bsonType").is_some() {
            return Err(QueryError::failed_to_parse(
                "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
            ));
        }
        let mut rules = Vec::new();
        for field in Elements::of_bytes(doc) {
            rules.extend(rule(&lossy(field.key), field.value(), &get, depth)?);
        }
        let about_properties = ["properties", "patternProperties", "additionalProperties"];
        if about_properties.iter().any(|name| get(name).is_some()) {
            rules.push(Rule::Properties(Box::new(properties(&get, depth)?)));
        }
        Ok(Self(rules))
    }

    /// True if the value satisfies the schema.
    pub(super) fn matches(&self, value: Value<'_>) -> bool {
        self.0.iter().all(|rule| rule.holds(value))
    }
}

fn check_keyword(name: &str) -> Parsed<()> {
    const KNOWN: [&str; 29] = [
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "bsonType",
        "dependencies",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
        "patternProperties",
        "properties",
        "required",
        "title",
        "type",
        "uniqueItems",
    ];
    if matches!(name, "$ref" | "$schema" | "default" | "definitions" | "format" | "id") {
        return Err(QueryError::failed_to_parse(format!(
            "$jsonSchema keyword '{name}' is not currently supported"
        )));
    }
    if KNOWN.contains(&name) {
        return Ok(());
    }
    Err(QueryError::failed_to_parse(format!("Unknown $jsonSchema keyword: {name}")))
}

fn must(name: &str, what: &str) -> QueryError {
    QueryError::type_mismatch(format!("$jsonSchema keyword '{name}' must be {what}"))
}

fn rule<'d>(
    name: &str,
    value: Value<'d>,
    get: &dyn Fn(&str) -> Option<Value<'d>>,
    depth: usize,
) -> Parsed<Option<Rule>> {
    Ok(Some(match name {
        "bsonType" if !matches!(value, Value::String(_) | Value::Array(_)) => {
            return Err(must(name, "either a string or an array of strings"));
        }
        "bsonType" => {
            check_type_names(name, value)?;
            Rule::Types(operands::types(None, value)?)
        }
        "type" => {
            check_type_names(name, value)?;
            Rule::Types(json_types(value)?)
        }
        "enum" => {
            let values = items(name, value)?;
            let again = |(at, one): (usize, &Value<'_>)| {
                values.iter().take(at).any(|other| compare_values(*one, *other, None).is_eq())
            };
            if values.iter().enumerate().any(again) {
                return Err(QueryError::failed_to_parse(
                    "$jsonSchema keyword 'enum' array cannot contain duplicate values.",
                ));
            }
            Rule::Enum(values.into_iter().map(OwnedValue::from).collect())
        }
        "minimum" | "maximum" => return bound(name, value, get).map(Some),
        "exclusiveMinimum" | "exclusiveMaximum" => {
            let partner = name.trim_start_matches("exclusive").to_lowercase();
            if get(&partner).is_none() {
                return Err(QueryError::failed_to_parse(format!(
                    "$jsonSchema keyword '{partner}' must be a present if {name} is present"
                )));
            }
            if !matches!(value, Value::Bool(_)) {
                return Err(must(name, "a boolean"));
            }
            return Ok(None);
        }
        "multipleOf" => {
            if !value.is_number() {
                return Err(must(name, "a number"));
            }
            if !compare_values(value, Value::Int32(0), None).is_gt() {
                return Err(QueryError::failed_to_parse(
                    "$jsonSchema keyword 'multipleOf' must have a positive value",
                ));
            }
            Rule::MultipleOf(value.into())
        }
        "minLength" => Rule::Length { min: size(name, value)?, max: usize::MAX },
        "maxLength" => Rule::Length { min: 0, max: size(name, value)? },
        "minProperties" => Rule::PropertyCount { min: size(name, value)?, max: usize::MAX },
        "maxProperties" => Rule::PropertyCount { min: 0, max: size(name, value)? },
        "minItems" => Rule::ItemCount { min: size(name, value)?, max: usize::MAX },
        "maxItems" => Rule::ItemCount { min: 0, max: size(name, value)? },
        "pattern" => match value {
            Value::String(pattern) => Rule::Pattern(Regex::new(pattern, b"")?),
            _ => return Err(must(name, "a string")),
        },
        "required" => Rule::Required(names(name, value)?),
        "dependencies" => Rule::Dependencies(dependencies(value, depth)?),
        "additionalItems" if !matches!(value, Value::Document(_) | Value::Bool(_)) => {
            let got = value.type_name();
            return Err(must(name, &format!("either an object or a boolean, but got a {got}")));
        }
        // Without `items` it has no effect, but must be valid.
        "additionalItems" => {
            if let Value::Document(doc) = value {
                Schema::of(doc, depth + 1)?;
            }
            return Ok(None);
        }
        "items" => return item_rule(value, get("additionalItems"), depth).map(Some),
        "uniqueItems" => match value {
            Value::Bool(true) => Rule::UniqueItems,
            Value::Bool(false) => return Ok(None),
            _ => return Err(must(name, "a boolean")),
        },
        "allOf" => Rule::AllOf(schemas(name, value, depth)?),
        "anyOf" => Rule::AnyOf(schemas(name, value, depth)?),
        "oneOf" => Rule::OneOf(schemas(name, value, depth)?),
        "not" => match value {
            Value::Document(doc) => Rule::Not(Box::new(Schema::of(doc, depth + 1)?)),
            other => {
                let found = other.type_name();
                return Err(must(
                    name,
                    &format!("an object, but found an element of type {found}"),
                ));
            }
        },
        "title" | "description" => match value {
            Value::String(_) => return Ok(None),
            _ => return Err(must(name, "of type string")),
        },
        _ => return Ok(None),
    }))
}

/// A list of types must not be empty nor contain duplicates.
fn check_type_names(keyword: &str, value: Value<'_>) -> Parsed<()> {
    let Value::Array(_) = value else { return Ok(()) };
    let mut seen = Vec::new();
    for element in value.elements() {
        let Value::String(name) = element.value() else {
            return Err(QueryError::type_mismatch(format!(
                "$jsonSchema keyword '{keyword}' array elements must be strings"
            )));
        };
        if seen.contains(&name) {
            return Err(QueryError::failed_to_parse(format!(
                "$jsonSchema keyword '{keyword}' has duplicate value: {}",
                String::from_utf8_lossy(name)
            )));
        }
        seen.push(name);
    }
    if seen.is_empty() {
        return Err(QueryError::failed_to_parse(format!(
            "$jsonSchema keyword '{keyword}' must name at least one type"
        )));
    }
    Ok(())
}

fn json_types(value: Value<'_>) -> Parsed<TypeSet> {
    let mut set = TypeSet::default();
    let list = match value {
        Value::Array(_) => value.elements().map(|e| e.value()).collect(),
        other => vec![other],
    };
    for one in list {
        match one.as_str() {
            Some("integer") => {
                return Err(QueryError::failed_to_parse(
                    "$jsonSchema type 'integer' is not currently supported.",
                ));
            }
            Some("boolean") => set.insert(8),
            Some("number") => set.insert_numbers(),
            Some(name @ ("object" | "array" | "string" | "null")) => {
                let byte = TYPE_NAMES.iter().find(|(known, _)| *known == name);
                set.insert(byte.map_or(0, |(_, byte)| *byte));
            }
            Some(other) => {
                return Err(QueryError::bad_value(format!("Unknown type name alias: {other}")));
            }
            None => {
                return Err(QueryError::type_mismatch(
                    "$jsonSchema keyword 'type' must be either a string or an array of strings",
                ));
            }
        }
    }
    Ok(set)
}

fn items<'v>(name: &str, value: Value<'v>) -> Parsed<Vec<Value<'v>>> {
    let Value::Array(_) = value else {
        return Err(must(
            name,
            &format!("an array, but found an element of type {}", value.type_name()),
        ));
    };
    let list: Vec<_> = value.elements().map(|e| e.value()).collect();
    if list.is_empty() {
        return Err(QueryError::failed_to_parse(format!(
            "$jsonSchema keyword '{name}' cannot be an empty array"
        )));
    }
    Ok(list)
}

fn names(keyword: &str, value: Value<'_>) -> Parsed<Vec<Vec<u8>>> {
    items(keyword, value)?
        .into_iter()
        .map(|value| match value {
            Value::String(name) => Ok(name.to_vec()),
            other => Err(must(
                keyword,
                &format!(
                    "an array of strings, but found an element of type: {}",
                    other.type_name()
                ),
            )),
        })
        .collect()
}

fn size(name: &str, value: Value<'_>) -> Parsed<usize> {
    let n = operands::integer(name, value).map_err(QueryError::failed_to_parse)?;
    usize::try_from(n).map_err(|_| {
        QueryError::failed_to_parse(format!(
            "Expected a non-negative number in: {name}: {}",
            Shown(value)
        ))
    })
}

fn bound<'d>(
    name: &str,
    value: Value<'d>,
    get: &dyn Fn(&str) -> Option<Value<'d>>,
) -> Parsed<Rule> {
    if !value.is_number() {
        return Err(must(name, "a number"));
    }
    let value = OwnedValue::from(value);
    Ok(if name == "minimum" {
        let exclusive = matches!(get("exclusiveMinimum"), Some(Value::Bool(true)));
        Rule::Minimum { value, exclusive }
    } else {
        let exclusive = matches!(get("exclusiveMaximum"), Some(Value::Bool(true)));
        Rule::Maximum { value, exclusive }
    })
}

fn schemas(name: &str, value: Value<'_>, depth: usize) -> Parsed<Vec<Schema>> {
    let Value::Array(_) = value else {
        return Err(must(name, "an array"));
    };
    let parsed: Parsed<Vec<_>> = value
        .elements()
        .map(|element| match element.value() {
            Value::Document(doc) => Schema::of(doc, depth + 1),
            other if name == "items" => Err(QueryError::type_mismatch(format!(
                "$jsonSchema keyword 'items' requires that each element of the array is an object, \
                 but found a {}",
                other.type_name()
            ))),
            other => Err(must(
                name,
                &format!("an array of objects, but found an element of type {}", other.type_name()),
            )),
        })
        .collect();
    let parsed = parsed?;
    if parsed.is_empty() {
        return Err(QueryError::bad_value(format!(
            "$jsonSchema keyword '{name}' must be a non-empty array"
        )));
    }
    Ok(parsed)
}

fn item_rule(items: Value<'_>, beyond: Option<Value<'_>>, depth: usize) -> Parsed<Rule> {
    match items {
        Value::Document(doc) => {
            let rest = Some(Box::new(Schema::of(doc, depth + 1)?));
            Ok(Rule::Items { first: Vec::new(), rest, none_beyond: false })
        }
        Value::Array(_) => {
            let none = items.elements().next().is_none();
            let first = if none { Vec::new() } else { schemas("items", items, depth)? };
            let rest = match beyond {
                Some(Value::Document(doc)) => Some(Box::new(Schema::of(doc, depth + 1)?)),
                _ => None,
            };
            let none_beyond = matches!(beyond, Some(Value::Bool(false)));
            Ok(Rule::Items { first, rest, none_beyond })
        }
        other => Err(must("items", &format!("an array or an object, not {}", other.type_name()))),
    }
}

fn properties<'d>(get: &dyn Fn(&str) -> Option<Value<'d>>, depth: usize) -> Parsed<Properties> {
    let mut parsed = Properties::default();
    for keyword in ["properties", "patternProperties"] {
        let Some(value) = get(keyword) else { continue };
        let Value::Document(doc) = value else { return Err(must(keyword, "an object")) };
        for field in Elements::of_bytes(doc) {
            let Value::Document(inner) = field.value() else {
                return Err(QueryError::type_mismatch(format!(
                    "Nested schema for $jsonSchema property '{}' must be an object",
                    lossy(field.key)
                )));
            };
            let schema = Schema::of(inner, depth + 1)?;
            if keyword == "properties" {
                parsed.named.push((field.key.to_vec(), schema));
            } else {
                parsed.patterns.push((Regex::new(field.key, b"")?, schema));
            }
        }
    }
    match get("additionalProperties") {
        None | Some(Value::Bool(true)) => {}
        Some(Value::Bool(false)) => parsed.others_forbidden = true,
        Some(Value::Document(doc)) => parsed.others = Some(Schema::of(doc, depth + 1)?),
        Some(_) => return Err(must("additionalProperties", "an object or a boolean")),
    }
    Ok(parsed)
}

fn dependencies(value: Value<'_>, depth: usize) -> Parsed<Vec<(Vec<u8>, Dependency)>> {
    let Value::Document(doc) = value else { return Err(must("dependencies", "an object")) };
    Elements::of_bytes(doc)
        .map(|field| {
            let dependency = match field.value() {
                Value::Document(inner) => Dependency::Schema(Schema::of(inner, depth + 1)?),
                list => Dependency::Names(names("dependencies", list)?),
            };
            Ok((field.key.to_vec(), dependency))
        })
        .collect()
}

impl Rule {
    fn holds(&self, value: Value<'_>) -> bool {
        match self {
            Self::Types(types) => types.contains(value),
            Self::Enum(list) => {
                list.iter().any(|one| compare_values(one.get(), value, None).is_eq())
            }
            Self::AllOf(list) => list.iter().all(|schema| schema.matches(value)),
            Self::AnyOf(list) => list.iter().any(|schema| schema.matches(value)),
            Self::OneOf(list) => list.iter().filter(|schema| schema.matches(value)).count() == 1,
            Self::Not(schema) => !schema.matches(value),
            Self::Minimum { value: edge, exclusive } => {
                let order = compare_values(value, edge.get(), None);
                !value.is_number() || if *exclusive { order.is_gt() } else { order.is_ge() }
            }
            Self::Maximum { value: edge, exclusive } => {
                let order = compare_values(value, edge.get(), None);
                let within = if *exclusive { order.is_lt() } else { order.is_le() };
                !value.is_number() || within && (!is_nan(value) || is_nan(edge.get()))
            }
            Self::MultipleOf(of) => {
                !value.is_number() || crate::expression::is_multiple(value, of.get())
            }
            Self::Length { min, max } => match value {
                // Count the bytes that begin a character; this also works for invalid UTF-8.
                Value::String(text) => {
                    (*min..=*max).contains(&text.iter().filter(|b| **b & 0xc0 != 0x80).count())
                }
                _ => true,
            },
            Self::Pattern(regex) => !matches!(value, Value::String(text) if !regex.matches(text)),
            Self::Required(_)
            | Self::PropertyCount { .. }
            | Self::Properties(_)
            | Self::Dependencies(_) => match value {
                Value::Document(doc) => self.holds_for_document(doc),
                _ => true,
            },
            Self::ItemCount { .. } | Self::Items { .. } | Self::UniqueItems => match value {
                Value::Array(_) => self.holds_for_array(value),
                _ => true,
            },
        }
    }

    fn holds_for_document(&self, doc: &[u8]) -> bool {
        let has = |name: &[u8]| Elements::of_bytes(doc).find(name).is_some();
        match self {
            Self::Required(names) => names.iter().all(|name| has(name)),
            Self::PropertyCount { min, max } => {
                (*min..=*max).contains(&Elements::of_bytes(doc).count())
            }
            Self::Properties(properties) => properties.hold(doc),
            Self::Dependencies(list) => list.iter().all(|(name, dependency)| {
                !has(name)
                    || match dependency {
                        Dependency::Names(names) => names.iter().all(|name| has(name)),
                        Dependency::Schema(schema) => schema.matches(Value::Document(doc)),
                    }
            }),
            _ => true,
        }
    }

    fn holds_for_array(&self, value: Value<'_>) -> bool {
        let elements: Vec<_> = value.elements().map(|e| e.value()).collect();
        match self {
            Self::ItemCount { min, max } => (*min..=*max).contains(&elements.len()),
            Self::UniqueItems => {
                let mut sorted = elements;
                sorted.sort_by(|a, b| compare_values(*a, *b, None));
                sorted
                    .windows(2)
                    .all(|pair| !matches!(pair, [a, b] if compare_values(*a, *b, None).is_eq()))
            }
            Self::Items { first, rest, none_beyond } => {
                elements.iter().enumerate().all(|(at, element)| match first.get(at) {
                    Some(schema) => schema.matches(*element),
                    None if *none_beyond => false,
                    None => rest.as_ref().is_none_or(|schema| schema.matches(*element)),
                })
            }
            _ => true,
        }
    }
}

impl Properties {
    fn hold(&self, doc: &[u8]) -> bool {
        Elements::of_bytes(doc).all(|field| {
            let mut known = false;
            for (_, schema) in self.named.iter().filter(|(name, _)| name == field.key) {
                known = true;
                if !schema.matches(field.value()) {
                    return false;
                }
            }
            for (_, schema) in self.patterns.iter().filter(|(regex, _)| regex.matches(field.key)) {
                known = true;
                if !schema.matches(field.value()) {
                    return false;
                }
            }
            known
                || !self.others_forbidden
                    && self.others.as_ref().is_none_or(|schema| schema.matches(field.value()))
        })
    }
}

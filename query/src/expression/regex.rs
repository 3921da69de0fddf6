//! `$regexMatch`, `$regexFind`, `$regexFindAll`.

use super::{
    DocBuilder, Env, Evaluated, Expr, build,
    parse::{Scope, lossy, operand},
    special::Special,
};
use crate::{
    error::QueryError,
    matcher::{Regex, RegexFault},
    value::{Elements, Value},
};

/// Which of the three operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Returns true or false.
    Match,
    /// Returns the first match.
    Find,
    /// Returns all matches.
    FindAll,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Match => "$regexMatch",
            Self::Find => "$regexFind",
            Self::FindAll => "$regexFindAll",
        }
    }
}

/// Parses one of the three operators.
pub(super) fn parse(
    kind: Kind,
    value: Value<'_>,
    scope: &mut Scope,
) -> Result<Special, QueryError> {
    let name = kind.name();
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            51_103,
            format!("{name} expects an object of named arguments but found: {}", value.type_name()),
        ));
    };
    let (mut input, mut regex, mut options) = (None, None, None);
    for field in Elements::of_bytes(doc) {
        match field.key {
            b"input" => input = Some(operand(field.value(), scope)?),
            b"regex" => regex = Some(operand(field.value(), scope)?),
            b"options" => options = Some(operand(field.value(), scope)?),
            other => {
                return Err(QueryError::location(
                    31_024,
                    format!("{name} found an unknown argument: {}", lossy(other)),
                ));
            }
        }
    }
    let input = input.ok_or_else(|| {
        QueryError::location(31_022, format!("{name} requires 'input' parameter"))
    })?;
    let regex = regex.ok_or_else(|| {
        QueryError::location(31_023, format!("{name} requires 'regex' parameter"))
    })?;
    Ok(Special::RegexOf { kind, input, regex, options })
}

/// The operator with a constant regex, which is compiled once.
pub(super) fn folded(
    kind: Kind,
    input: Expr,
    regex: Expr,
    options: Option<Expr>,
) -> Result<Expr, QueryError> {
    let settled = match (regex.as_literal(), options.as_ref().map(Expr::as_literal)) {
        (Some(regex), None) => compiled(kind.name(), regex, Value::Missing)?,
        (Some(regex), Some(Some(options))) => compiled(kind.name(), regex, options)?,
        _ => None,
    };
    Ok(Expr::Special(Box::new(match settled {
        Some(regex) => Special::Regex(kind, input, regex),
        None => Special::RegexOf { kind, input, regex, options },
    })))
}

fn nothing(kind: Kind) -> Value<'static> {
    match kind {
        Kind::Match => Value::Bool(false),
        Kind::Find => Value::Null,
        Kind::FindAll => Value::Array(&[5, 0, 0, 0, 0]),
    }
}

/// The regex of a value; `None` for null.
fn compiled(name: &str, regex: Value<'_>, options: Value<'_>) -> Result<Option<Regex>, QueryError> {
    let fault = |code, text: &str| QueryError::location(code, format!("{name}{text}"));
    if !matches!(regex, Value::Regex { .. } | Value::String(_)) && !regex.is_nullish() {
        return Err(fault(51_105, NO_REGEX));
    }
    let options = match options {
        Value::String(options) => Some(options),
        _ if options.is_nullish() => None,
        _ => return Err(fault(51_106, " needs 'options' to be of type string")),
    };
    let (pattern, options) = match regex {
        Value::Regex { pattern, options: own } => {
            if options.is_some() && !own.is_empty() {
                return Err(fault(
                    51_107,
                    ": found regex option(s) specified in both 'regex' and 'option' fields",
                ));
            }
            (pattern, options.unwrap_or(own))
        }
        Value::String(pattern) => (pattern, options.unwrap_or(b"")),
        _ => return Ok(None),
    };
    if pattern.contains(&0) {
        return Err(fault(51_109, ": regular expression cannot contain an embedded null byte"));
    }
    if options.contains(&0) {
        return Err(fault(
            51_110,
            ": regular expression options cannot contain an embedded null byte",
        ));
    }
    Regex::new(pattern, options).map(Some).map_err(|refused| match refused {
        RegexFault::Invalid(why) => {
            QueryError::location(51_111, format!("Invalid Regex in {name}: {why}"))
        }
        refused => {
            let error = QueryError::from(refused);
            QueryError { message: format!("{name}{}", error.message), ..error }
        }
    })
}

/// Evaluates the operator with a regex from the document.
pub(super) fn run_of<'a>(
    env: &mut Env<'a>,
    kind: Kind,
    input: &'a Expr,
    regex: &'a Expr,
    options: Option<&'a Expr>,
) -> Evaluated<'a> {
    let input = input.eval(env)?;
    let regex = regex.eval(env)?;
    let options = match options {
        Some(options) => options.eval(env)?,
        None => Value::Missing,
    };
    if !matches!(input, Value::String(_)) && !input.is_nullish() {
        // An invalid regex is reported first.
        let is_regex = matches!(regex, Value::String(_) | Value::Regex { .. });
        return Err(if is_regex || regex.is_nullish() {
            not_text(kind)
        } else {
            not_a_regex(kind)
        });
    }
    match compiled(kind.name(), regex, options)? {
        Some(regex) => run(env, kind, input, &regex),
        None => Ok(nothing(kind)),
    }
}

const NO_REGEX: &str = " needs 'regex' to be of type string or regex";

fn not_a_regex(kind: Kind) -> QueryError {
    QueryError::location(51_105, format!("{}{NO_REGEX}", kind.name()))
}

fn not_text(kind: Kind) -> QueryError {
    QueryError::location(51_104, format!("{} needs 'input' to be of type string", kind.name()))
}

/// Evaluates the operator.
pub(super) fn run<'a>(env: &Env<'a>, kind: Kind, input: Value<'a>, regex: &Regex) -> Evaluated<'a> {
    let text = match input {
        Value::String(text) => text,
        _ if input.is_nullish() => return Ok(nothing(kind)),
        _ => return Err(not_text(kind)),
    };
    match kind {
        Kind::Match => {
            regex.compiled().is_match(text).map(Value::Bool).map_err(|error| gave_up(kind, &error))
        }
        Kind::Find => {
            let mut search = Search { regex: regex.compiled(), kind, text, counted: (0, 0) };
            Ok(search.next(env, 0)?.map_or(Value::Null, |(value, _, _)| value))
        }
        Kind::FindAll => find_all(env, regex, text),
    }
}

fn char_len(text: &[u8], at: usize) -> usize {
    let rest = text.get(at + 1..).unwrap_or_default();
    1 + rest.iter().take_while(|b| **b & 0xc0 == 0x80).count()
}

/// mongod's error for a search that took too many steps.
fn gave_up(kind: Kind, error: &pcre2::Error) -> QueryError {
    let text = error.to_string();
    let why = text.rsplit_once(": ").map_or(text.as_str(), |(_, why)| why);
    QueryError::location(
        51_156,
        format!(
            "Error occurred while executing the regular expression in {}. Result code: {why}",
            kind.name()
        ),
    )
}

/// All matches, one after the other.
fn find_all<'a>(env: &Env<'a>, regex: &Regex, text: &'a [u8]) -> Evaluated<'a> {
    let kind = Kind::FindAll;
    let mut search = Search { regex: regex.compiled_for(text), kind, text, counted: (0, 0) };
    let (mut all, mut from, mut bytes) = (Vec::new(), 0, 0);
    while let Some((value, start, end)) = search.next(env, from)? {
        all.push(value);
        bytes += MATCH_LEN + (end - start);
        if bytes > OUTPUT_MAX {
            let text = "$regexFindAll: the size of buffer to store output exceeded the 64MB limit";
            return Err(QueryError::location(51_151, text));
        }
        if all.len().is_multiple_of(CHECK_EVERY) {
            env.cx.check()?;
        }
        // An empty match moves on by one character.
        from = if end > start { end } else { end + char_len(text, end) };
        if from >= text.len() {
            break;
        }
    }
    Ok(build::array(env, all))
}

/// What all matches together may take, as in mongod, and what it reckons for one beside its text.
const OUTPUT_MAX: usize = 64 << 20;
const MATCH_LEN: usize = 220;
/// After how many matches `$regexFindAll` asks whether to go on. Each may search all of the text.
const CHECK_EVERY: usize = 16;

/// A search that goes on where the last match ended.
struct Search<'r, 'a> {
    regex: &'r pcre2::bytes::Regex,
    kind: Kind,
    text: &'a [u8],
    /// A place in the text, and how many characters stand before it.
    counted: (usize, usize),
}

/// A match, with where it begins and ends.
type Found<'a> = Option<(Value<'a>, usize, usize)>;

impl<'a> Search<'_, 'a> {
    fn next(&mut self, env: &Env<'a>, from: usize) -> Result<Found<'a>, QueryError> {
        let text = self.text;
        let mut locations = self.regex.capture_locations();
        let matched = self
            .regex
            .captures_read_at(&mut locations, text, from)
            .map_err(|error| gave_up(self.kind, &error))?;
        let Some((start, end)) = matched.and_then(|_| locations.get(0)) else { return Ok(None) };
        let part = |(a, b): (usize, usize)| Value::String(text.get(a..b).unwrap_or_default());
        let captures: Vec<_> =
            (1..locations.len()).map(|i| locations.get(i).map_or(Value::Null, part)).collect();
        let (place, before) = self.counted;
        let since = String::from_utf8_lossy(text.get(place..start).unwrap_or_default());
        self.counted = (start, before + since.chars().count());
        let mut doc = DocBuilder::new();
        doc.push(b"match", part((start, end)));
        let index = i32::try_from(self.counted.1).unwrap_or(i32::MAX);
        doc.push(b"idx", Value::Int32(index));
        doc.push(b"captures", build::array(env, captures));
        Ok(Some((Value::Document(env.keep(&doc.finish())), start, end)))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;
    use crate::{context::Context, expression::Bump};

    fn all(text: &str, regex: &str, context: &Context) -> Result<usize, QueryError> {
        let arena = Bump::new();
        let env = Env::new(&arena, context, &[5, 0, 0, 0, 0]);
        let regex = Regex::new(regex.as_bytes(), b"")?;
        find_all(&env, &regex, text.as_bytes()).map(|found| found.elements().count())
    }

    #[test]
    fn places_are_counted_in_characters() {
        let (arena, context) = (Bump::new(), Context::default());
        let env = Env::new(&arena, &context, &[5, 0, 0, 0, 0]);
        let regex = Regex::new(b"a", b"").unwrap();
        let found = find_all(&env, &regex, "éaéa".as_bytes()).unwrap();
        let places: Vec<_> = found
            .elements()
            .map(|e| format!("{:?}", e.value().elements().find(b"idx").unwrap().value()))
            .collect();
        assert_eq!(places, ["Int32(1)", "Int32(3)"]);
    }

    /// A search in a text that is checked from end to end would take time by the square of its length.
    #[test]
    fn text_of_ascii_is_not_checked_at_each_match() {
        let regex = Regex::new(b"a", b"").unwrap();
        assert!(!std::ptr::eq(regex.compiled(), regex.compiled_for(b"aa")));
        assert!(std::ptr::eq(regex.compiled(), regex.compiled_for("é".as_bytes())));
        let by_property = Regex::new(br"\p{L}", b"").unwrap();
        assert!(std::ptr::eq(by_property.compiled(), by_property.compiled_for(b"aa")));
        assert_eq!(all(&"a".repeat(100_000), "a", &Context::default()).unwrap(), 100_000);
    }

    #[test]
    fn matches_beyond_the_limit_are_refused() {
        let refused = all(&"a".repeat(1_000_000), "a", &Context::default()).unwrap_err();
        assert_eq!(refused.code.code(), 51_151);
    }

    #[test]
    fn a_search_for_all_can_be_interrupted() {
        let asked = Rc::new(Cell::new(0));
        let mut context = Context::default();
        let count = Rc::clone(&asked);
        context.interrupt = Some(Rc::new(move || {
            count.set(count.get() + 1);
            if count.get() > 3 { Err(QueryError::bad_value("interrupted")) } else { Ok(()) }
        }));
        assert!(all(&"é".repeat(10_000), "é", &context).is_err());
        assert_eq!(asked.get(), 4);
    }
}

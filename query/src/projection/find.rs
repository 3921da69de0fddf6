//! Parts of projection that only find has: `$slice` on fields, `$elemMatch`, the positional operator.

use bson::RawDocument;

use super::{
    Projection,
    tree::{Item, Parser, Style, Tree, lossy},
};
use crate::{
    context::Context,
    error::QueryError,
    expression::{DocBuilder, Env, Expr, Scope, cut},
    field_path,
    matcher::{Matcher, ParseContext, operands},
    value::{Elements, Shown, Value},
};

type Name = Box<[u8]>;

/// Operations on the document after its fields were selected.
#[derive(Debug, Clone, Default)]
pub(super) struct FindSpec {
    slices: Vec<(Vec<Box<[u8]>>, Slice)>,
    /// `$elemMatch` fields, whose first matching element is kept; appended in the order of the projection.
    elem_matches: Vec<(Box<[u8]>, Matcher)>,
    /// Pairs of an `$elemMatch` field and a computed field that comes after it.
    ahead: Vec<(Name, Name)>,
    positional: Option<(Vec<Box<[u8]>>, Matcher)>,
    /// Appended `$meta` fields. They make a projection neither an inclusion nor an exclusion.
    metas: Vec<(Box<[u8]>, Expr)>,
    /// `$meta` fields in a projection that includes nothing: an existing field is replaced in place.
    metas_in_place: Option<Tree>,
}

#[derive(Debug, Clone, Copy)]
struct Slice {
    first: i32,
    len: Option<usize>,
}

impl FindSpec {
    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
            && self.elem_matches.is_empty()
            && self.positional.is_none()
            && self.metas.is_empty()
            && self.metas_in_place.is_none()
    }

    /// Appends the fields of `$meta`.
    pub(super) fn append_metas<'a>(
        &'a self,
        doc: Vec<u8>,
        env: &mut Env<'a>,
    ) -> Result<Vec<u8>, QueryError> {
        if let Some(metas) = &self.metas_in_place {
            let doc = env.keep(&doc);
            return metas.add(doc, env);
        }
        if self.metas.is_empty() {
            return Ok(doc);
        }
        let mut out = DocBuilder::new();
        for field in Elements::of_bytes(&doc) {
            out.push_raw(field.bytes);
        }
        for (name, expr) in &self.metas {
            out.push(name, expr.eval(env)?);
        }
        Ok(out.finish())
    }

    /// `original` is the whole document, `chosen` what the tree left of it.
    pub(super) fn apply(
        &self,
        original: &[u8],
        chosen: Vec<u8>,
        cx: &Context,
    ) -> Result<Vec<u8>, QueryError> {
        let mut doc = chosen;
        for (path, slice) in &self.slices {
            doc = at_path(&doc, path, true, &|value| sliced(value, *slice));
        }
        if let Some((path, filter)) = &self.positional {
            let index = filter.matched_index(original, cx);
            let failure = std::cell::Cell::new(None);
            doc = at_path(&doc, path, false, &|value| {
                let Some(index) = index else {
                    failure.set(Some(no_match()));
                    return None;
                };
                let Some(only) = value.elements().nth(index) else {
                    let text = "positional operator '.$' element mismatch";
                    failure.set(Some(QueryError::location(51_247, text)));
                    return None;
                };
                Some(crate::expression::array_bytes([only.value()]))
            });
            if let Some(error) = failure.take() {
                return Err(error);
            }
        }
        if self.elem_matches.is_empty() {
            return Ok(doc);
        }
        let mut out = DocBuilder::new();
        let mut pushed: Vec<&Box<[u8]>> = Vec::new();
        let matcher_of = |key: &[u8]| self.elem_matches.iter().find(|(name, _)| **name == *key);
        for field in Elements::of_bytes(&doc) {
            // Computed fields and `$elemMatch` fields come in the order of the projection.
            for (name, matcher) in &self.elem_matches {
                let later =
                    |(before, after): &(Name, Name)| **before == **name && **after == *field.key;
                if self.ahead.iter().any(later) && !pushed.contains(&name) {
                    push_match(&mut out, name, matcher, original, cx);
                    pushed.push(name);
                }
            }
            match matcher_of(field.key) {
                None => out.push_raw(field.bytes),
                Some((name, matcher)) => push_match(&mut out, name, matcher, original, cx),
            }
        }
        for (name, matcher) in &self.elem_matches {
            if Elements::of_bytes(&doc).find(name).is_none() && !pushed.contains(&name) {
                push_match(&mut out, name, matcher, original, cx);
            }
        }
        Ok(out.finish())
    }
}

/// Appends the first matching element as an array of one.
fn push_match(out: &mut DocBuilder, name: &[u8], matcher: &Matcher, original: &[u8], cx: &Context) {
    let value = Elements::of_bytes(original).find(name).map(|e| e.value());
    if let Some(list @ Value::Array(_)) = value
        && let Some(index) = matcher.matched_index(original, cx)
        && let Some(only) = list.elements().nth(index)
    {
        let bytes = crate::expression::array_bytes([only.value()]);
        out.push(name, Value::Array(&bytes));
    }
}

fn no_match() -> QueryError {
    QueryError::location(
        51_246,
        "positional operator '.$' couldn't find a matching element in the array",
    )
}

fn sliced(value: Value<'_>, slice: Slice) -> Option<Vec<u8>> {
    let all: Vec<_> = value.elements().map(|e| e.value()).collect();
    Some(crate::expression::array_bytes(cut(&all, slice.first, slice.len)))
}

/// Rewrites the array at a path. If `enter` is set, arrays on the path are entered; otherwise the first one is
/// rewritten.
fn at_path(
    doc: &[u8],
    path: &[Box<[u8]>],
    enter: bool,
    change: &dyn Fn(Value<'_>) -> Option<Vec<u8>>,
) -> Vec<u8> {
    let Some((name, rest)) = path.split_first() else { return doc.to_vec() };
    let mut out = DocBuilder::new();
    for field in Elements::of_bytes(doc) {
        let value = field.value();
        if *field.key != **name {
            out.push_raw(field.bytes);
            continue;
        }
        match (value, rest.is_empty()) {
            (Value::Array(_), end) if end || !enter => match change(value) {
                Some(bytes) => out.push(field.key, Value::Array(&bytes)),
                None => out.push_raw(field.bytes),
            },
            (Value::Document(inner), false) => {
                out.push(field.key, Value::Document(&at_path(inner, rest, enter, change)));
            }
            (Value::Array(inner), false) => {
                out.push(field.key, Value::Array(&at_elements(inner, rest, change)));
            }
            _ => out.push_raw(field.bytes),
        }
    }
    out.finish()
}

fn at_elements(
    array: &[u8],
    path: &[Box<[u8]>],
    change: &dyn Fn(Value<'_>) -> Option<Vec<u8>>,
) -> Vec<u8> {
    let mut out = DocBuilder::new();
    for element in Elements::of_bytes(array) {
        match element.value() {
            Value::Document(inner) => {
                out.push(element.key, Value::Document(&at_path(inner, path, true, change)));
            }
            _ => out.push_raw(element.bytes),
        }
    }
    out.finish()
}

/// Parses the projection of a find.
pub(super) fn parse(
    spec: &RawDocument,
    filter: Option<&Matcher>,
    cx: &ParseContext,
    scope: &Scope,
) -> Result<Projection, QueryError> {
    let mut find = FindSpec::default();
    let mut scope = scope.clone();
    let mut parser = Parser::new(Style::Project, &mut scope);
    let mut below = Vec::new();
    for field in Elements::new(spec) {
        let (path, value) = (field.key, field.value());
        if path.ends_with(b".$") {
            positional(&mut parser, &mut find, path, value, filter)?;
            continue;
        }
        if path.windows(3).any(|w| w == b".$.") {
            return Err(QueryError::location(
                31_394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a \
                 path.Positional projection may only be used at the end, for example: a.b.$. If the \
                 query previously used a form like a.b.$.d, remove the parts following the '$' and \
                 the results will be equivalent.",
            ));
        }
        let is_meta = value.elements().next().is_some_and(|first| first.key == b"$meta");
        if is_meta && matches!(value, Value::Document(_)) && path.contains(&b'.') {
            below.push((path, value));
            continue;
        }
        if is_meta && matches!(value, Value::Document(_)) {
            field_path::check(path)?;
            find.metas.push((path.into(), parser.expression(value)?));
            parser.tree.insert(path, Item::Exclude)?;
            continue;
        }
        if !find_operator(&mut parser, &mut find, path, value, cx)? {
            let parsed = parser.field(path, path, value);
            parsed.map_err(|e| unknown_expression(e, value))?;
            if matches!(parser.tree.get(path), Some(Item::Expr(_))) {
                let names = find.elem_matches.iter().map(|(name, _)| name.clone());
                find.ahead.extend(names.map(|name| (name, path.into())));
            }
        }
    }
    if !find.elem_matches.is_empty() && find.slices.is_empty() {
        parser.settle(true);
    }
    // In an inclusion the `$elemMatch` field is appended, in an exclusion it stays in place.
    if parser.is_inclusion() {
        for (name, _) in &find.elem_matches {
            parser.tree.replace(name, Item::Exclude);
        }
    }
    if parser.is_inclusion() {
        for (path, value) in below {
            parser.field(path, path, value)?;
        }
    } else if !find.metas.is_empty() || !below.is_empty() {
        let mut metas = Tree::default();
        for (name, expr) in &find.metas {
            parser.tree.replace(name, Item::Keep);
            metas.insert(name, Item::Expr(expr.clone()))?;
        }
        for (path, value) in below {
            field_path::check(path)?;
            metas.insert(path, Item::Expr(parser.expression(value)?))?;
        }
        find.metas_in_place = Some(metas);
    }
    Ok(Projection::of_parser(parser, find))
}

/// Parses `$slice` and `$elemMatch` on a field; false for anything else.
fn find_operator(
    parser: &mut Parser<'_>,
    find: &mut FindSpec,
    path: &[u8],
    value: Value<'_>,
    cx: &ParseContext,
) -> Result<bool, QueryError> {
    let Value::Document(doc) = value else { return Ok(false) };
    let Some(operator) = Elements::of_bytes(doc).next() else { return Ok(false) };
    match operator.key {
        b"$slice" => {
            let Some(slice) = slice(operator.value()) else {
                let parsed = parser.field(path, path, value);
                parsed.map_err(|error| not_a_slice(value, operator.value(), error))?;
                return Ok(true);
            };
            field_path::check(path)?;
            parser.tree.insert(path, Item::Keep)?;
            find.slices.push((split(path), slice));
            Ok(true)
        }
        b"$elemMatch" => {
            field_path::check(path)?;
            elem_match(find, path, operator.value(), cx)?;
            parser.tree.insert(path, Item::Keep)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The error for a `$slice` that is valid neither as find's operator nor as an expression; it contains both errors.
fn not_a_slice(spec: Value<'_>, value: Value<'_>, error: QueryError) -> QueryError {
    let parts: Vec<_> = value.elements().map(|e| e.value()).collect();
    let why = match (value, parts.as_slice()) {
        (Value::Array(_), [skip, _]) if !skip.is_number() => format!(
            "Location31257: $slice expects the skip argument to be a number, got {}",
            skip.type_name()
        ),
        (Value::Array(_), [_, limit]) if !limit.is_number() => format!(
            "Location31258: $slice expects the limit argument to be a number, got {}",
            limit.type_name()
        ),
        (Value::Array(_), [_, limit]) => {
            format!("Location31259: $slice limit must be positive, got {}", slice_number(*limit))
        }
        (Value::Array(_), _) => {
            "Location31272: $slice array argument should be of form [skip, limit]".to_owned()
        }
        _ => "Location31273: $slice only supports numbers and [skip, limit] arrays".to_owned(),
    };
    let message = format!(
        "Invalid $slice syntax. The given syntax {} did not match the find() syntax because :: \
         {why} :: The given syntax did not match the expression $slice syntax. :: caused by :: {}",
        Shown(spec),
        error.message
    );
    QueryError { message, ..error }
}

/// An unknown operator in a find's projection has its own error code.
fn unknown_expression(error: QueryError, value: Value<'_>) -> QueryError {
    if error.code.code() != 168 {
        return error;
    }
    let name = value.elements().next().map_or(String::new(), |e| lossy(e.key));
    QueryError::location(31_325, format!("Unknown expression {name}"))
}

fn split(path: &[u8]) -> Vec<Box<[u8]>> {
    path.split(|&b| b == b'.').map(Box::from).collect()
}

/// Parses find's `$slice`: a number or `[skip, limit]`; anything else is the expression of that name.
fn slice(value: Value<'_>) -> Option<Slice> {
    match value {
        Value::Array(_) => {
            let parts: Vec<_> = value.elements().map(|e| e.value()).collect();
            let [skip, limit] = *parts.as_slice() else { return None };
            let limit = Some(slice_number(limit))
                .filter(|_| limit.is_number())
                .and_then(|n| usize::try_from(n).ok())
                .filter(|n| *n > 0)?;
            skip.is_number().then(|| Slice { first: slice_number(skip), len: Some(limit) })
        }
        _ if value.is_number() => Some(Slice { first: slice_number(value), len: None }),
        _ => None,
    }
}

/// A number truncated to 32 bits; 0 for other values.
fn slice_number(value: Value<'_>) -> i32 {
    let n = match value {
        #[allow(clippy::cast_possible_truncation, reason = "saturates; NaN is 0")]
        Value::Double(n) => n as i64,
        Value::Decimal(n) => n.truncate_to_i64().unwrap_or_else(|| {
            if n.is_nan() {
                0
            } else if n.is_negative() {
                i64::MIN
            } else {
                i64::MAX
            }
        }),
        _ => operands::integer("", value).unwrap_or(0),
    };
    i32::try_from(n).unwrap_or(if n < 0 { i32::MIN } else { i32::MAX })
}

fn elem_match(
    find: &mut FindSpec,
    path: &[u8],
    value: Value<'_>,
    cx: &ParseContext,
) -> Result<(), QueryError> {
    let Value::Document(_) = value else {
        return Err(QueryError::location(
            31_274,
            format!("elemMatch: Invalid argument, object required, but got {}", value.type_name()),
        ));
    };
    if path.contains(&b'.') {
        return Err(QueryError::location(
            31_275,
            "Cannot use $elemMatch projection on a nested field.",
        ));
    }
    let mut inner = DocBuilder::new();
    inner.push(b"$elemMatch", value);
    let inner = inner.finish();
    let mut outer = DocBuilder::new();
    outer.push(path, Value::Document(&inner));
    let bytes = outer.finish();
    let filter = RawDocument::from_bytes(&bytes)
        .map_err(|_| QueryError::bad_value(format!("malformed $elemMatch: {}", Shown(value))))?;
    find.elem_matches.push((path.into(), Matcher::parse(filter, cx)?));
    Ok(())
}

fn positional(
    parser: &mut Parser<'_>,
    find: &mut FindSpec,
    path: &[u8],
    value: Value<'_>,
    filter: Option<&Matcher>,
) -> Result<(), QueryError> {
    if matches!(value, Value::Document(_)) {
        return Err(QueryError::location(
            31_271,
            "positional projection cannot be used with an expression or sub object",
        ));
    }
    if !value.is_number() && !matches!(value, Value::Bool(_)) {
        return Err(QueryError::location(
            31_308,
            "positional projection cannot be used with a literal",
        ));
    }
    if !operands::is_true(value) {
        return Err(QueryError::location(
            31_395,
            "positional projection cannot be used with exclusion",
        ));
    }
    if find.positional.is_some() {
        return Err(QueryError::location(
            31_276,
            "Cannot specify more than one positional projection per query.",
        ));
    }
    let array = path.strip_suffix(b".$").unwrap_or(path);
    field_path::check(array)?;
    parser.computed(|| {
        QueryError::location(31_256, "Cannot use positional projection in an exclusion projection")
    })?;
    parser.tree.insert(array, Item::Include)?;
    let filter = filter.cloned().ok_or_else(no_match)?;
    // `$expr` does not tell which element matched.
    if filter.has_expression() {
        return Err(QueryError::new(
            protocol::ErrorCode::QueryFeatureNotAllowed,
            "$expr is not allowed in this context",
        ));
    }
    find.positional = Some((split(array), filter));
    Ok(())
}

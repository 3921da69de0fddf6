//! Parses a filter document to a tree of nodes, with mongod's errors.

use super::{
    ArrayLeaf, ArrayPredicate, CompareOp, Leaf, Node, ParseContext, Predicate, Regex, operands,
    predicate::InList, rewrite,
};
use crate::{
    Release,
    error::QueryError,
    expression::{Expr, Scope, check_levels},
    field_path,
    geo::{GeoQuery, NearBy, near},
    text::{Search, TextNode},
    value::{Element, Elements, OwnedValue, Value, path::Path},
};

type Parsed = Result<Node, QueryError>;

/// Maximum nesting. BSON in a command nests at most 200 deep; this limits the parser's stack on its own.
const DEPTH_MAX: usize = 200;

/// The parser's position in the filter.
#[derive(Clone, Copy)]
pub(super) struct Place<'c> {
    cx: &'c ParseContext,
    scope: &'c Scope,
    depth: usize,
    /// Inside `$elemMatch`: operators on whole documents are not allowed.
    in_elem_match: bool,
}

impl<'c> Place<'c> {
    fn deeper(self) -> Result<Self, QueryError> {
        if self.depth >= DEPTH_MAX {
            return Err(QueryError::bad_value(format!(
                "exceeded maximum query tree depth of {DEPTH_MAX}"
            )));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

/// Parses a whole filter.
pub(super) fn filter(doc: &[u8], cx: &ParseContext, scope: &Scope) -> Parsed {
    document(doc, Place { cx, scope, depth: 0, in_elem_match: false })
}

fn document(doc: &[u8], place: Place<'_>) -> Parsed {
    let place = place.deeper()?;
    let mut children = Vec::new();
    for field in Elements::of_bytes(doc) {
        match field.key.strip_prefix(b"$") {
            Some(_) if !matches!(field.key, b"$ref" | b"$id" | b"$db") => {
                children.extend(top_level(&field, place)?);
            }
            _ => children.push(on_field(&field, place)?),
        }
    }
    Ok(conjunction(children))
}

fn conjunction(mut children: Vec<Node>) -> Node {
    if children.len() == 1 { children.remove(0) } else { Node::And(children) }
}

/// A disjunction with a branch that always matches always matches.
fn disjunction(branches: Vec<Node>) -> Node {
    let always = |node: &Node| matches!(node, Node::And(children) if children.is_empty());
    if branches.iter().any(always) { Node::And(Vec::new()) } else { Node::Or(branches) }
}

/// Parses an operator in the position of a field name. `None` for `$comment`.
fn top_level(field: &Element<'_>, place: Place<'_>) -> Result<Option<Node>, QueryError> {
    let value = field.value();
    Ok(Some(match field.key {
        b"$and" => Node::And(branches("$and", value, place)?),
        b"$or" => disjunction(branches("$or", value, place)?),
        b"$nor" => Node::Nor(branches("$nor", value, place)?),
        b"$comment" => return Ok(None),
        b"$alwaysTrue" => constant("$alwaysTrue", value, true)?,
        b"$alwaysFalse" => constant("$alwaysFalse", value, false)?,
        b"$sampleRate" => sample_rate(value)?,
        b"$where" | b"$text" | b"$expr" if place.in_elem_match => {
            return Err(QueryError::bad_value(format!(
                "{} can only be applied to the top-level document",
                lossy(field.key)
            )));
        }
        b"$where"
            if !matches!(
                value,
                Value::String(_) | Value::Code(_) | Value::CodeWithScope { .. }
            ) =>
        {
            return Err(QueryError::bad_value("$where got bad type"));
        }
        b"$where" => {
            let text = "no globalScriptEngine in $where parsing";
            return Err(QueryError::location(super::NO_JAVASCRIPT, text));
        }
        b"$expr" => {
            let expr = expression(value, place)?;
            let rewritten = place.cx.collator.is_some() && place.scope.release >= REWRITES_IN;
            let implied = rewrite::uncollated(&expr).filter(|_| rewritten);
            let expr = Node::Expr(std::sync::Arc::new(expr));
            implied.map_or(expr.clone(), |implied| Node::And(vec![implied, expr]))
        }
        b"$jsonSchema" => {
            Node::Schema(std::sync::Arc::new(super::json_schema::Schema::parse(value)?))
        }
        b"$text" => Node::Text(Box::new(TextNode::new(Search::parse(value)?))),
        b"$not" => {
            return Err(QueryError::bad_value(
                "unknown top level operator: $not. If you are trying to negate an entire \
                 expression, use $nor.",
            ));
        }
        other => {
            return Err(QueryError::bad_value(format!(
                "unknown top level operator: {}. If you have a field name that starts with a '$' \
                 symbol, consider using $getField or $setField.",
                lossy(other)
            )));
        }
    }))
}

/// The first release that is known to make a predicate of `$in` in an expression; 5.0 does not.
const REWRITES_IN: Release = Release::V8_0;

fn expression(value: Value<'_>, place: Place<'_>) -> Result<Expr, QueryError> {
    // A filter is evaluated before there are scores.
    let mut scope = place.scope.apart(place.cx.collator.as_ref()).without_scores().for_filter();
    let parsed = Expr::parse(value, &mut scope)?;
    if parsed.as_literal().is_none() {
        check_levels(value)?;
    }
    if let Err(fault) = scope.settle() {
        let message = format!("Failed to optimize expression :: caused by :: {}", fault.message);
        place.scope.note(QueryError { message, ..fault });
    }
    Ok(parsed)
}

fn not_supported(name: &[u8]) -> QueryError {
    QueryError::location(115, format!("{} is not supported by this server yet", lossy(name)))
}

fn branches(name: &str, value: Value<'_>, place: Place<'_>) -> Result<Vec<Node>, QueryError> {
    let Value::Array(_) = value else {
        return Err(QueryError::bad_value(format!("{name} argument must be an array")));
    };
    let mut children = Vec::new();
    for element in value.elements() {
        let Value::Document(doc) = element.value() else {
            return Err(QueryError::bad_value(format!(
                "{name} argument's entries must be objects"
            )));
        };
        children.push(document(doc, place)?);
    }
    if children.is_empty() {
        return Err(QueryError::bad_value(format!("{name} argument must be a non-empty array")));
    }
    Ok(children)
}

fn constant(name: &str, value: Value<'_>, constant: bool) -> Parsed {
    if operands::integer(name, value).map_err(QueryError::failed_to_parse)? == 1 {
        Ok(Node::Constant(constant))
    } else {
        Err(QueryError::failed_to_parse(format!("{name} must be an integer value of 1")))
    }
}

fn sample_rate(value: Value<'_>) -> Parsed {
    let rate = match value {
        Value::Double(n) => n,
        Value::Int32(n) => f64::from(n),
        Value::Int64(0) => 0.0,
        Value::Int64(1) => 1.0,
        Value::Int64(_) | Value::Decimal(_) => f64::NAN,
        _ => {
            return Err(QueryError::bad_value("argument to $sampleRate must be a numeric type"));
        }
    };
    if !(0.0..=1.0).contains(&rate) {
        return Err(QueryError::bad_value("numeric argument to $sampleRate must be in [0, 1]"));
    }
    Ok(Node::SampleRate(rate))
}

/// Parses `name: value` where the name is a field.
fn on_field(field: &Element<'_>, place: Place<'_>) -> Parsed {
    field_path::check_of_filter(field.key)?;
    let path = Some(Path::new(field.key));
    match field.value() {
        Value::Document(doc) if is_expression(doc, false) => {
            let children = operators(path.as_ref(), doc, place)?;
            Ok(conjunction(children))
        }
        Value::Regex { pattern, options } => {
            Ok(leaf(path.as_ref(), Predicate::Regex(Regex::new(pattern, options)?)))
        }
        value => compare(path.as_ref(), CompareOp::Eq, value, place),
    }
}

/// True for a document whose first field is an operator, unless it is a DBRef.
fn is_expression(doc: &[u8], incomplete_db_ref: bool) -> bool {
    let Some(first) = Elements::of_bytes(doc).next() else { return false };
    if !first.key.starts_with(b"$") {
        return false;
    }
    let has = |name: &[u8]| Elements::of_bytes(doc).find(name).is_some();
    let is_db_ref = if incomplete_db_ref {
        has(b"$ref") || has(b"$id") || has(b"$db")
    } else {
        has(b"$ref") && has(b"$id")
    };
    !is_db_ref
}

fn operators(path: Option<&Path>, doc: &[u8], place: Place<'_>) -> Result<Vec<Node>, QueryError> {
    let place = place.deeper()?;
    let mut nodes = Vec::new();
    for operator in Elements::of_bytes(doc) {
        nodes.extend(operator_node(path, &operator, doc, place)?);
    }
    Ok(nodes)
}

/// Parses one operator on a path. `None` for a field that belongs to another operator, such as `$options`.
fn operator_node(
    path: Option<&Path>,
    operator: &Element<'_>,
    all: &[u8],
    place: Place<'_>,
) -> Result<Option<Node>, QueryError> {
    let value = operator.value();
    Ok(Some(match operator.key {
        b"$eq" => compare(path, CompareOp::Eq, value, place)?,
        b"$lt" => compare(path, CompareOp::Lt, value, place)?,
        b"$lte" => compare(path, CompareOp::Lte, value, place)?,
        b"$gt" => compare(path, CompareOp::Gt, value, place)?,
        b"$gte" => compare(path, CompareOp::Gte, value, place)?,
        b"$ne" => {
            if matches!(value, Value::Regex { .. }) {
                return Err(QueryError::bad_value("Can't have regex as arg to $ne."));
            }
            negate(compare(path, CompareOp::Eq, value, place)?)
        }
        b"$in" => leaf(path, Predicate::In(in_list("$in", value, place)?)),
        b"$nin" => negate(leaf(path, Predicate::In(in_list("$nin", value, place)?))),
        b"$not" => not(path, value, place)?,
        b"$exists" => {
            let exists = leaf(path, Predicate::Exists);
            if operands::is_true(value) { exists } else { negate(exists) }
        }
        b"$type" => leaf(path, Predicate::Type(operands::types(path, value)?)),
        b"$mod" => leaf(path, operands::modulus(value)?),
        b"$regex" => leaf(path, Predicate::Regex(operands::regex(all)?)),
        b"$options" if Elements::of_bytes(all).find(b"$regex").is_some() => return Ok(None),
        b"$options" => return Err(QueryError::bad_value("$options needs a $regex")),
        b"$size" => array(path, ArrayPredicate::Size(operands::size(value)?)),
        b"$all" => all_of(path, value, place)?,
        b"$elemMatch" => elem_match(path, value, place)?,
        b"$bitsAllSet" => bits(path, operator, true, true)?,
        b"$bitsAllClear" => bits(path, operator, true, false)?,
        b"$bitsAnySet" => bits(path, operator, false, true)?,
        b"$bitsAnyClear" => bits(path, operator, false, false)?,
        b"$where" => return Err(QueryError::bad_value("$where cannot be applied to a field")),
        b"$geoWithin" | b"$within" | b"$geoIntersects" => {
            let query = GeoQuery::parse(operator.key, value, all)?;
            leaf(path, Predicate::Geo(std::sync::Arc::new(query)))
        }
        b"$near" | b"$nearSphere" | b"$geoNear" => match path {
            Some(path) => Node::Near(std::sync::Arc::new(NearBy {
                path: path.clone(),
                near: near(operator.key, value, all)?,
                written: Value::Document(all).into(),
            })),
            None => return Err(not_supported(operator.key)),
        },
        b"$minDistance" | b"$maxDistance" if has_near(all) => return Ok(None),
        other => return Err(QueryError::bad_value(format!("unknown operator: {}", lossy(other)))),
    }))
}

fn has_near(operators: &[u8]) -> bool {
    Elements::of_bytes(operators).any(|o| matches!(o.key, b"$near" | b"$nearSphere" | b"$geoNear"))
}

fn negate(node: Node) -> Node {
    Node::Not(Box::new(node))
}

fn leaf(path: Option<&Path>, predicate: Predicate) -> Node {
    Node::Leaf(Leaf { path: path.cloned(), predicate })
}

fn array(path: Option<&Path>, predicate: ArrayPredicate) -> Node {
    Node::Array(ArrayLeaf { path: path.cloned(), predicate })
}

fn compare(path: Option<&Path>, op: CompareOp, value: Value<'_>, place: Place<'_>) -> Parsed {
    match value {
        Value::Undefined => return Err(QueryError::bad_value("cannot compare to undefined")),
        Value::Regex { .. } if op != CompareOp::Eq => {
            return Err(QueryError::bad_value(format!(
                "Can't have RegEx as arg to non-equality predicate over field '{}'.",
                lossy(path.map_or(b"(None)", Path::dotted))
            )));
        }
        _ => {}
    }
    let collator = place.cx.collator.clone();
    Ok(leaf(path, Predicate::Compare { op, operand: value.into(), collator }))
}

fn in_list(name: &str, value: Value<'_>, place: Place<'_>) -> Result<InList, QueryError> {
    let Value::Array(_) = value else {
        return Err(QueryError::bad_value(format!("{name} needs an array")));
    };
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for element in value.elements() {
        match element.value() {
            Value::Document(doc) if is_expression(doc, false) => {
                return Err(QueryError::bad_value("cannot nest $ under $in"));
            }
            Value::Regex { pattern, options } => regexes.push(Regex::new(pattern, options)?),
            Value::Undefined => {
                return Err(QueryError::bad_value("Cannot insert undefined into InListData"));
            }
            value => values.push(OwnedValue::from(value)),
        }
    }
    Ok(InList::new(values, regexes, place.cx.collator.clone()))
}

fn not(path: Option<&Path>, value: Value<'_>, place: Place<'_>) -> Parsed {
    match value {
        Value::Regex { pattern, options } => {
            Ok(negate(leaf(path, Predicate::Regex(Regex::new(pattern, options)?))))
        }
        Value::Document(doc) => {
            if Elements::of_bytes(doc).next().is_none() {
                return Err(QueryError::bad_value("$not argument must be a non-empty object"));
            }
            Ok(negate(conjunction(operators(path, doc, place)?)))
        }
        _ => Err(QueryError::bad_value("$not argument must be a regex or an object")),
    }
}

fn all_of(path: Option<&Path>, value: Value<'_>, place: Place<'_>) -> Parsed {
    let Value::Array(_) = value else {
        return Err(QueryError::bad_value("$all needs an array"));
    };
    let is_elem_match = |value: Value<'_>| match value {
        Value::Document(doc) => {
            Elements::of_bytes(doc).next().is_some_and(|e| e.key == b"$elemMatch")
        }
        _ => false,
    };
    let mut elements = value.elements().peekable();
    let by_elem_match = elements.peek().is_some_and(|first| is_elem_match(first.value()));
    let mut children = Vec::new();
    for element in elements {
        let value = element.value();
        children.push(match value {
            Value::Document(doc) if by_elem_match && is_elem_match(value) => {
                let first = Elements::of_bytes(doc).next().map_or(Value::Missing, |e| e.value());
                elem_match(path, first, place)?
            }
            _ if by_elem_match => {
                return Err(QueryError::bad_value("$all/$elemMatch has to be consistent"));
            }
            Value::Document(doc) if is_expression(doc, false) => {
                return Err(QueryError::bad_value("no $ expressions in $all"));
            }
            Value::Regex { pattern, options } => {
                leaf(path, Predicate::Regex(Regex::new(pattern, options)?))
            }
            value => compare(path, CompareOp::Eq, value, place)?,
        });
    }
    Ok(if children.is_empty() { Node::Constant(false) } else { Node::And(children) })
}

fn elem_match(path: Option<&Path>, value: Value<'_>, place: Place<'_>) -> Parsed {
    let Value::Document(doc) = value else {
        return Err(QueryError::bad_value("$elemMatch needs an Object"));
    };
    let place = Place { in_elem_match: true, ..place };
    let first = Elements::of_bytes(doc).next().map_or(&b""[..], |e| e.key);
    let of_values = is_expression(doc, true)
        && !matches!(first, b"$and" | b"$or" | b"$nor" | b"$where" | b"$text");
    let predicate = if of_values {
        ArrayPredicate::ElemMatchValue(operators(None, doc, place)?)
    } else {
        ArrayPredicate::ElemMatchObject(Box::new(document(doc, place)?))
    };
    Ok(array(path, predicate))
}

fn bits(path: Option<&Path>, operator: &Element<'_>, all: bool, set: bool) -> Parsed {
    let positions = operands::bit_positions(path, operator)?;
    Ok(leaf(path, Predicate::Bits(super::bits::BitTest { positions, all, set })))
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

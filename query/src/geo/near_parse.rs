//! Parses `$near`, `$nearSphere` and the point of `$geoNear`.

use super::{
    Point,
    parse::{Parsed, bad, pair, point, position},
};
use crate::{
    error::QueryError,
    expression::as_f64,
    value::{Elements, Shown, Value},
};

/// `$near` and `$nearSphere`.
#[derive(Debug, Clone)]
pub(crate) struct Near {
    /// The centre.
    pub(crate) from: Point,
    /// Use the sphere: distances are in meters for GeoJSON, in radians for a legacy point.
    pub(crate) spherical: bool,
    /// The point was GeoJSON.
    pub(crate) geo_json: bool,
    /// Minimum distance.
    pub(crate) min: f64,
    /// Maximum distance.
    pub(crate) max: f64,
    /// `$nearSphere`.
    pub(crate) is_sphere_operator: bool,
}

/// Parses the point of `$geoNear` and returns whether it is GeoJSON; `limit` is the stage's first distance option. It
/// is needed for error texts, because mongod rewrites the stage as a `$near` before it parses the point.
pub(crate) fn near_point(value: Value<'_>, limit: Option<(&str, f64)>) -> Parsed<(Point, bool)> {
    if !matches!(value, Value::Document(_) | Value::Array(_)) {
        return Err(QueryError::location(
            5_860_401,
            "$geoNear requires near argument to be a GeoJSON object or a legacy point(array)",
        ));
    }
    query_point(value)
        .ok_or_else(|| no_point(value, limit.map(|(name, n)| (name.as_bytes(), Value::Double(n)))))
}

/// Parses a point without `$geometry`, and whether it is GeoJSON.
fn query_point(value: Value<'_>) -> Option<(Point, bool)> {
    let plain = || {
        let found = point(value).ok()?;
        (found.x.is_finite() && found.y.is_finite()).then_some((found, false))
    };
    let Value::Document(doc) = value else { return plain() };
    let part =
        |name: &[u8]| Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value());
    match (part(b"type"), part(b"coordinates")) {
        (Value::Missing, Value::Missing) => plain(),
        (Value::String(b"Point") | Value::Missing, coordinates) => {
            position(coordinates).ok().map(|found| (found, true))
        }
        (Value::String(_), _) => None,
        // A `type` that is not text may be the first number of a legacy pair.
        _ => plain(),
    }
}

/// The error for a value that is not a point. mongod then takes it for a document with `$geometry` and distances.
fn no_point(value: Value<'_>, beside: Option<(&[u8], Value<'_>)>) -> QueryError {
    let text = match (beside, value.elements().next()) {
        (Some((name, extra)), _) => format!(
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field \
             found: {}: {}",
            String::from_utf8_lossy(name),
            Shown(extra)
        ),
        (None, Some(first)) => {
            format!("invalid argument in geo near query: {}", String::from_utf8_lossy(first.key))
        }
        (None, None) => "$geometry is required for geo near query".to_owned(),
    };
    QueryError::bad_value(text)
}

/// Parses `$near`, `$nearSphere` or the old `$geoNear`; `operators` is the document that contains it.
pub(crate) fn near(name: &[u8], value: Value<'_>, operators: &[u8]) -> Parsed<Near> {
    let is_sphere_operator = name == b"$nearSphere";
    // With a legacy pair an invalid distance has different error codes.
    let plain = matches!(value, Value::Array(_));
    let limit = |name: &str, value: Value<'_>| {
        let is_max = name == "$maxDistance";
        let codes = if is_max { (16_895, 16_896) } else { (16_893, 16_894) };
        let refuse = |code: i32, text: &str| {
            let code = if plain { code } else { 2 };
            Err(QueryError::location(code, format!("{name} {text}")))
        };
        if !value.is_number() {
            return refuse(codes.0, "must be a number");
        }
        let n = as_f64(value);
        if n >= 0.0 { Ok(n) } else { refuse(codes.1, "must be non-negative") }
    };
    let (mut min, mut max) = (0.0, f64::MAX);
    for field in Elements::of_bytes(operators) {
        match field.key {
            b"$minDistance" => min = limit("$minDistance", field.value())?,
            b"$maxDistance" => max = limit("$maxDistance", field.value())?,
            _ => {}
        }
    }
    if let Some((from, geo_json)) = query_point(value) {
        // A legacy point may be followed by its maximum distance.
        if !geo_json && let Some(third) = value.elements().nth(2).filter(|e| e.value().is_number())
        {
            max = limit("$maxDistance", third.value())?;
        }
        if is_sphere_operator && !from.is_on_earth() {
            return bad("Legacy point is out of bounds for spherical query");
        }
        let spherical = is_sphere_operator || geo_json;
        return Ok(Near { from, spherical, geo_json, min, max, is_sphere_operator });
    }
    if let Value::Document(doc) = value
        && let Some(geometry) = Elements::of_bytes(doc).find(b"$geometry")
    {
        let Value::Document(inner) = geometry.value() else {
            return bad("$geometry is required for geo near query".to_owned());
        };
        let from = geometry_point(inner, geometry.value())?;
        for field in Elements::of_bytes(doc) {
            match field.key {
                b"$minDistance" => min = limit("$minDistance", field.value())?,
                b"$maxDistance" => max = limit("$maxDistance", field.value())?,
                _ => {}
            }
        }
        return Ok(Near { from, spherical: true, geo_json: true, min, max, is_sphere_operator });
    }
    if !matches!(value, Value::Document(_) | Value::Array(_)) {
        return bad(format!("near must be first in: {}", Shown(Value::Document(operators))));
    }
    let beside = Elements::of_bytes(operators).nth(1);
    Err(no_point(value, beside.map(|e| (e.key, e.value()))))
}

/// Parses the point in `$geometry`.
fn geometry_point(doc: &[u8], whole: Value<'_>) -> Parsed<Point> {
    let part =
        |name: &[u8]| Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value());
    let plain = Elements::of_bytes(doc).next().is_some_and(|first| first.value().is_number());
    if plain && pair(whole).is_ok() {
        return bad(format!("$near requires geojson point, given {}", Shown(whole)));
    }
    let found = match part(b"type") {
        _ if plain => pair(whole),
        Value::String(b"Point") | Value::Missing => position(part(b"coordinates")),
        other => {
            let known =
                KINDS.iter().find(|kind| matches!(other, Value::String(own) if own == **kind));
            bad(format!(
                "Expected geojson geometry with type Point, but got type {}",
                known.map_or("unknown".into(), |kind| String::from_utf8_lossy(kind))
            ))
        }
    };
    found.map_err(|error| QueryError {
        message: format!(
            "invalid point in geo near query $geometry argument: {}  {}",
            Shown(whole),
            error.message
        ),
        ..error
    })
}

/// GeoJSON geometries that are not points.
const KINDS: [&[u8]; 6] = [
    b"LineString",
    b"Polygon",
    b"MultiPoint",
    b"MultiLineString",
    b"MultiPolygon",
    b"GeometryCollection",
];

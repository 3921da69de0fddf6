//! Parses geometries from BSON, with mongod's errors for those in queries.

use super::{Area, FlatShape, Geometry, Point, Stored, sphere::Polygon};
use crate::{
    error::QueryError,
    expression::as_f64,
    value::{Elements, OwnedValue, Shown, Value, display::general},
};

pub(super) type Parsed<T> = Result<T, QueryError>;

pub(super) fn bad<T>(text: impl Into<String>) -> Parsed<T> {
    Err(QueryError::bad_value(text))
}

/// `$geoWithin` or `$geoIntersects`.
#[derive(Debug, Clone)]
pub struct GeoQuery {
    area: Area,
    intersects: bool,
    /// The operator as written, for explain.
    pub written: OwnedValue,
}

impl GeoQuery {
    /// Parses the operator's operand; `operators` is the document that contains it.
    pub(crate) fn parse(name: &[u8], value: Value<'_>, operators: &[u8]) -> Parsed<Self> {
        let Value::Document(doc) = value else { return bad("geometry must be an object") };
        let intersects = name == b"$geoIntersects";
        let mut area = None;
        for field in Elements::of_bytes(doc) {
            if area.is_some() {
                let shown = shown_field(name, value);
                return bad(format!("$geoWithin doesn't accept multiple shapes {shown}"));
            }
            area = Some(shape(field.key, field.value())?);
        }
        let Some(area) = area else { return bad("geo query doesn't have any geometry") };
        let supported = match &area {
            Area::Sphere(geometry) if !intersects => {
                geometry.points.is_empty() && geometry.lines.is_empty()
            }
            Area::Flat(_) | Area::Cap(..) => !intersects,
            Area::Sphere(_) => true,
        };
        if !supported {
            let what = if intersects { "$geoIntersect" } else { "$within" };
            let shown = Shown(Value::Document(operators));
            return bad(format!("{what} not supported with provided geometry: {shown}"));
        }
        if let Some(extra) = Elements::of_bytes(operators).find(b"$maxDistance") {
            return bad(format!(
                "can't parse extra field: {}",
                shown_field(extra.key, extra.value())
            ));
        }
        Ok(Self { area, intersects, written: Value::Document(operators).into() })
    }

    /// True if a stored value lies within the area or intersects it.
    pub(crate) fn test(&self, value: Value<'_>) -> bool {
        let Some(stored) = Stored::read(value) else { return false };
        if self.intersects { self.area.intersects(&stored) } else { self.area.contains(&stored) }
    }
}

fn shown_field(name: &[u8], value: Value<'_>) -> String {
    format!("{}: {}", String::from_utf8_lossy(name), Shown(value))
}

fn shape(name: &[u8], value: Value<'_>) -> Parsed<Area> {
    let unknown = || bad(format!("unknown geo specifier: {}", shown_field(name, value)));
    let list = matches!(value, Value::Array(_) | Value::Document(_));
    let part = |at: usize| value.elements().nth(at).map_or(Value::Missing, |e| e.value());
    match name {
        b"$geometry" => match value {
            Value::Document(doc) => geometry(doc, "unknown").map(Area::Sphere),
            _ => unknown(),
        },
        b"$box" if list => {
            let (a, b) = (pair(part(0))?, pair(part(1))?);
            let low = Point { x: a.x.min(b.x), y: a.y.min(b.y) };
            let high = Point { x: a.x.max(b.x), y: a.y.max(b.y) };
            Ok(Area::Flat(FlatShape::Box { low, high }))
        }
        b"$center" if list => {
            let (center, radius) = (pair(part(0))?, radius(part(1))?);
            Ok(Area::Flat(FlatShape::Circle { center, radius }))
        }
        b"$centerSphere" if list => {
            let center = pair(part(0))?;
            check_bounds(center)?;
            Ok(Area::Cap(center.on_sphere(), radius(part(1))?))
        }
        b"$polygon" if list => {
            let corners: Parsed<Vec<_>> = value.elements().map(|e| pair(e.value())).collect();
            let corners = corners?;
            if corners.len() < 3 {
                return bad(format!(
                    "Polygon must have at least 3 points, instead got {} vertices",
                    corners.len()
                ));
            }
            Ok(Area::Flat(FlatShape::Polygon(corners)))
        }
        _ => unknown(),
    }
}

fn radius(value: Value<'_>) -> Parsed<f64> {
    let n = if value.is_number() { as_f64(value) } else { -1.0 };
    if n >= 0.0 {
        return Ok(n);
    }
    let shown = match value {
        Value::Missing => "EOO".to_owned(),
        value => Shown(value).to_string(),
    };
    bad(format!("Radius must be a non-negative number: {shown}"))
}

/// Parses two numbers in an array or a document.
pub(super) fn point(value: Value<'_>) -> Parsed<Point> {
    if !matches!(value, Value::Array(_) | Value::Document(_)) {
        return bad(format!(
            "Point must be an array or object, instead got type {}",
            value.type_name()
        ));
    }
    let mut numbers = value.elements().map(|e| e.value());
    let mut number = || {
        let value = numbers.next().unwrap_or(Value::Missing);
        if value.is_number() {
            return Ok(as_f64(value));
        }
        bad(format!(
            "Point must only contain numeric elements, instead got type {}",
            value.type_name()
        ))
    };
    Ok(Point { x: number()?, y: number()? })
}

/// Parses exactly two finite numbers.
pub(super) fn pair(value: Value<'_>) -> Parsed<Point> {
    let p = point(value)?;
    if value.elements().nth(2).is_some() {
        return bad("Point must only contain two numeric elements");
    }
    if !p.x.is_finite() || !p.y.is_finite() {
        return bad("Point coordinates must be finite numbers");
    }
    Ok(p)
}

fn check_bounds(p: Point) -> Parsed<()> {
    if p.is_on_earth() {
        return Ok(());
    }
    if !p.x.is_finite() || !p.y.is_finite() {
        return bad("Point coordinates must be finite numbers");
    }
    bad(format!(
        "Longitude/latitude is out of bounds, lng: {} lat: {}",
        general(p.x, 6),
        general(p.y, 6)
    ))
}

pub(super) fn position(value: Value<'_>) -> Parsed<Point> {
    let p = point(value)?;
    check_bounds(p)?;
    Ok(p)
}

/// Parses a position in a coordinate list.
fn corner(value: Value<'_>) -> Parsed<Point> {
    match value {
        Value::Array(_) => position(value),
        other => bad(format!(
            "GeoJSON coordinates must be an array, instead got type {}",
            other.type_name()
        )),
    }
}

fn corners(value: Value<'_>) -> Parsed<Vec<Point>> {
    match value {
        Value::Array(_) => value.elements().map(|e| corner(e.value())).collect(),
        other => bad(format!(
            "GeoJSON coordinates must be an array of coordinates, instead got type {}",
            other.type_name()
        )),
    }
}

/// Parses a GeoJSON geometry. `unknown` is how mongod spells the first word of its error for an invalid type, which
/// differs between contexts.
fn geometry(doc: &[u8], unknown: &str) -> Parsed<Geometry> {
    let part =
        |name: &[u8]| Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value());
    let mut found = Geometry::default();
    let coordinates = part(b"coordinates");
    let each = |what: &str| -> Parsed<Vec<Value<'_>>> {
        let list: Vec<_> = coordinates.elements().map(|e| e.value()).collect();
        if !matches!(coordinates, Value::Array(_)) {
            return bad(format!(
                "{what} coordinates must be an array, instead got type {}",
                coordinates.type_name()
            ));
        }
        if list.is_empty() {
            return bad(format!("{what} coordinates must have at least 1 element"));
        }
        Ok(list)
    };
    // If the first field is a number, the document is a legacy pair, whatever its field names.
    if Elements::of_bytes(doc).next().is_some_and(|first| first.value().is_number()) {
        found.points.push(pair(Value::Document(doc))?.on_sphere());
        return Ok(found);
    }
    match part(b"type") {
        Value::String(b"Point") => found.points.push(position(coordinates)?.on_sphere()),
        Value::String(b"LineString") => found.lines.push(line(coordinates)?),
        Value::String(b"Polygon") => found.polygons.push(polygon(coordinates)?),
        Value::String(b"MultiPoint") => {
            for value in each("MultiPoint")? {
                found.points.push(corner(value)?.on_sphere());
            }
        }
        Value::String(b"MultiLineString") => {
            for value in each("MultiLineString")? {
                found.lines.push(line(value)?);
            }
        }
        Value::String(b"MultiPolygon") => {
            for value in each("MultiPolygon")? {
                found.polygons.push(polygon(value)?);
            }
        }
        Value::String(b"GeometryCollection") => collection(part(b"geometries"), &mut found)?,
        _ => return bad(format!("{unknown} GeoJSON type: {}", Shown(Value::Document(doc)))),
    }
    if check_crs(part(b"crs"))? == Winding::Strict {
        found.polygons = found.polygons.into_iter().map(Polygon::by_winding).collect();
    }
    Ok(found)
}

fn collection(geometries: Value<'_>, found: &mut Geometry) -> Parsed<()> {
    if !matches!(geometries, Value::Array(_)) {
        return bad(format!(
            "GeometryCollection geometries must be an array, instead got type {}",
            geometries.type_name()
        ));
    }
    let mut empty = true;
    for (at, element) in geometries.elements().enumerate() {
        empty = false;
        let Value::Document(doc) = element.value() else {
            return bad(format!(
                "Element {at} of \"geometries\" must be an object, instead got type {}: {}",
                element.value().type_name(),
                Shown(element.value())
            ));
        };
        let kind = Elements::of_bytes(doc).find(b"type").map(|e| e.value());
        if let Some(Value::String(b"GeometryCollection")) = kind {
            return bad("GeometryCollections cannot be nested");
        }
        let one = geometry(doc, "Unknown")?;
        found.points.extend(one.points);
        found.lines.extend(one.lines);
        found.polygons.extend(one.polygons);
    }
    if empty {
        return bad("GeometryCollection geometries must have at least 1 element");
    }
    Ok(())
}

/// Which of the two areas on the sphere that a ring bounds is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Winding {
    /// The smaller area.
    Any,
    /// The area on the left of the ring.
    Strict,
}

fn check_crs(crs: Value<'_>) -> Parsed<Winding> {
    let doc = match crs {
        Value::Missing => return Ok(Winding::Any),
        Value::Document(doc) => doc,
        _ => {
            return bad(format!(
                "GeoJSON CRS must be an object, instead got type {}",
                crs.type_name()
            ));
        }
    };
    let part =
        |name: &[u8]| Elements::of_bytes(doc).find(name).map_or(Value::Missing, |e| e.value());
    if !matches!(part(b"type"), Value::String(b"name")) {
        return bad("GeoJSON CRS must have field \"type\": \"name\"");
    }
    let properties = part(b"properties");
    if !matches!(properties, Value::Document(_)) {
        return bad(format!(
            "CRS must have field \"properties\" which is an object, instead got type {}",
            properties.type_name()
        ));
    }
    let name = properties.elements().find(b"name").map_or(Value::Missing, |e| e.value());
    match name {
        Value::String(b"urn:ogc:def:crs:OGC:1.3:CRS84" | b"EPSG:4326") => Ok(Winding::Any),
        Value::String(b"urn:x-mongodb:crs:strictwinding:EPSG:4326") => Ok(Winding::Strict),
        Value::String(other) => {
            bad(format!("Unknown CRS name: {}", String::from_utf8_lossy(other)))
        }
        _ => bad("CRS properties field is not an object"),
    }
}

fn line(value: Value<'_>) -> Parsed<Vec<super::Vector>> {
    let mut points = corners(value)?;
    points.dedup();
    if points.len() < 2 {
        return bad(format!(
            "GeoJSON LineString must have at least 2 vertices, instead got {} vertices: {}",
            points.len(),
            Shown(value)
        ));
    }
    Ok(points.into_iter().map(Point::on_sphere).collect())
}

fn polygon(value: Value<'_>) -> Parsed<Polygon> {
    if !matches!(value, Value::Array(_)) {
        return bad(format!(
            "Polygon coordinates must be an array, instead got type {}",
            value.type_name()
        ));
    }
    let mut rings = Vec::new();
    for ring in value.elements() {
        let value = ring.value();
        let mut points = corners(value)?;
        if points.is_empty() {
            return bad(format!("Loop has no vertices: {}", Shown(value)));
        }
        if points.first() != points.last() {
            return bad(format!(
                "Loop is not closed, first vertex does not equal last vertex: {}",
                Shown(value)
            ));
        }
        points.dedup();
        points.pop();
        if points.len() < 3 {
            return bad(format!(
                "Loop must have at least 3 different vertices, {} unique vertices were provided: {}",
                points.len(),
                Shown(value)
            ));
        }
        let ring: Vec<_> = points.iter().map(|p| p.on_sphere()).collect();
        if let Some((i, j)) = Polygon::crossing(&ring) {
            return bad(crossing_text(&points, i, j, value));
        }
        rings.push(ring);
    }
    if rings.is_empty() {
        return bad("Polygon has no loops.");
    }
    match Polygon::new(rings) {
        Some(polygon) => Ok(polygon),
        None => Err(QueryError::location(
            115,
            "polygons that do not fit into a hemisphere are not supported by this server yet",
        )),
    }
}

fn crossing_text(points: &[Point], i: usize, j: usize, ring: Value<'_>) -> String {
    let corner = |at: usize| {
        points
            .get(at % points.len().max(1))
            .map(|p| format!("[{:.7}, {:.7}]", p.y, p.x))
            .unwrap_or_default()
    };
    format!(
        "Loop is not valid: {} Edges {i} and {j} cross. Edge locations in degrees: {}-{} and {}-{}",
        Shown(ring),
        corner(i),
        corner(i + 1),
        corner(j),
        corner(j + 1)
    )
}

/// Parses a stored value: GeoJSON, or two numbers.
pub(super) fn stored(value: Value<'_>) -> Option<Stored> {
    if let Value::Document(doc) = value
        && let Some(kind) = Elements::of_bytes(doc).find(b"type")
        && let Value::String(kind) = kind.value()
    {
        let sphere = geometry(doc, "unknown").ok()?;
        let coordinates = Elements::of_bytes(doc).find(b"coordinates").map(|e| e.value());
        let flat = match (kind, coordinates) {
            (b"Point", Some(coordinates)) => point(coordinates).ok(),
            _ => None,
        };
        return Some(Stored { sphere: Some(sphere), flat });
    }
    let flat = point(value).ok()?;
    let sphere = flat
        .is_on_earth()
        .then(|| Geometry { points: vec![flat.on_sphere()], ..Geometry::default() });
    Some(Stored { sphere, flat: Some(flat) })
}

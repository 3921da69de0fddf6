//! Geometry on the plane and on the sphere: containment, intersection, distance.
//!
//! ```text
//!   $box, $center, $polygon        the plane: x and y as they are          flat
//!   $geometry, $centerSphere       the sphere: longitude, latitude         sphere
//!   stored: [x, y], {x, y}         a legacy point: both
//!           GeoJSON                the sphere; a Point is on the plane too
//! ```
//! Edges on the sphere are parts of great circles. A polygon is the smaller of the two areas that its ring bounds,
//! and must fit into a hemisphere.

mod flat;
mod near;
mod near_parse;
mod parse;
mod sphere;

pub use near::NearBy;
pub(crate) use near::geo_field;
pub(crate) use near_parse::{Near, near, near_point};
pub use parse::GeoQuery;

use flat::FlatShape;
use sphere::Vector;

use crate::value::Value;

/// A point as written: longitude and latitude, or x and y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Point {
    fn on_sphere(self) -> Vector {
        Vector::of_degrees(self.x, self.y)
    }

    fn is_on_earth(self) -> bool {
        (-180.0..=180.0).contains(&self.x) && (-90.0..=90.0).contains(&self.y)
    }
}

/// A geometry on the sphere, decomposed into points, lines and polygons.
#[derive(Debug, Clone, Default)]
pub(crate) struct Geometry {
    points: Vec<Vector>,
    lines: Vec<Vec<Vector>>,
    polygons: Vec<sphere::Polygon>,
}

/// A place stored in a document: its geometry on the sphere, and its point on the plane if it is a single point.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    sphere: Option<Geometry>,
    flat: Option<Point>,
}

impl Stored {
    /// Parses a stored value; `None` if it is not a place.
    pub(crate) fn read(value: Value<'_>) -> Option<Self> {
        parse::stored(value)
    }

    /// The distance to a point on the sphere, in radians.
    pub(crate) fn angle_to(&self, from: Point) -> Option<f64> {
        let from = from.on_sphere();
        let geometry = self.sphere.as_ref()?;
        geometry.distance(from)
    }

    /// The distance to a point on the plane.
    pub(crate) fn distance_to(&self, from: Point) -> Option<f64> {
        self.flat.map(|p| {
            // Computed like mongod does: `hypot` would round differently.
            let (x, y) = (p.x - from.x, p.y - from.y);
            (x * x + y * y).sqrt()
        })
    }
}

/// The area of a geo query.
#[derive(Debug, Clone)]
pub(crate) enum Area {
    Flat(FlatShape),
    Sphere(Geometry),
    /// A spherical cap around a point, with its radius in radians.
    Cap(Vector, f64),
}

impl Area {
    /// True if the stored place lies completely within.
    fn contains(&self, stored: &Stored) -> bool {
        match self {
            Self::Flat(shape) => stored.flat.is_some_and(|point| shape.contains(point)),
            Self::Sphere(area) => {
                stored.sphere.as_ref().is_some_and(|geometry| area.contains(geometry))
            }
            Self::Cap(center, radius) => {
                let within = |p: &Vector| center.angle(*p) <= *radius;
                stored.sphere.as_ref().is_some_and(|geometry| geometry.vertices().all(within))
            }
        }
    }

    /// True if the stored place intersects the area.
    fn intersects(&self, stored: &Stored) -> bool {
        match self {
            Self::Sphere(area) => {
                stored.sphere.as_ref().is_some_and(|geometry| area.intersects(geometry))
            }
            Self::Flat(_) | Self::Cap(..) => false,
        }
    }
}

impl Geometry {
    fn vertices(&self) -> impl Iterator<Item = &Vector> {
        let of_polygons = self.polygons.iter().flat_map(|polygon| polygon.rings().flatten());
        self.points.iter().chain(self.lines.iter().flatten()).chain(of_polygons)
    }

    /// True if each part of the other geometry lies within one of our polygons.
    fn contains(&self, other: &Self) -> bool {
        let some = |test: &dyn Fn(&sphere::Polygon) -> bool| self.polygons.iter().any(test);
        other.points.iter().all(|point| some(&|polygon| polygon.touches(*point)))
            && other.lines.iter().all(|line| some(&|polygon| polygon.contains_line(line)))
            && other.polygons.iter().all(|inner| some(&|polygon| polygon.contains_polygon(inner)))
    }

    fn intersects(&self, other: &Self) -> bool {
        let (a, b) = (self, other);
        a.points.iter().any(|p| b.meets_point(*p))
            || b.points.iter().any(|p| a.meets_point(*p))
            || a.lines.iter().any(|line| b.meets_line(line))
            || b.lines.iter().any(|line| a.meets_line(line))
            || a.polygons.iter().any(|x| b.polygons.iter().any(|y| x.meets_polygon(y)))
    }

    fn meets_point(&self, point: Vector) -> bool {
        self.points.contains(&point)
            || self.lines.iter().any(|line| sphere::line_touches(line, point))
            || self.polygons.iter().any(|polygon| polygon.touches(point))
    }

    fn meets_line(&self, line: &[Vector]) -> bool {
        self.lines.iter().any(|own| sphere::lines_meet(own, line))
            || self.polygons.iter().any(|polygon| polygon.meets_line(line))
    }

    /// The angle to the nearest point of the geometry.
    fn distance(&self, from: Vector) -> Option<f64> {
        if self.polygons.iter().any(|polygon| polygon.contains(from)) {
            return Some(0.0);
        }
        let to_points = self.points.iter().map(|p| from.angle(*p));
        let to_lines = self.lines.iter().flat_map(|line| sphere::edges_of_line(line));
        let to_rings = self.polygons.iter().flat_map(sphere::Polygon::edges);
        let to_edges = to_lines.chain(to_rings).map(|(a, b)| sphere::angle_to_edge(from, a, b));
        to_points.chain(to_edges).reduce(f64::min)
    }
}

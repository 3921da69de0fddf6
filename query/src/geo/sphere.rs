//! Points, lines and polygons on the sphere.
//!
//! A polygon is projected from its centre by the gnomonic projection, which turns great circles into straight lines.
//! So algorithms for polygons on the plane can be used.

/// A point on the unit sphere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

/// Points closer than this are equal: a few millimetres, like mongod's smallest cells.
const SAME: f64 = 1e-9;

/// A point closer than this to a great circle lies on it. This covers the rounding errors of sines and products,
/// divided by a short edge.
const ON_CIRCLE: f64 = 1e-12;

impl Vector {
    /// From longitude and latitude in degrees.
    pub(super) fn of_degrees(longitude: f64, latitude: f64) -> Self {
        let (phi, theta) = (latitude.to_radians(), longitude.to_radians());
        Self { x: theta.cos() * phi.cos(), y: theta.sin() * phi.cos(), z: phi.sin() }
    }

    fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    fn cross(self, other: Self) -> Self {
        Self {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    fn scaled(self, by: f64) -> Self {
        Self { x: self.x * by, y: self.y * by, z: self.z * by }
    }

    fn plus(self, other: Self) -> Self {
        Self { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }

    fn unit(self) -> Self {
        let length = self.length();
        if length == 0.0 { self } else { self.scaled(1.0 / length) }
    }

    /// The angle between two points in radians; accurate for small angles, too.
    pub(super) fn angle(self, other: Self) -> f64 {
        self.cross(other).length().atan2(self.dot(other))
    }
}

/// The edges of a line.
pub(super) fn edges_of_line(line: &[Vector]) -> impl Iterator<Item = (Vector, Vector)> {
    line.windows(2).filter_map(|pair| match *pair {
        [a, b] => Some((a, b)),
        _ => None,
    })
}

/// The angle from a point to the nearest point of an edge.
pub(super) fn angle_to_edge(p: Vector, a: Vector, b: Vector) -> f64 {
    let normal = a.cross(b);
    if normal.length() == 0.0 {
        return p.angle(a);
    }
    let normal = normal.unit();
    let foot = p.plus(normal.scaled(-p.dot(normal)));
    let within = foot.dot(normal.cross(a)) >= 0.0 && foot.dot(b.cross(normal)) >= 0.0;
    if within && foot.length() > 0.0 { p.angle(foot.unit()) } else { p.angle(a).min(p.angle(b)) }
}

pub(super) fn line_touches(line: &[Vector], p: Vector) -> bool {
    edges_of_line(line).any(|(a, b)| angle_to_edge(p, a, b) <= SAME)
}

/// True if two edges have a common point.
fn edges_meet((a, b): (Vector, Vector), (c, d): (Vector, Vector)) -> bool {
    // Edges on the same great circle lie on neither side of each other; a small nonzero result is a rounding error.
    let side = |n: Vector, p: Vector| {
        let side = n.dot(p);
        if side.abs() < n.length() * ON_CIRCLE { 0.0 } else { side }
    };
    let (ab, cd) = (a.cross(b), c.cross(d));
    let (c_side, d_side) = (side(ab, c), side(ab, d));
    let (a_side, b_side) = (side(cd, a), side(cd, b));
    let crosses = c_side * d_side < 0.0 && a_side * b_side < 0.0 && {
        // The two planes intersect in two points; the edges must cross at the same one.
        let meeting = ab.cross(cd);
        let on_first = meeting.dot(a.plus(b));
        let on_second = meeting.dot(c.plus(d));
        on_first * on_second > 0.0
    };
    crosses
        || [c, d].iter().any(|p| angle_to_edge(*p, a, b) <= SAME)
        || [a, b].iter().any(|p| angle_to_edge(*p, c, d) <= SAME)
}

/// True if two edges cross in their interiors, not at an end.
fn edges_cross(first: (Vector, Vector), second: (Vector, Vector)) -> bool {
    let touch = [second.0, second.1].iter().any(|p| angle_to_edge(*p, first.0, first.1) <= SAME)
        || [first.0, first.1].iter().any(|p| angle_to_edge(*p, second.0, second.1) <= SAME);
    !touch && edges_meet(first, second)
}

/// Lines that run along each other meet only if they have a vertex in common, as in mongod.
pub(super) fn lines_meet(a: &[Vector], b: &[Vector]) -> bool {
    let share_end = |x: (Vector, Vector), y: (Vector, Vector)| {
        [x.0, x.1].iter().any(|p| p.angle(y.0) <= SAME || p.angle(y.1) <= SAME)
    };
    let meet = |x, y| edges_meet(x, y) && (!on_one_circle(x, y) || share_end(x, y));
    edges_of_line(a).any(|x| edges_of_line(b).any(|y| meet(x, y)))
}

fn on_one_circle((a, b): (Vector, Vector), (c, d): (Vector, Vector)) -> bool {
    let normal = a.cross(b);
    [c, d].iter().all(|p| normal.dot(*p).abs() < normal.length() * ON_CIRCLE)
}

/// A polygon with holes, projected from its centre.
#[derive(Debug, Clone)]
pub(crate) struct Polygon {
    middle: Vector,
    east: Vector,
    north: Vector,
    /// The first ring is the outer one; the repeated last vertex is omitted.
    rings: Vec<Vec<Vector>>,
    /// The projected rings.
    flat: Vec<Vec<(f64, f64)>>,
    /// True if the area is what lies outside of the ring.
    outside: bool,
}

/// True if two rings have the same vertices in the same order or in reverse, wherever they begin.
fn same_ring(a: &[Vector], b: &[Vector]) -> bool {
    let same = |p: &Vector, q: &Vector| p.angle(*q) <= SAME;
    let from = |start: usize| {
        let forward = b.iter().cycle().skip(start);
        let backward = b.iter().rev().cycle().skip(b.len() - 1 - start);
        a.iter().zip(forward).all(|(p, q)| same(p, q))
            || a.iter().zip(backward).all(|(p, q)| same(p, q))
    };
    a.len() == b.len() && (0..b.len()).any(from)
}

impl Polygon {
    /// `None` if it does not fit into a hemisphere.
    pub(super) fn new(rings: Vec<Vec<Vector>>) -> Option<Self> {
        let outer = rings.first()?;
        let zero = Vector { x: 0.0, y: 0.0, z: 0.0 };
        let middle = outer.iter().fold(zero, |sum, v| sum.plus(*v)).unit();
        // Any direction other than the centre's own can define the axes of the plane.
        let pole = if middle.z.abs() < 0.9 {
            Vector { x: 0.0, y: 0.0, z: 1.0 }
        } else {
            Vector { x: 1.0, y: 0.0, z: 0.0 }
        };
        let east = pole.cross(middle).unit();
        let north = middle.cross(east);
        let mut polygon =
            Self { middle, east, north, rings: Vec::new(), flat: Vec::new(), outside: false };
        for ring in &rings {
            let flat: Option<Vec<_>> = ring.iter().map(|v| polygon.project(*v)).collect();
            polygon.flat.push(flat?);
        }
        polygon.rings = rings;
        Some(polygon)
    }

    /// The area on the left of the outer ring, which is the larger one if the ring runs clockwise.
    pub(super) fn by_winding(mut self) -> Self {
        let ring = self.flat.first().map_or(&[][..], Vec::as_slice);
        let ends = ring.iter().cycle().skip(1);
        let area: f64 = ring.iter().zip(ends).map(|(a, b)| a.0 * b.1 - b.0 * a.1).sum();
        self.outside = area < 0.0;
        self
    }

    fn project(&self, p: Vector) -> Option<(f64, f64)> {
        let depth = p.dot(self.middle);
        (depth > 1e-9).then(|| (p.dot(self.east) / depth, p.dot(self.north) / depth))
    }

    pub(super) fn rings(&self) -> impl Iterator<Item = &Vec<Vector>> {
        self.rings.iter()
    }

    pub(super) fn edges(&self) -> impl Iterator<Item = (Vector, Vector)> {
        self.rings
            .iter()
            .flat_map(|ring| ring.iter().copied().zip(ring.iter().copied().cycle().skip(1)))
    }

    /// True if the point lies within, by the parity of the edges to its right.
    pub(super) fn contains(&self, p: Vector) -> bool {
        let Some((x, y)) = self.project(p) else { return false };
        let mut inside = false;
        for ring in &self.flat {
            let ends = ring.iter().cycle().skip(1);
            for ((ax, ay), (bx, by)) in ring.iter().zip(ends) {
                if (*ay > y) != (*by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax {
                    inside = !inside;
                }
            }
        }
        inside
    }

    /// True if the point lies within or on the edge.
    pub(super) fn touches(&self, p: Vector) -> bool {
        self.contains(p) != self.outside || self.has_on_edge(p)
    }

    fn ring_touches(&self, p: Vector) -> bool {
        self.contains(p) || self.has_on_edge(p)
    }

    fn has_on_edge(&self, p: Vector) -> bool {
        self.edges().any(|(a, b)| angle_to_edge(p, a, b) <= SAME)
    }

    pub(super) fn contains_line(&self, line: &[Vector]) -> bool {
        if self.outside { !self.ring_meets_line(line) } else { self.ring_contains_line(line) }
    }

    pub(super) fn contains_polygon(&self, inner: &Self) -> bool {
        if self.outside { !self.ring_meets(inner) } else { self.ring_contains(inner) }
    }

    pub(super) fn meets_line(&self, line: &[Vector]) -> bool {
        if self.outside { !self.ring_contains_line(line) } else { self.ring_meets_line(line) }
    }

    pub(super) fn meets_polygon(&self, other: &Self) -> bool {
        match (self.outside, other.outside) {
            (false, false) => self.ring_meets(other),
            (true, false) => !self.ring_contains(other),
            (false, true) => !other.ring_contains(self),
            // Each of them leaves out less than a hemisphere.
            (true, true) => true,
        }
    }

    fn ring_contains_line(&self, line: &[Vector]) -> bool {
        // A line along a part of an edge is not within, and one that is an edge is.
        let along = |edge: (Vector, Vector)| {
            self.has_on_edge(edge.0.plus(edge.1).unit()) && !self.has_edge(edge)
        };
        line.iter().all(|p| self.ring_touches(*p))
            && !edges_of_line(line).any(along)
            && !edges_of_line(line).any(|edge| self.edges().any(|own| edges_cross(own, edge)))
            && !self.holes().any(|p| line_touches(line, p))
    }

    fn ring_contains(&self, inner: &Self) -> bool {
        if self.has_ring_of(inner) {
            let mut holes = self.rings.iter().skip(1);
            return holes
                .all(|hole| inner.rings.iter().skip(1).any(|other| same_ring(hole, other)));
        }
        // Polygons that share part of an edge are not within each other.
        inner.rings.iter().flatten().all(|p| self.contains(*p) && !self.has_on_edge(*p))
            && !inner.edges().any(|edge| self.edges().any(|own| edges_cross(own, edge)))
            && !self.holes().any(|p| inner.contains(p))
    }

    fn holes(&self) -> impl Iterator<Item = Vector> {
        self.rings.iter().skip(1).flatten().copied()
    }

    fn has_edge(&self, (a, b): (Vector, Vector)) -> bool {
        let same = |p: Vector, q: Vector| p.angle(q) <= SAME;
        self.edges().any(|(c, d)| same(a, c) && same(b, d) || same(a, d) && same(b, c))
    }

    fn has_ring_of(&self, other: &Self) -> bool {
        matches!((self.rings.first(), other.rings.first()), (Some(a), Some(b)) if same_ring(a, b))
    }

    fn ring_meets_line(&self, line: &[Vector]) -> bool {
        // A line that touches the ring at a point, or runs along a part of an edge, does not meet the polygon.
        let within = |p: Vector| self.contains(p) && !self.has_on_edge(p);
        line.iter().any(|p| within(*p))
            || edges_of_line(line).any(|edge| {
                within(edge.0.plus(edge.1).unit())
                    || self.has_edge(edge)
                    || self.edges().any(|own| edges_cross(own, edge))
            })
    }

    fn ring_meets(&self, other: &Self) -> bool {
        let within = |a: &Self, b: &Self| {
            // All corners may lie on the other's edge; then the midpoint of an edge decides.
            let middles = b.edges().map(|(p, q)| p.plus(q).unit());
            let mut points = b.rings.first().into_iter().flatten().copied().chain(middles);
            points.any(|p| a.contains(p) && !a.has_on_edge(p))
        };
        self.has_ring_of(other)
            || within(self, other)
            || within(other, self)
            || other.edges().any(|edge| self.edges().any(|own| edges_cross(own, edge)))
    }

    /// The first two edges of a ring that cross each other, if any.
    pub(super) fn crossing(ring: &[Vector]) -> Option<(usize, usize)> {
        let edges: Vec<_> =
            ring.iter().copied().zip(ring.iter().copied().cycle().skip(1)).collect();
        for (i, first) in edges.iter().enumerate() {
            for (j, second) in edges.iter().enumerate().skip(i + 2) {
                if !(i == 0 && j + 1 == edges.len()) && edges_meet(*first, *second) {
                    return Some((i, j));
                }
            }
        }
        None
    }
}

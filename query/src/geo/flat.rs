//! Shapes on the plane.

use super::Point;

/// A shape of `$box`, `$center` or `$polygon`.
#[derive(Debug, Clone)]
pub(crate) enum FlatShape {
    Box { low: Point, high: Point },
    Circle { center: Point, radius: f64 },
    Polygon(Vec<Point>),
}

impl FlatShape {
    /// True if the point lies within; the edges of a box and a circle belong to it.
    pub(super) fn contains(&self, p: Point) -> bool {
        match self {
            Self::Box { low, high } => {
                (low.x..=high.x).contains(&p.x) && (low.y..=high.y).contains(&p.y)
            }
            Self::Circle { center, radius } => (p.x - center.x).hypot(p.y - center.y) <= *radius,
            Self::Polygon(corners) => in_polygon(corners, p),
        }
    }
}

/// Counts the edges to the right of the point. Corners and axis-parallel edges belong to the polygon; a slanted edge
/// belongs to it if the polygon is to the left of the edge.
fn in_polygon(corners: &[Point], p: Point) -> bool {
    let mut inside = false;
    let ends = corners.iter().cycle().skip(1);
    for (a, b) in corners.iter().zip(ends) {
        if *a == p {
            return true;
        }
        let along = |at: f64, from: f64, to: f64| (from.min(to)..=from.max(to)).contains(&at);
        #[allow(clippy::float_cmp, reason = "on the very line")]
        if a.x == b.x && p.x == a.x && along(p.y, a.y, b.y)
            || a.y == b.y && p.y == a.y && along(p.x, a.x, b.x)
        {
            return true;
        }
        let spans = p.y >= a.y.min(b.y) && p.y < a.y.max(b.y);
        if spans {
            let crossing = (p.y - a.y) * (b.x - a.x) / (b.y - a.y) + a.x;
            if p.x <= crossing {
                inside = !inside;
            }
        }
    }
    inside
}

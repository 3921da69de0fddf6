//! Random places and geo queries.

use bson::{Bson, Document, doc};

use super::random::Random;
use super::{Case, Order};

/// The collection of places.
pub const COLLECTION: &str = "geo";

/// Its indexes: 2dsphere and 2d.
pub fn indexes() -> Vec<Document> {
    vec![
        doc! { "key": { "place": "2dsphere" }, "name": "place" },
        doc! { "key": { "pair": "2d" }, "name": "pair" },
        doc! { "key": { "k": 1 }, "name": "k" },
    ]
}

impl Random {
    /// A document with a place on the sphere and one on the plane.
    pub fn place(&mut self, n: i32) -> Document {
        let mut document = doc! { "_id": n, "k": self.int(0, 5) };
        if self.chance(90) {
            document.insert("place", self.geometry());
        }
        if self.chance(90) {
            let (x, y) = self.coordinates();
            let pair = if self.chance(70) {
                Bson::Array(vec![x.into(), y.into()])
            } else {
                Bson::Document(doc! { "lng": x, "lat": y })
            };
            document.insert("pair", pair);
        }
        document
    }

    /// Few and round coordinates, so that queries match places and sometimes touch their borders.
    fn coordinates(&mut self) -> (f64, f64) {
        (f64::from(self.int(-40, 41)) / 4.0, f64::from(self.int(-40, 41)) / 4.0)
    }

    fn point(&mut self) -> Bson {
        let (x, y) = self.coordinates();
        Bson::Document(doc! { "type": "Point", "coordinates": [x, y] })
    }

    /// A square with an offset from the places: whether a point lies on a spherical border depends on rounding.
    fn square(&mut self) -> Bson {
        let (x, y) = self.coordinates();
        let (x, y) = (x + 0.0625, y + 0.0625);
        let size = f64::from(self.int(1, 20)) / 3.0;
        let (right, top) = (x + size, y + size);
        Bson::Document(doc! { "type": "Polygon", "coordinates": [
            [[x, y], [right, y], [right, top], [x, top], [x, y]],
        ] })
    }

    fn geometry(&mut self) -> Bson {
        match self.below(10) {
            0 => self.square(),
            1 => {
                let ((a, b), (c, d)) = (self.coordinates(), self.coordinates());
                Bson::Document(
                    doc! { "type": "LineString", "coordinates": [[a, b], [c + 0.125, d]] },
                )
            }
            2 => {
                let points = self.list(1, 4, |own| {
                    let (x, y) = own.coordinates();
                    Bson::Array(vec![x.into(), y.into()])
                });
                Bson::Document(doc! { "type": "MultiPoint", "coordinates": points })
            }
            _ => self.point(),
        }
    }

    fn within(&mut self) -> Document {
        let (x, y) = self.coordinates();
        let size = f64::from(self.int(1, 30)) / 3.0;
        match self.below(5) {
            0 => {
                doc! { "pair": { "$geoWithin": { "$box": [[x - size, y - size], [x + size, y + size]] } } }
            }
            1 => doc! { "pair": { "$geoWithin": { "$center": [[x, y], size] } } },
            2 => {
                doc! { "pair": { "$geoWithin": { "$polygon": [[x, y], [x + size, y], [x, y + size]] } } }
            }
            3 => {
                doc! { "place": { "$geoWithin": { "$centerSphere": [[x, y], f64::from(self.int(1, 20)) / 100.0] } } }
            }
            _ => {
                let name = self.pick(&["$geoWithin", "$geoIntersects"]);
                doc! { "place": { name: { "$geometry": self.square() } } }
            }
        }
    }

    /// A find or a pipeline over places. Places at equal distance may come in any order.
    pub fn about_places(&mut self) -> Case {
        let mut filter = match self.below(6) {
            0 => {
                let far = f64::from(self.int(1, 12)) * 100_000.0;
                let near = doc! { "$geometry": self.point(), "$maxDistance": far };
                doc! { "place": { self.pick(&["$near", "$nearSphere"]): near } }
            }
            1 => {
                let (x, y) = self.coordinates();
                doc! { "pair": { "$near": [x, y], "$maxDistance": self.int(1, 9) } }
            }
            2 => {
                let (name, one, other) =
                    (self.pick(&["$or", "$and", "$nor"]), self.within(), self.within());
                doc! { name: [one, other] }
            }
            _ => self.within(),
        };
        if self.chance(30) {
            filter.insert("k", self.int(0, 5));
        }
        if self.chance(25) {
            let (key, near) = match self.chance(50) {
                true => ("place", self.point()),
                false => {
                    let (x, y) = self.coordinates();
                    ("pair", Bson::Array(vec![x.into(), y.into()]))
                }
            };
            let stage = doc! { "$geoNear": {
                "near": near, "key": key, "distanceField": "far", "query": { "k": { "$gte": self.int(0, 4) } },
                "spherical": key == "place", "maxDistance": if key == "place" { 900_000.0 } else { 7.5 },
            } };
            let pipeline = vec![
                stage,
                doc! { "$project": { "far": { "$round": ["$far", 3] }, "k": 1 } },
                doc! { "$sort": { "_id": 1 } },
            ];
            let command = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} };
            return Case { command, order: Order::Exact };
        }
        let near = filter.iter().any(|(_, value)| {
            value
                .as_document()
                .is_some_and(|inner| inner.keys().any(|name| name.starts_with("$near")))
        });
        if !near && self.chance(40) {
            return Case {
                command: doc! { "count": COLLECTION, "query": filter },
                order: Order::Exact,
            };
        }
        Case { command: doc! { "find": COLLECTION, "filter": filter }, order: Order::Set }
    }
}

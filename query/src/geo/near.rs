//! Distances to a point, for `$near` and `$geoNear`.

use protocol::ErrorCode;

use super::{Near, Stored};
use crate::{
    error::QueryError,
    source::{IndexInfo, Source},
    value::{
        OwnedValue, Value,
        path::{LeafArrays, Path},
    },
};

/// Radius of the earth in mongod.
const EARTH_METERS: f64 = 6_378_100.0;

/// A distance query on a path.
#[derive(Debug, Clone)]
pub struct NearBy {
    pub(crate) path: Path,
    pub(crate) near: Near,
    /// The operator as written, for explain.
    pub(crate) written: OwnedValue,
}

impl NearBy {
    /// The nearest of the document's places within the allowed distances: its distance and the place.
    pub(crate) fn measure<'d>(&self, doc: &'d [u8]) -> Option<(f64, Value<'d>)> {
        let mut best: Option<(f64, Value<'d>)> = None;
        self.path.any(doc, LeafArrays::Open, |value| {
            let Some(stored) = Stored::read(value) else { return false };
            let distance = if self.near.spherical {
                let meters = if self.near.geo_json { EARTH_METERS } else { 1.0 };
                stored.angle_to(self.near.from).map(|angle| angle * meters)
            } else {
                stored.distance_to(self.near.from)
            };
            if let Some(distance) = distance
                && best.is_none_or(|(least, _)| distance < least)
            {
                best = Some((distance, value));
            }
            false
        });
        best.filter(|(distance, _)| (self.near.min..=self.near.max).contains(distance))
    }

    /// Fails if there is no geo index on the path, which determines how places are interpreted.
    pub(crate) fn check_index(&self, source: &dyn Source) -> Result<(), QueryError> {
        let wanted: &[&str] = match (self.near.geo_json, self.near.spherical) {
            (true, _) => &["2dsphere"],
            (false, true) => &["2dsphere", "2d"],
            (false, false) => &["2d"],
        };
        let found = source.indexes().iter().any(|index| {
            geo_field(index).is_some_and(|(path, kind)| {
                path.as_bytes() == self.path.dotted() && wanted.contains(&kind.as_str())
            })
        });
        if found {
            return Ok(());
        }
        Err(QueryError::new(
            ErrorCode::NoQueryExecutionPlans,
            format!(
                "error processing query: ns={}Tree: GEONEAR  field={} maxdist={} isNearSphere={}\n\
                 Sort: {{}}\nProj: {{}}\n planner returned error :: caused by :: unable to find index \
                 for $geoNear query",
                source.namespace(),
                String::from_utf8_lossy(self.path.dotted()),
                crate::value::display::general(self.near.max, 6),
                u8::from(self.near.is_sphere_operator),
            ),
        ))
    }
}

/// The geo field of an index and its kind.
pub(crate) fn geo_field(index: &IndexInfo) -> Option<(String, String)> {
    let key = index.spec.get_document("key").ok()?;
    key.iter().flatten().find_map(|(name, value)| {
        let kind = value.as_str()?;
        matches!(kind, "2d" | "2dsphere").then(|| (name.as_str().to_owned(), kind.to_owned()))
    })
}

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

/// The earth, as mongod has it.
const EARTH_METERS: f64 = 6_378_100.0;

/// Where places are, and how far.
#[derive(Debug, Clone)]
pub struct NearBy {
    pub(crate) path: Path,
    pub(crate) near: Near,
    /// The operator as it was written, for explain.
    pub(crate) written: OwnedValue,
}

impl NearBy {
    /// The least distance of the document's places, if it counts, and the place.
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

    /// Refuses where no index says how places are meant.
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

//! `$geoNear`, and the sort by distance for `$near`.
//!
//! mongod scans a geo index from the nearest cell outwards. Here all distances are computed and sorted. The index
//! must still exist, because it determines how places are interpreted.

use bson::RawDocument;
use protocol::ErrorCode;

use super::{
    Parsed, StageContext, raw,
    spec::{Spec, Takes, field},
    to_doc, unwind,
};
use crate::{
    error::QueryError,
    exec::{Noted, Stage, Upstream},
    expression::as_f64,
    geo::{Near, NearBy, geo_field, near_point},
    matcher::Matcher,
    source::Source,
    value::{Value, path::Path},
};

/// Documents sorted by distance, nearest first.
#[derive(Debug)]
pub(crate) struct NearSort {
    by: NearBy,
    shown: Shown,
    sorted: Option<std::vec::IntoIter<Noted>>,
}

/// What `$geoNear` adds to the documents.
#[derive(Debug, Clone, Default)]
struct Shown {
    distance: Option<Vec<Box<[u8]>>>,
    place: Option<Vec<Box<[u8]>>>,
    multiplier: Option<f64>,
}

impl NearSort {
    pub(crate) fn new(by: NearBy) -> Self {
        Self { by, shown: Shown::default(), sorted: None }
    }
}

impl Stage for NearSort {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        if self.sorted.is_none() {
            let mut found: Vec<(f64, Noted)> = Vec::new();
            while let Some(doc) = up.pull()? {
                let Some((distance, place)) = self.by.measure(doc.as_bytes()) else { continue };
                let mut bytes = None;
                if let Some(path) = &self.shown.distance {
                    let shown = Value::Double(distance * self.shown.multiplier.unwrap_or(1.0));
                    bytes = Some(unwind::with(doc.as_bytes(), path, shown));
                }
                if let Some(path) = &self.shown.place {
                    let base = bytes.as_deref().unwrap_or(doc.as_bytes());
                    bytes = Some(unwind::with(base, path, place));
                }
                let doc = match bytes {
                    Some(bytes) => doc.with(to_doc(bytes)?),
                    None => doc,
                };
                found.push((distance, doc));
            }
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            let docs: Vec<_> = found.into_iter().map(|(_, doc)| doc).collect();
            self.sorted = Some(docs.into_iter());
        }
        Ok(self.sorted.as_mut().and_then(Iterator::next))
    }
}

/// The stage before the collection and its indexes are known.
#[derive(Debug)]
pub struct GeoNear {
    near: Near,
    key: Option<Box<[u8]>>,
    pub(super) filter: Matcher,
    shown: Shown,
}

impl GeoNear {
    /// The stage for a collection, whose geo index may determine the field.
    pub(super) fn over(self: Box<Self>, source: &dyn Source) -> Result<NearSort, QueryError> {
        let not_found = |text: &str| QueryError::new(ErrorCode::IndexNotFound, text);
        let field = match &self.key {
            Some(key) => key.to_vec(),
            None => {
                let mut fields = source.indexes().iter().filter_map(geo_field);
                let first = fields.next().ok_or_else(|| {
                    not_found("$geoNear requires a 2d or 2dsphere index, but none were found")
                })?;
                if let Some((other, kind)) = fields.find(|(other, _)| *other != first.0) {
                    return Err(not_found(&format!(
                        "There is more than one {kind} index on {}; unsure which to use for \
                         $geoNear: {}, {other}",
                        source.namespace(),
                        first.0
                    )));
                }
                first.0.into_bytes()
            }
        };
        let by = NearBy { path: Path::new(&field), near: self.near, written: Value::Null.into() };
        by.check_index(source)?;
        Ok(NearSort { by, shown: self.shown, sorted: None })
    }
}

static SPEC: Spec = Spec::new(
    "$geoNear",
    &[
        field("near", Takes::Any),
        field("distanceField", Takes::String)
            .otherwise(16_606, "{stage} requires that the '{field}' option is a String"),
        field("includeLocs", Takes::String)
            .otherwise(16_607, "{stage} requires that '{field}' option is a String"),
        field("key", Takes::String).otherwise(
            14,
            "{stage} parameter '{field}' must be of type string but found type: {type}",
        ),
        field("spherical", Takes::Any),
        field("minDistance", Takes::Any),
        field("maxDistance", Takes::Any),
        field("distanceMultiplier", Takes::Any),
        field("query", Takes::Object).otherwise(14, "{field} must be an object"),
        field("num", Takes::Any),
        field("limit", Takes::Any),
        field("start", Takes::Any),
        field("uniqueDocs", Takes::Any),
    ],
)
.not_object(10_065, "invalid parameter: expected an object ({stage})")
.unknown(2, "Unknown argument to {stage}: {field}");

fn no_longer(code: i32, name: &str) -> QueryError {
    QueryError::location(
        code,
        format!("$geoNear no longer supports the '{name}' parameter. Use a $limit stage instead."),
    )
}

/// Parses `$geoNear`.
pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let split = |text: &[u8]| text.split(|b| *b == b'.').map(Box::from).collect::<Vec<Box<[u8]>>>();
    let (mut place, mut key, mut spherical) = (None, None, false);
    let (mut min, mut max) = (None, None);
    let mut shown = Shown::default();
    let mut filter: Option<&RawDocument> = None;
    SPEC.each(value, |name, value| {
        match (name, value) {
            ("near", _) => place = Some(value),
            ("distanceField", Value::String(text)) => shown.distance = Some(split(text)),
            ("includeLocs", Value::String(text)) => shown.place = Some(split(text)),
            ("key", Value::String(text)) => key = Some(Box::from(text)),
            ("spherical", _) => spherical = crate::matcher::operands::is_true(value),
            ("minDistance", _) => min = Some(distance("min", value)?),
            ("maxDistance", _) => max = Some(distance("max", value)?),
            ("distanceMultiplier", _) => {
                let n = if value.is_number() { as_f64(value) } else { -1.0 };
                if n < 0.0 {
                    return Err(QueryError::bad_value("distanceMultiplier must be nonnegative"));
                }
                shown.multiplier = Some(n);
            }
            ("query", Value::Document(query)) => filter = Some(raw(query)?),
            ("num", _) => return Err(no_longer(50_857, name)),
            ("limit", _) => return Err(no_longer(50_858, name)),
            _ => {}
        }
        Ok(())
    })?;
    let Some(place) = place else {
        return Err(QueryError::location(5_860_400, "$geoNear requires a 'near' argument"));
    };
    // The first of the given distances, in the order in which mongod places them after the point.
    let limits = [("$minDistance", min), ("$maxDistance", max)];
    let first = limits.into_iter().find_map(|(name, limit)| Some((name, limit?)));
    let (from, geo_json) = near_point(place, first)?;
    let near = Near {
        from,
        spherical: spherical || geo_json,
        geo_json,
        min: min.unwrap_or(0.0),
        max: max.unwrap_or(f64::MAX),
        is_sphere_operator: spherical,
    };
    let empty = bson::RawDocumentBuf::new();
    let filter = Matcher::parse_within(filter.unwrap_or(&empty), &cx.parse, &cx.scope)?;
    if filter.near().is_some() {
        return Err(not_here());
    }
    Ok(Parsed::GeoNear(Box::new(GeoNear { near, key, filter, shown })))
}

/// The error for `$near` in a place where documents cannot be sorted by distance.
pub(super) fn not_here() -> QueryError {
    QueryError::location(
        5_626_500,
        "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators \
         require sorting geospatial data. If you do not need sort, consider using $geoWithin \
         instead. Check out https://dochub.mongodb.org/core/near-sort-operation and \
         https://dochub.mongodb.org/core/nearSphere-sort-operationfor more details.",
    )
}

fn distance(which: &str, value: Value<'_>) -> Result<f64, QueryError> {
    if !value.is_number() {
        return Err(QueryError::type_mismatch(format!(
            "$geoNear requires ${which}Distance to evaluate to a number"
        )));
    }
    let n = as_f64(value);
    if n < 0.0 {
        return Err(QueryError::bad_value(format!("{which}Distance must be nonnegative")));
    }
    Ok(n)
}

//! `$geoNear`, and the order of distance that `$near` asks for.
//!
//! mongod walks a geo index from the nearest cell outwards. Here all places are measured and sorted; the
//! index must be there all the same, since it says how places are meant.

use bson::RawDocument;
use protocol::{ErrorCode, RawDoc};

use super::{Parsed, StageContext, raw, to_doc, unwind};
use crate::{
    error::QueryError,
    exec::{Stage, Upstream},
    expression::as_f64,
    geo::{Near, NearBy, geo_field, near_point},
    matcher::Matcher,
    source::Source,
    value::{Elements, Value, path::Path},
};

/// Documents by distance, the nearest first.
#[derive(Debug)]
pub(crate) struct NearSort {
    by: NearBy,
    shown: Shown,
    sorted: Option<std::vec::IntoIter<RawDoc>>,
}

/// What `$geoNear` writes into the documents.
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
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<RawDoc>, QueryError> {
        if self.sorted.is_none() {
            let mut found: Vec<(f64, RawDoc)> = Vec::new();
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
                    Some(bytes) => to_doc(bytes)?,
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

/// The stage, before the collection and its indexes are known.
#[derive(Debug)]
pub struct GeoNear {
    near: Near,
    key: Option<Box<[u8]>>,
    pub(super) filter: Matcher,
    shown: Shown,
}

impl GeoNear {
    /// The stage over a collection, whose index may name the field.
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

/// Parses `$geoNear`.
pub(super) fn parse(value: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
    let Value::Document(doc) = value else {
        return Err(QueryError::location(
            10_065,
            "invalid parameter: expected an object ($geoNear)",
        ));
    };
    let fault = |code, text: String| Err(QueryError::location(code, text));
    let split = |text: &[u8]| text.split(|b| *b == b'.').map(Box::from).collect::<Vec<Box<[u8]>>>();
    let (mut place, mut key, mut spherical) = (None, None, false);
    let (mut min, mut max) = (0.0, f64::MAX);
    let mut shown = Shown::default();
    let mut filter: Option<&RawDocument> = None;
    for field in Elements::of_bytes(doc) {
        let value = field.value();
        match (field.key, value) {
            (b"near", _) => place = Some(value),
            (b"distanceField", Value::String(text)) => shown.distance = Some(split(text)),
            (b"distanceField", _) => {
                return fault(
                    16_606,
                    "$geoNear requires that the 'distanceField' option is a String".into(),
                );
            }
            (b"includeLocs", Value::String(text)) => shown.place = Some(split(text)),
            (b"includeLocs", _) => {
                return fault(
                    16_607,
                    "$geoNear requires that 'includeLocs' option is a String".into(),
                );
            }
            (b"key", Value::String(text)) => key = Some(Box::from(text)),
            (b"key", other) => {
                return Err(QueryError::type_mismatch(format!(
                    "$geoNear parameter 'key' must be of type string but found type: {}",
                    other.type_name()
                )));
            }
            (b"spherical", _) => spherical = crate::matcher::operands::is_true(value),
            (b"minDistance", _) => min = distance("min", value)?,
            (b"maxDistance", _) => max = distance("max", value)?,
            (b"distanceMultiplier", _) => {
                let n = if value.is_number() { as_f64(value) } else { -1.0 };
                if n < 0.0 {
                    return Err(QueryError::bad_value("distanceMultiplier must be nonnegative"));
                }
                shown.multiplier = Some(n);
            }
            (b"query", Value::Document(query)) => filter = Some(raw(query)?),
            (b"query", _) => return Err(QueryError::type_mismatch("query must be an object")),
            (b"limit" | b"num", _) => {
                let name = String::from_utf8_lossy(field.key);
                return fault(
                    if field.key == b"num" { 50_857 } else { 50_858 },
                    format!(
                        "$geoNear no longer supports the '{name}' parameter. Use a $limit stage \
                         instead."
                    ),
                );
            }
            (b"start" | b"uniqueDocs", _) => {}
            (other, _) => {
                let other = String::from_utf8_lossy(other);
                return Err(QueryError::bad_value(format!(
                    "Unknown argument to $geoNear: {other}"
                )));
            }
        }
    }
    let Some(place) = place else {
        return fault(5_860_400, "$geoNear requires a 'near' argument".into());
    };
    let (from, geo_json) = near_point(place, first_limit(doc, min, max))?;
    let near = Near {
        from,
        spherical: spherical || geo_json,
        geo_json,
        min,
        max,
        is_sphere_operator: spherical,
    };
    let empty = bson::RawDocumentBuf::new();
    let filter = Matcher::parse_within(filter.unwrap_or(&empty), &cx.parse, &cx.scope)?;
    if filter.near().is_some() {
        return Err(not_here());
    }
    Ok(Parsed::GeoNear(Box::new(GeoNear { near, key, filter, shown })))
}

/// The first of the distances that are given, as mongod lines them up beside the point.
fn first_limit(doc: &[u8], min: f64, max: f64) -> Option<(&'static str, f64)> {
    let given = |name: &[u8]| Elements::of_bytes(doc).find(name).is_some();
    if given(b"minDistance") {
        return Some(("$minDistance", min));
    }
    given(b"maxDistance").then_some(("$maxDistance", max))
}

/// A stage has no order of distance to offer.
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

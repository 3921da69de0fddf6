//! Plans for the distinct values of a field: skips from value to value in an index.

use super::{Candidate, Interval, Request, candidates::whole_of};
use crate::{
    exec::{Access, IndexScan},
    source::{IndexInfo, IndexKind},
};

/// The plan for the values of all documents: the shortest index that begins with the field.
///
/// As in mongod, a sparse index may be used, and so may a multikey index if each array element counts as a value.
pub(super) fn of_all(request: &Request, indexes: &[IndexInfo]) -> Option<Candidate> {
    let values = request.distinct.as_ref()?;
    if !values.of_all || request.natural.is_some() {
        return None;
    }
    let fits = |(at, index): &(usize, &IndexInfo)| {
        let wanted = request.hint.map_or(!index.hidden, |hint| hint == *at);
        let first = index.fields.first().is_some_and(|field| {
            field.path.dotted() == values.path && (field.multikey.is_empty() || !values.once)
        });
        let all = index.kind == IndexKind::Ordered && index.partial.is_none();
        let apart = index.collation == values.collation;
        wanted && first && all && apart && request.allows(*at)
    };
    let found = indexes.iter().enumerate().filter(fits);
    let (at, index) = found.min_by_key(|(_, index)| index.fields.len())?;
    let plan = whole_of(at, index, request);
    let covers = index.collation.is_none() && held_by_keys(&values.path);
    Some(Candidate { covers, ..from_value_to_value(plan, 0)? })
}

/// True if index keys hold the values at a path. A numeric component may be an array index or a field name, which
/// only documents can tell.
pub fn held_by_keys(path: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    !path.split(|byte| *byte == b'.').any(is_number)
}

/// The same plan skipping from value to value, if it uses a single index that holds the field and needs no further
/// filter.
pub(super) fn turned(candidate: Candidate, request: &Request, indexes: &[IndexInfo]) -> Candidate {
    match place(&candidate, request, indexes) {
        Some(place) => from_value_to_value(candidate.clone(), place).unwrap_or(candidate),
        None => candidate,
    }
}

fn place(candidate: &Candidate, request: &Request, indexes: &[IndexInfo]) -> Option<usize> {
    let values = request.distinct.as_ref()?;
    let Access::Indexes(scans) = &candidate.access else { return None };
    let [IndexScan { index, key_filter: None, rest: None, bounds, .. }] = scans.as_slice() else {
        return None;
    };
    let index = indexes.get(*index)?;
    let place = index.fields.iter().position(|field| field.path.dotted() == values.path)?;
    // The elements of an array within the bounds do not show the whole array.
    let plain = index.fields.get(place).is_some_and(|field| field.multikey.is_empty());
    let named = bounds.iter().any(|b| !matches!(b.as_slice(), [all] if all.is_all()));
    let told = candidate.covers || index.collation.is_some() && index.collation == values.collation;
    // After a field with several values, each value of the next field may occur several times.
    let fixed = |b: &Vec<Interval>| matches!(b.as_slice(), [one] if one.as_point().is_some());
    let once = !values.once || bounds.iter().take(place).all(fixed);
    let all = candidate.rest.is_none() && index.kind == IndexKind::Ordered;
    (all && plain && named && told && once).then_some(place)
}

fn from_value_to_value(candidate: Candidate, place: usize) -> Option<Candidate> {
    let Access::Indexes(mut scans) = candidate.access else { return None };
    scans.iter_mut().for_each(|scan| scan.distinct = Some(place + 1));
    Some(Candidate { access: Access::Indexes(scans), ..candidate })
}

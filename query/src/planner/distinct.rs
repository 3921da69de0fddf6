//! Plans for the values of a field, each once: from key to key of an index, however many documents share one.

use super::{Candidate, Interval, Request, candidates::whole_of};
use crate::{
    exec::{Access, IndexScan},
    source::{IndexInfo, IndexKind},
};

/// The plan for the values of all documents: an index that begins with the field, the shortest of them.
///
/// As in mongod an index that leaves documents without the field out will do, and one with arrays where each element is a
/// value.
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

/// Whether keys hold what is at a path. A number may be a place in an array, or a name: documents tell.
pub fn held_by_keys(path: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    !path.split(|byte| *byte == b'.').any(is_number)
}

/// The same plan from value to value, if it goes by one index that holds the field and leaves nothing to be checked.
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
    // An array is not shown by those of its elements that are within bounds.
    let plain = index.fields.get(place).is_some_and(|field| field.multikey.is_empty());
    let named = bounds.iter().any(|b| !matches!(b.as_slice(), [all] if all.is_all()));
    let told = candidate.covers || index.collation.is_some() && index.collation == values.collation;
    // Behind a field of several values, each may come again.
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

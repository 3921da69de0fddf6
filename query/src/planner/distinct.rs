//! Plans for the values of a field, each once: from key to key of an index, however many documents share one.

use super::{Candidate, Request, candidates::whole_of};
use crate::{
    exec::{Access, IndexScan},
    source::{IndexInfo, IndexKind},
};

/// The plan for the values of all documents: an index that begins with the field, the shortest of them.
///
/// As in mongod an index that leaves documents without the field out will do, and one with arrays: each element is a value.
pub(super) fn of_all(request: &Request, indexes: &[IndexInfo]) -> Option<Candidate> {
    let key = request.distinct.as_ref()?;
    if !request.filter.is_trivial() || request.natural.is_some() {
        return None;
    }
    let fits = |(at, index): &(usize, &IndexInfo)| {
        let wanted = match request.hint {
            Some(hint) => hint == *at,
            None => !index.hidden,
        };
        let first = index.fields.first().is_some_and(|field| field.path.dotted() == key);
        let all = index.kind == IndexKind::Ordered && index.partial.is_none();
        wanted && first && all && request.allows(*at)
    };
    let same = |index: &IndexInfo| index.collation.as_ref() == request.collation.as_ref();
    let (at, index) = indexes
        .iter()
        .enumerate()
        .filter(fits)
        .filter(|(_, index)| same(index))
        .min_by_key(|(_, index)| index.fields.len())?;
    let plan = whole_of(at, index, request);
    Some(Candidate { covers: index.collation.is_none(), ..over_first(plan, 0)? })
}

/// The same plan from value to value, if it goes by one index that holds the field and leaves nothing to be checked.
pub(super) fn turned(candidate: Candidate, request: &Request, indexes: &[IndexInfo]) -> Candidate {
    let place = || {
        let key = request.distinct.as_ref()?;
        let Access::Indexes(scans) = &candidate.access else { return None };
        let [IndexScan { index, key_filter: None, rest: None, bounds, .. }] = scans.as_slice()
        else {
            return None;
        };
        let index = indexes.get(*index)?;
        let field = |field: &crate::source::IndexField| field.path.dotted() == key;
        let place = index.fields.iter().position(field)?;
        // An array is not shown by those of its elements that are within bounds.
        let plain = index.fields.get(place).is_some_and(|field| field.multikey.is_empty());
        let named = bounds.iter().any(|b| !matches!(b.as_slice(), [all] if all.is_all()));
        let same = index.collation.as_ref() == request.collation.as_ref();
        let told = candidate.covers || same && index.collation.is_some();
        (candidate.rest.is_none() && plain && named && told && index.kind == IndexKind::Ordered)
            .then_some(place)
    };
    match place() {
        Some(place) => over_first(candidate.clone(), place).unwrap_or(candidate),
        None => candidate,
    }
}

fn over_first(candidate: Candidate, place: usize) -> Option<Candidate> {
    let Access::Indexes(mut scans) = candidate.access else { return None };
    scans.iter_mut().for_each(|scan| scan.distinct = Some(place + 1));
    Some(Candidate { access: Access::Indexes(scans), ..candidate })
}

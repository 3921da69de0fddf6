//! planCacheClear and planCacheListFilters: plans are chosen anew for every query, so there is nothing to clear, and
//! nobody can set a filter.

use bson::rawdoc;

use super::{Auth, Command, On, Run, target::Target};
use crate::{
    auth::action::action,
    context::{Call, Outcome, Reply},
};

pub(super) const CLEAR: Command = Command {
    name: "planCacheClear",
    help: "Forgets cached plans.",
    auth: Auth::Collection(action("planCacheWrite")),
    on: On::Readable,
    run: Run::Now(clear),
    ..Command::DEFAULT
};

pub(super) const LIST_FILTERS: Command = Command {
    name: "planCacheListFilters",
    help: "Lists index filters.",
    auth: Auth::Collection(action("planCacheIndexFilter")),
    on: On::Readable,
    run: Run::Now(list),
    ..Command::DEFAULT
};

fn clear(call: &Call) -> Outcome {
    Target::parse(call)?;
    Ok(Reply::empty())
}

fn list(call: &Call) -> Outcome {
    Target::parse(call)?;
    Ok(rawdoc! { "filters": [] }.into())
}

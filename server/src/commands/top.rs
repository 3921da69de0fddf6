//! top: time spent on each collection.

use bson::{RawDocumentBuf, raw::CString, raw::cstr, rawdoc};

use super::{Auth, Command, OpClass, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    operations::Usage,
};

pub(super) const COMMAND: Command = Command {
    name: "top",
    help: "Returns the time that operations on each collection took.",
    auth: Auth::Cluster(action("top")),
    admin_only: true,
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let mut totals = rawdoc! { "note": "all times in microseconds" };
    for (ns, usage) in call.node().operations.top() {
        // A name with a zero byte is invalid, so nothing can have been read from it.
        if let Ok(ns) = CString::try_from(ns) {
            totals.append(ns, shown(&usage));
        }
    }
    Ok(rawdoc! { "totals": totals }.into())
}

fn shown(usage: &Usage) -> RawDocumentBuf {
    let of = |classes: &[OpClass]| {
        let (mut time, mut count) = (0, 0);
        for class in classes {
            let (micros, n) = usage.by_class.get(class.index()).copied().unwrap_or_default();
            time += micros;
            count += n;
        }
        rawdoc! { "time": time, "count": count }
    };
    use OpClass::{Command, Delete, GetMore, Insert, Query, Update};
    let mut doc = RawDocumentBuf::new();
    doc.append(cstr!("total"), of(&[Query, GetMore, Insert, Update, Delete, Command]));
    doc.append(cstr!("readLock"), of(&[Query, GetMore, Command]));
    doc.append(cstr!("writeLock"), of(&[Insert, Update, Delete]));
    doc.append(cstr!("queries"), of(&[Query]));
    doc.append(cstr!("getmore"), of(&[GetMore]));
    doc.append(cstr!("insert"), of(&[Insert]));
    doc.append(cstr!("update"), of(&[Update]));
    doc.append(cstr!("remove"), of(&[Delete]));
    doc.append(cstr!("commands"), of(&[Command]));
    doc
}

//! dbStats: the size of a database.

use bson::{RawBson, RawDocumentBuf, raw::CStr, raw::cstr, rawdoc};

use super::{Auth, Command, On, Run, coll_stats::scale, sizes};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    read::{blocking, moment::ReadTime, views},
};

pub(super) const COMMAND: Command = Command {
    name: "dbStats",
    aliases: &["dbstats"],
    help: "Returns the size of a database.",
    auth: Auth::Database(action("dbStats")),
    on: On::Serving,
    takes_concerns: true,
    newest_only: true,
    run: Run::Waiting(|call| blocking::reading(call, run)),
    ..Command::DEFAULT
};

#[derive(Default)]
struct Totals {
    collections: u64,
    views: u64,
    objects: u64,
    data: u64,
    indexes: u64,
    index: u64,
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let scale = scale(call)?;
    let store = call.node().store()?;
    let view = store.view(time.at)?;
    let mut totals =
        Totals { views: views::all(&view, &call.db)?.len() as u64, ..Totals::default() };
    for collection in view.catalog().list(&call.db) {
        totals.collections += 1;
        totals.objects += view.count(&collection)?;
        totals.data += view.data_size(&collection)?;
        totals.indexes += u64::from(collection.id_index().is_some());
        for index in collection.indexes() {
            totals.indexes += 1;
            totals.index += view.index_size(&collection, index)?;
        }
    }
    if call.db == "local" {
        totals.collections += 1;
        let (bytes, entries) = store.oplog().applied_extent()?;
        totals.objects += entries;
        totals.data += bytes;
    }
    let mut body = reply(call, &totals, scale);
    if let Ok(disk) = rustix::fs::statvfs(store.dbpath()) {
        let scaled = |blocks: u64| {
            let bytes = blocks.saturating_mul(disk.f_frsize);
            sizes::double(sizes::long(bytes)) / sizes::double(sizes::long(scale))
        };
        body.append(cstr!("fsUsedSize"), scaled(disk.f_blocks.saturating_sub(disk.f_bfree)));
        body.append(cstr!("fsTotalSize"), scaled(disk.f_blocks));
    }
    Ok(body.into())
}

fn reply(call: &Call, totals: &Totals, scale: u64) -> RawDocumentBuf {
    let whole = |n: u64| match call.profile().statistics_are_longs {
        true => RawBson::Int64(sizes::long(n)),
        false => sizes::number(n),
    };
    let double = |n: u64| sizes::double(sizes::long(n));
    let scaled = |n: u64| double(n) / double(scale);
    let average =
        if totals.objects > 0 { double(totals.data) / double(totals.objects) } else { 0.0 };
    let mut body = rawdoc! { "db": call.db.as_str() };
    let mut put = |name: &'static CStr, value: RawBson| body.append(name, value);
    put(cstr!("collections"), whole(totals.collections));
    put(cstr!("views"), whole(totals.views));
    put(cstr!("objects"), whole(totals.objects));
    put(cstr!("avgObjSize"), average.into());
    put(cstr!("dataSize"), scaled(totals.data).into());
    // Our engine's files have no free space; 5.0 shows it by default.
    let tells_of_free = call.profile().free_storage_unasked;
    put(cstr!("storageSize"), scaled(totals.data).into());
    if tells_of_free {
        put(cstr!("freeStorageSize"), 0.0.into());
    }
    put(cstr!("indexes"), whole(totals.indexes));
    put(cstr!("indexSize"), scaled(totals.index).into());
    if tells_of_free {
        put(cstr!("indexFreeStorageSize"), 0.0.into());
    }
    put(cstr!("totalSize"), scaled(totals.data + totals.index).into());
    if tells_of_free {
        put(cstr!("totalFreeStorageSize"), 0.0.into());
    }
    let factor = match call.profile().statistics_are_longs {
        true => RawBson::Int64(sizes::long(scale)),
        false => double(scale).into(),
    };
    put(cstr!("scaleFactor"), factor);
    body
}

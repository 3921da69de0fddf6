//! dbHash: one hash per collection, and one of them all, exactly as mongod computes them.
//!
//! A collection's hash is the MD5 of its documents' bytes in `_id` order; for clustered collections, and since 8.2
//! for capped ones, in natural order. The database's hash is the MD5 of the collections' hashes as text, in the order
//! of their names.

use std::{fmt::Write, ops::Bound, time::Instant};

use bson::{Binary, RawArrayBuf, RawDocumentBuf, raw::CString, rawdoc, spec::BinarySubtype};
use md5::{Digest, Md5};
use protocol::{ErrorCode, Fields};
use storage::{Collection, Direction, View};

use super::{Auth, Command, On, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
    read::{blocking, moment::ReadTime, surroundings},
};

pub(super) const COMMAND: Command = Command {
    name: "dbHash",
    aliases: &["dbhash"],
    help: "Returns a hash of each collection and one of the database.",
    auth: Auth::Database(action("dbHash")),
    on: On::Serving,
    takes_concerns: true,
    newest_only: true,
    run: Run::Waiting(|call| blocking::reading(call, run)),
    ..Command::DEFAULT
};

fn run(call: &Call, time: ReadTime) -> Outcome {
    let started = Instant::now();
    let fields = Fields::idl("dbHash", &call.body);
    let mut wanted: Vec<String> = Vec::new();
    if let Some(names) = fields.optional("collections")? {
        wanted = names
            .array()?
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
    }
    let skip_temp =
        fields.optional("skipTempCollections")?.map_or(Ok(false), |flag| flag.safe_bool())?;
    let view = call.node().store()?.view(time.at)?;
    let mut collections: Vec<_> = view
        .catalog()
        .list(&call.db)
        .filter(|collection| is_hashed(collection.ns().coll()))
        .filter(|collection| {
            wanted.is_empty() || wanted.iter().any(|name| name == collection.ns().coll())
        })
        .filter(|collection| {
            !skip_temp || !matches!(collection.options().get_bool("temp"), Ok(true))
        })
        .collect();
    if call.db == "local" {
        collections.clear();
    }
    collections.sort_by(|a, b| a.ns().coll().as_bytes().cmp(b.ns().coll().as_bytes()));
    let mut hashes = RawDocumentBuf::new();
    let mut uuids = RawDocumentBuf::new();
    let mut capped = RawArrayBuf::new();
    let mut all = Md5::new();
    for collection in &collections {
        let hash = hash(call, &view, collection)?;
        all.update(hash.as_bytes());
        let name = c_string(collection.ns().coll())?;
        let bytes = collection.uuid().as_bytes().to_vec();
        hashes.append(name.clone(), hash);
        uuids.append(name, Binary { subtype: BinarySubtype::Uuid, bytes });
        if collection.capped().is_some() {
            capped.push(collection.ns().coll());
        }
    }
    let millis = i32::try_from(started.elapsed().as_millis()).unwrap_or(i32::MAX);
    Ok(rawdoc! {
        "host": call.node().host.as_str(),
        "collections": hashes,
        "capped": capped,
        "uuids": uuids,
        "md5": hex(all),
        "timeMillis": millis,
    }
    .into())
}

/// False for collections that differ between members.
fn is_hashed(name: &str) -> bool {
    name != "system.profile" && !name.starts_with("tmp.mr.") && !name.starts_with("system.drop.")
}

fn hash(call: &Call, view: &View, collection: &Collection) -> Result<String, Failure> {
    let mut md5 = Md5::new();
    let capped = collection.capped().is_some();
    let has_ids = collection.id_index().is_some();
    let natural =
        collection.is_clustered() || capped && (call.profile().db_hash_by_capped_order || !has_ids);
    if !natural && !has_ids {
        return Ok("no _id _index".to_owned());
    }
    // Documents are stored in `_id` order unless they are capped or have a collation.
    if natural || !capped && collection.collator().is_none() {
        for (at, item) in view.scan(collection, Bound::Unbounded, Direction::Forward).enumerate() {
            if at % 1024 == 1023 {
                surroundings::check(call)?;
            }
            md5.update(item?.1.as_bytes());
        }
        return Ok(hex(md5));
    }
    let all = (Bound::Unbounded, Bound::Unbounded);
    for (at, entry) in view.id_scan(collection, all, Direction::Forward).enumerate() {
        if at % 1024 == 1023 {
            surroundings::check(call)?;
        }
        let entry = entry?;
        let doc = view.fetch(collection, &entry.record)?.ok_or_else(|| {
            let text = format!("the _id index of {} points to nothing", collection.ns());
            Failure::said(ErrorCode::DataCorruptionDetected, text)
        })?;
        md5.update(doc.as_bytes());
    }
    Ok(hex(md5))
}

fn hex(md5: Md5) -> String {
    md5.finalize().iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn c_string(name: &str) -> Result<CString, Failure> {
    CString::try_from(name)
        .map_err(|error| Failure::said(ErrorCode::InternalError, error.to_string()))
}

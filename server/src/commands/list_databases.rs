//! listDatabases: the databases and their sizes.

use bson::{RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields};
use query::matcher::{Matcher, ParseContext};
use storage::View;

use super::{Api, Auth, Command, On, Run, sizes};
use crate::{
    auth::{action::action, privilege::Target},
    context::{Call, Outcome},
    error::Failure,
    read::{blocking, moment::ReadTime},
};

pub(super) const COMMAND: Command = Command {
    name: "listDatabases",
    help: "Lists the databases and their sizes.",
    auth: Auth::User,
    on: On::Readable,
    admin_only: true,
    api: Api::V1,
    takes_concerns: true,
    newest_only: true,
    run: Run::Waiting(|call| blocking::reading(call, run)),
    ..Command::DEFAULT
};

fn run(call: &Call, time: ReadTime) -> Outcome {
    let fields = Fields::idl("listDatabases", &call.body);
    let name_only = fields.optional("nameOnly")?.map_or(Ok(false), |flag| flag.safe_bool())?;
    let filter = fields.optional("filter")?.map(|filter| filter.document()).transpose()?;
    let filter = filter.map(|doc| Matcher::parse(doc, &ParseContext::default())).transpose()?;
    let view = call.node().store()?.view(time.at)?;
    let mut names = view.catalog().databases();
    names.push("local".to_owned());
    names.sort_unstable();
    names.dedup();
    if authorized_alone(call, &fields)? {
        names.retain(|name| call.who.may_touch_within(name));
    }
    let mut listed = RawArrayBuf::new();
    let mut total = 0;
    for name in names {
        let size = if name_only { 0 } else { size_of(call, &view, &name)? };
        let mut doc = rawdoc! { "name": name.as_str() };
        if !name_only {
            append_size(&mut doc, call, size);
            doc.append(cstr!("empty"), false);
        }
        if filter.as_ref().is_none_or(|filter| filter.matches(&doc)) {
            total += size;
            listed.push(doc);
        }
    }
    let mut body = rawdoc! { "databases": listed };
    if !name_only && call.profile().database_sizes_are_longs {
        body.append(cstr!("totalSize"), total);
        body.append(cstr!("totalSizeMb"), total / (1024 * 1024));
    } else if !name_only {
        body.append(cstr!("totalSize"), sizes::double(total));
    }
    Ok(body.into())
}

/// Whether databases that the client may not access are left out.
fn authorized_alone(call: &Call, fields: &Fields<'_>) -> Result<bool, Failure> {
    let asked = fields.optional("authorizedDatabases")?.map(|flag| flag.safe_bool()).transpose()?;
    let may_see_all = call.who.may(Target::Cluster, action("listDatabases"));
    if asked == Some(false) && !may_see_all {
        let text = "Insufficient permissions to list all databases";
        return Err(Failure::said(ErrorCode::Unauthorized, text));
    }
    Ok(asked.unwrap_or(!may_see_all))
}

fn append_size(doc: &mut RawDocumentBuf, call: &Call, size: i64) {
    // 4.4 shows doubles here.
    if call.profile().database_sizes_are_longs {
        doc.append(cstr!("sizeOnDisk"), size);
    } else {
        doc.append(cstr!("sizeOnDisk"), sizes::double(size));
    }
}

fn size_of(call: &Call, view: &View, db: &str) -> Result<i64, Failure> {
    if db == "local" {
        return Ok(sizes::long(call.node().store()?.oplog().applied_extent()?.0));
    }
    let mut total = 0;
    for collection in view.catalog().list(db) {
        total += view.data_size(&collection)?;
        for index in collection.indexes() {
            total += view.index_size(&collection, index)?;
        }
    }
    Ok(sizes::long(total))
}

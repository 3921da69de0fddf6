//! listCollections: the collections and views of a database.

use bson::{Binary, RawDocumentBuf, raw::cstr, rawdoc, spec::BinarySubtype};
use protocol::{Fields, Namespace, Profile, RawDoc};
use query::matcher::{Matcher, ParseContext};
use storage::{Collection, Store, View};

use super::{Api, Auth, Command, On, Run};
use crate::{
    auth::{privilege::Target, requirement},
    context::{Call, Outcome},
    error::Failure,
    local,
    read::{blocking, list_cursor, moment::ReadTime, views},
};

pub(super) const COMMAND: Command = Command {
    name: "listCollections",
    help: "Lists the collections and views of a database.",
    auth: Auth::Body(
        "`listCollections` on the database, or any privilege there for names alone",
        requirement::list_collections,
    ),
    on: On::Readable,
    api: Api::V1,
    takes_concerns: true,
    newest_only: true,
    run: Run::Waiting(|call| blocking::reading(call, run)),
    ..Command::DEFAULT
};

fn run(call: &Call, time: ReadTime) -> Outcome {
    let fields = Fields::idl("listCollections", &call.body);
    let filter = fields.optional("filter")?.map(|filter| filter.document()).transpose()?;
    let filter = filter.map(|doc| Matcher::parse(doc, &ParseContext::default())).transpose()?;
    let name_only = fields.optional("nameOnly")?.map_or(Ok(false), |flag| flag.safe_bool())?;
    let view = call.node().store()?.view(time.at)?;
    let mut listed = listed(call, &view, &call.db)?;
    let authorized = fields.optional("authorizedCollections")?;
    let authorized = authorized.map_or(Ok(false), |flag| flag.safe_bool())?;
    let visible = |doc: &RawDocumentBuf| {
        let coll = doc.get_str("name").unwrap_or_default();
        !authorized || call.who.may_touch(Target::Collection(&call.db, coll))
    };
    listed.retain(visible);
    let fits = |doc: &RawDocumentBuf| filter.as_ref().is_none_or(|filter| filter.matches(doc));
    let docs = listed.into_iter().filter(fits).map(|doc| shown(doc, name_only)).collect();
    list_cursor::reply(call, Namespace::new(&call.db, "$cmd.listCollections"), docs)
}

/// The collections and views of a database.
pub(super) fn listed(call: &Call, view: &View, db: &str) -> Result<Vec<RawDocumentBuf>, Failure> {
    let (store, profile) = (call.node().store()?, call.node().profile());
    let mut listed: Vec<RawDocumentBuf> =
        view.catalog().list(db).map(|collection| describe(&collection, profile)).collect();
    for entry in views::all(view, db)? {
        listed.push(entry.listed(view, db));
    }
    if db == "local" {
        listed.push(rawdoc! {
            "name": local::OPLOG,
            "type": "collection",
            "options": local::oplog_options(store),
            "info": local_info(store, local::OPLOG)?,
        });
        for name in local::NODE_COLLECTIONS {
            if !local::documents(store, name, profile)?.is_empty() {
                listed.push(plain(name, local_info(store, name)?));
            }
        }
    }
    Ok(listed)
}

fn describe(collection: &Collection, profile: &Profile) -> RawDocumentBuf {
    let bytes = collection.uuid().as_bytes().to_vec();
    let uuid = Binary { subtype: BinarySubtype::Uuid, bytes };
    let mut doc = rawdoc! { "name": collection.ns().coll(), "type": "collection" };
    doc.append(cstr!("options"), collection.options());
    let mut info = rawdoc! { "readOnly": false, "uuid": uuid };
    if collection.ns().db() == "config" && profile.config_debug_dump {
        info.append(cstr!("configDebugDump"), false);
    }
    doc.append(cstr!("info"), info);
    if let Some(spec) = collection.id_index().filter(|_| !collection.is_clustered()) {
        doc.append(cstr!("idIndex"), spec);
    }
    doc
}

fn local_info(store: &Store, name: &str) -> Result<RawDocumentBuf, Failure> {
    let mut info = rawdoc! { "readOnly": false };
    if let Some(uuid) = local::uuid(store, name)? {
        let bytes = uuid.as_bytes().to_vec();
        info.append(cstr!("uuid"), Binary { subtype: BinarySubtype::Uuid, bytes });
    }
    Ok(info)
}

/// A collection of node documents.
fn plain(name: &str, info: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! {
        "name": name,
        "type": "collection",
        "options": local::options(name),
        "info": info,
        "idIndex": { "v": 2, "key": { "_id": 1 }, "name": "_id_" },
    }
}

fn shown(doc: RawDocumentBuf, name_only: bool) -> RawDoc {
    if !name_only {
        return doc.into();
    }
    let text = |name| doc.get_str(name).unwrap_or_default();
    RawDoc::from(rawdoc! { "name": text("name"), "type": text("type") })
}

//! listIndexes: the indexes of a collection.

use bson::{Binary, rawdoc, spec::BinarySubtype};
use protocol::{ErrorCode, Fields, RawDoc};
use storage::{Collection, IndexState, ReadAt};

use super::{Api, Auth, Command, On, Run, list_cursor, target::Target, views};
use crate::{
    blocking,
    context::{Call, Outcome},
    error::Failure,
    local,
};

pub(super) const COMMAND: Command = Command {
    name: "listIndexes",
    help: "Lists the indexes of a collection.",
    auth: Auth::Read,
    on: On::Readable,
    api: Api::V1,
    takes_concerns: true,
    run: Run::Waiting(|call| blocking::command(call, run)),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("listIndexes", &call.body);
    let build_ids =
        fields.optional("includeBuildUUIDs")?.map_or(Ok(false), |flag| flag.safe_bool())?;
    let target = Target::parse(call)?;
    let view = call.node().store()?.view(ReadAt::Newest)?;
    let Some(collection) = target.collection(&view)? else {
        let ns = target.name()?;
        views::refuse(&view, ns)?;
        if target.is_oplog() {
            return list_cursor::reply(call, ns.clone(), Vec::new());
        }
        if ns.db() == "local" && local::NODE_COLLECTIONS.contains(&ns.coll()) {
            let id = RawDoc::from(rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
            return list_cursor::reply(call, ns.clone(), vec![id]);
        }
        let text = format!("ns does not exist: {ns}");
        return Err(Failure::said(ErrorCode::NamespaceNotFound, text));
    };
    list_cursor::reply(call, collection.ns().clone(), specs(&collection, build_ids))
}

fn specs(collection: &Collection, build_ids: bool) -> Vec<RawDoc> {
    let mut specs: Vec<RawDoc> = collection.id_index().map(RawDoc::from).into_iter().collect();
    for index in collection.indexes() {
        match index.state() {
            IndexState::Building { build_uuid } if build_ids => {
                let bytes = build_uuid.as_bytes().to_vec();
                let uuid = Binary { subtype: BinarySubtype::Uuid, bytes };
                let unfinished = rawdoc! { "spec": index.spec().to_owned(), "buildUUID": uuid };
                specs.push(unfinished.into());
            }
            _ => specs.push(RawDoc::from(index.spec())),
        }
    }
    specs
}

//! compact, autoCompact and reIndex: nothing to do, since the engine compacts continuously by itself.

use bson::{RawBsonRef, rawdoc};
use protocol::{ErrorCode, Fields, Release};
use storage::ReadAt;

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome, Reply},
    error::Failure,
    read::{target::Target, views},
};

pub(super) const COMPACT: Command = Command {
    name: "compact",
    help: "Does nothing: the engine merges its files by itself.",
    auth: Auth::Collection(action("compact")),
    run: Run::Now(compact),
    ..Command::DEFAULT
};

pub(super) const AUTO_COMPACT: Command = Command {
    name: "autoCompact",
    help: "Does nothing: the engine merges its files by itself.",
    auth: Auth::Cluster(action("compact")),
    admin_only: true,
    since: Release::V8_0,
    run: Run::Now(auto_compact),
    ..Command::DEFAULT
};

pub(super) const RE_INDEX: Command = Command {
    name: "reIndex",
    help: "Builds indexes anew: refused, as by every member of a set.",
    auth: Auth::Collection(action("reIndex")),
    run: Run::Now(re_index),
    ..Command::DEFAULT
};

fn compact(call: &Call) -> Outcome {
    let fields = Fields::idl("compact", &call.body);
    fields.only(&["compact", "force", "freeSpaceTargetMB", "dryRun"])?;
    let target = Target::parse(call)?;
    let dry = fields.optional("dryRun")?.map_or(Ok(false), |dry| dry.safe_bool())?;
    if let Some(size) = fields.optional("freeSpaceTargetMB")? {
        let size = size.safe_i64()?;
        if size < 1 {
            let text =
                format!("BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{size}'");
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
    }
    let view = call.node().store()?.view(ReadAt::Newest)?;
    if target.collection(&view)?.is_none() && target.name()?.db() != "local" {
        if views::exists(&view, target.name()?)? {
            let text = "can't compact a view";
            return Err(Failure::said(ErrorCode::CommandNotSupportedOnView, text));
        }
        let text = "collection does not exist";
        return Err(Failure::said(ErrorCode::NamespaceNotFound, text));
    }
    Ok(match dry {
        true => rawdoc! { "estimatedBytesFreed": 0 }.into(),
        false => rawdoc! { "bytesFreed": 0 }.into(),
    })
}

fn auto_compact(call: &Call) -> Outcome {
    match call.body.get(&call.name) {
        Ok(Some(RawBsonRef::Boolean(_))) => Ok(Reply::empty()),
        Ok(Some(other)) => Err(Failure::wrong_type("autoCompact.autoCompact", other, &["bool"])),
        _ => Err(Failure::missing("autoCompact.autoCompact")),
    }
}

fn re_index(call: &Call) -> Outcome {
    let target = Target::parse(call)?;
    let text = format!(
        "reIndex is only allowed on a standalone mongod instance. Cannot reIndex '{}' while \
         replication is active",
        target.name()?
    );
    Err(Failure::said(ErrorCode::IllegalOperation, text))
}

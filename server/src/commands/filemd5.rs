//! filemd5: the MD5 checksum of a GridFS file.

use bson::{RawBsonRef, rawdoc};
use md5::{Digest, Md5};
use protocol::{ErrorCode, Namespace, RawDoc, Timestamp};
use query::{
    QueryError,
    matcher::{Matcher, ParseContext},
    planner::Request,
    sort::SortPattern,
    source::Source,
};
use storage::View;

use super::{Auth, Command, On, Run, sizes};
use crate::{
    auth::{action::action, privilege::Target},
    context::{Call, Outcome},
    error::Failure,
    read::{blocking, moment::ReadTime, opened::Opened, surroundings, target},
};

pub(super) const COMMAND: Command = Command {
    name: "filemd5",
    help: "Returns the MD5 of a GridFS file, `root` being the bucket.",
    auth: Auth::Body("`find` on the chunks", |call| {
        let ns = chunks(call)?;
        call.require(Target::Collection(ns.db(), ns.coll()), action("find"))
    }),
    on: On::Serving,
    takes_concerns: true,
    run: Run::Waiting(|call| blocking::reading_documents(call, is_held, run)),
    ..Command::DEFAULT
};

fn chunks(call: &Call) -> Result<Namespace, Failure> {
    let root = match call.body.get("root") {
        Ok(Some(RawBsonRef::String(root))) if !root.is_empty() => root,
        Ok(Some(RawBsonRef::String(_)) | None) | Err(_) => "fs",
        Ok(Some(_)) => {
            let text = "'root' must be of type String";
            return Err(Failure::said(ErrorCode::InvalidNamespace, text));
        }
    };
    target::namespace(&call.db, &format!("{root}.chunks"))
}

fn is_held(call: &Call, view: &View, until: Timestamp) -> Result<bool, Failure> {
    target::Target::Name(chunks(call)?).is_held(view, until)
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let ns = chunks(call)?;
    if matches!(call.body.get_bool("partialOk"), Ok(true)) {
        // The intermediate state would have to be that of mongod's own MD5 library.
        let text = "filemd5 with partialOk is not supported";
        return Err(Failure::said(ErrorCode::CommandNotSupported, text));
    }
    let view = call.node().store()?.view(time.at)?;
    let (mut md5, mut n) = (Md5::new(), 0);
    if let Some(collection) = view.catalog().collection(&ns) {
        let opened = Opened::collection(view, collection)?;
        let context = surroundings::query_context(call);
        let planned = opened.plan(request(call, opened.source())?, &context)?;
        opened.each(call, planned, &context, |chunk| {
            md5.update(data(chunk, n)?);
            n += 1;
            Ok(())
        })?;
    }
    let sum: String = md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(rawdoc! { "numChunks": sizes::number(n), "md5": sum }.into())
}

/// The chunks of the file in order. mongod requires the index that drivers create for them.
fn request(call: &Call, source: &dyn Source) -> Result<Request, Failure> {
    let id = call.body.get(&call.name).ok().flatten().unwrap_or(RawBsonRef::Null);
    let mut filter = bson::RawDocumentBuf::new();
    filter.append(bson::raw::cstr!("files_id"), rawdoc! { "$eq": bson::RawBson::from(id) });
    filter.append(bson::raw::cstr!("n"), rawdoc! { "$gte": 0 });
    let mut request = Request::new(Matcher::parse(&filter, &ParseContext::default())?);
    let order = rawdoc! { "files_id": 1, "n": 1 };
    request.sort = Some(SortPattern::parse(&order, None)?);
    let indexed = source.indexes().iter().any(|index| {
        !index.hidden && index.fields.first().is_some_and(|f| f.path.dotted() == b"files_id")
    });
    if !indexed {
        return Err(Failure::Query(QueryError::location(
            291,
            format!(
                "error processing query: ns={} planner returned error :: caused by :: No indexed \
                 plans available, and running with 'notablescan' 2",
                source.namespace()
            ),
        )));
    }
    Ok(request)
}

fn data(chunk: &RawDoc, expected: u64) -> Result<Vec<u8>, Failure> {
    let running = |code, text: &str| {
        let text = format!("Executor error during filemd5 command :: caused by :: {text}");
        Failure::said(ErrorCode::from_code(code), text)
    };
    let n = match chunk.get("n") {
        Ok(Some(RawBsonRef::Int32(n))) => u64::try_from(n).ok(),
        Ok(Some(RawBsonRef::Int64(n))) => u64::try_from(n).ok(),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        Ok(Some(RawBsonRef::Double(n))) => Some(n as u64),
        _ => None,
    };
    if n != Some(expected) {
        return Err(running(10_040, "chunks out of order"));
    }
    let clean = "The element that calls binDataClean() must be type of BinData, but type of";
    match chunk.get("data") {
        Ok(Some(RawBsonRef::Binary(data))) => Ok(data.bytes.to_vec()),
        Ok(Some(other)) => {
            let name = protocol::fields::type_name(&other);
            Err(running(50_849, &format!("{clean} {name} found.")))
        }
        _ => Err(running(50_848, &format!("{clean} misisng found. Field name is required"))),
    }
}

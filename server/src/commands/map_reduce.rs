//! mapReduce: parsed and checked, but there is no JavaScript, so it returns mongod's error for disabled scripting.

use bson::{RawBsonRef, rawdoc};
use protocol::{ErrorCode, Fields, RawDoc, Timestamp};
use query::{
    QueryError,
    exec::Input,
    matcher::{Matcher, ParseContext},
    planner::Request,
    sort::SortPattern,
};
use storage::View;

use super::{Auth, Command, On, Run};
use crate::{
    auth::writes,
    context::{Call, Outcome},
    error::Failure,
    read::{
        blocking, collation,
        moment::ReadTime,
        opened::{Named, Opened},
        surroundings,
        target::Target,
    },
};

pub(super) const COMMAND: Command = Command {
    name: "mapReduce",
    aliases: &["mapreduce"],
    help: "Refused as without scripting, unless there is nothing to map: there is no JavaScript here.",
    auth: Auth::Body(
        "`find` on the collection, and the rights to write where it writes",
        writes::map_reduce,
    ),
    on: On::Readable,
    takes_concerns: true,
    run: Run::Waiting(|call| blocking::reading_documents(call, is_held, run)),
    ..Command::DEFAULT
};

const KNOWN: &[&str] = &[
    "mapReduce",
    "mapreduce",
    "map",
    "reduce",
    "out",
    "query",
    "sort",
    "collation",
    "limit",
    "finalize",
    "scope",
    "jsMode",
    "verbose",
    "bypassDocumentValidation",
];

fn is_held(call: &Call, view: &View, until: Timestamp) -> Result<bool, Failure> {
    Target::parse(call)?.is_held(view, until)
}

fn run(call: &Call, time: ReadTime) -> Outcome {
    let target = Target::parse(call)?;
    let fields = Fields::idl("mapReduce", &call.body);
    fields.only(KNOWN)?;
    let inline = check(&fields)?;
    let ns = target.name()?.clone();
    let Named::Here(opened) = Opened::target(call, time, &target, None)? else {
        let text = "mapReduce on a view is not supported";
        return Err(Failure::said(ErrorCode::CommandNotSupportedOnView, text));
    };
    let request = request(call, &fields, &opened)?;
    let context = surroundings::query_context(call);
    let mut planned = opened.plan(request, &context)?;
    // The first document would have to be mapped.
    let any = planned.pipeline.next(&mut Input::new(opened.source(), &context))?.is_some();
    if inline && !any { Ok(nothing()) } else { Err(no_engine(&ns.to_string())) }
}

fn nothing() -> crate::context::Reply {
    rawdoc! { "results": [] }.into()
}

fn no_engine(ns: &str) -> Failure {
    let text = format!(
        "Executor error during MapReduce command on namespace: {ns} :: caused by :: Cannot run \
         server-side javascript without the javascript engine enabled"
    );
    Failure::said(ErrorCode::from_code(31_264), text)
}

/// Checks the types of the arguments; true if the results are to be returned inline.
fn check(fields: &Fields<'_>) -> Result<bool, Failure> {
    for name in ["map", "reduce"] {
        check_code(name, fields.required(name)?.raw())?;
    }
    let out = fields.required("out")?.raw();
    if let Some(limit) = fields.optional("limit")? {
        limit.safe_i64()?;
    }
    if let Some(finalize) = fields.optional("finalize")? {
        check_code("finalize", finalize.raw())?;
    }
    let bad = |text: &str| Err(Failure::said(ErrorCode::BadValue, text));
    let out = match out {
        RawBsonRef::String(_) => return Ok(false),
        RawBsonRef::Document(out) => out,
        _ => return bad("'out' must be either a string or an object"),
    };
    if let Ok(Some(inline)) = out.get("inline") {
        let one = match inline {
            RawBsonRef::Int32(n) => n == 1,
            RawBsonRef::Int64(n) => n == 1,
            RawBsonRef::Double(n) => (n - 1.0).abs() < f64::EPSILON,
            _ => false,
        };
        return if one { Ok(true) } else { bad("'inline' takes only numeric '1'") };
    }
    let ways = ["replace", "merge", "reduce"];
    if !ways.iter().any(|way| matches!(out.get(way), Ok(Some(_)))) {
        return bad("'out' requires 'replace', 'merge' or 'reduce'");
    }
    Ok(false)
}

fn check_code(name: &str, value: RawBsonRef<'_>) -> Result<(), Failure> {
    match value {
        RawBsonRef::String(_)
        | RawBsonRef::JavaScriptCode(_)
        | RawBsonRef::JavaScriptCodeWithScope(_) => Ok(()),
        RawBsonRef::Null if name == "finalize" => Ok(()),
        _ => {
            let text = format!("'{name}' must be of string or code type");
            Err(Failure::said(ErrorCode::BadValue, text))
        }
    }
}

/// The documents that would be mapped.
fn request(call: &Call, fields: &Fields<'_>, opened: &Opened) -> Result<Request, Failure> {
    let document = |name| -> Result<Option<RawDoc>, Failure> {
        Ok(fields.optional(name)?.map(|doc| doc.document()).transpose()?.map(RawDoc::from))
    };
    let asked = document("collation")?.filter(|spec| !spec.is_empty());
    let collator = collation::of_collection(asked.as_ref(), opened.collection.as_deref())?;
    let parsing = ParseContext { collator: collator.clone() };
    let within = |error: QueryError| QueryError {
        message: format!("MapReduce internal error :: caused by :: {}", error.message),
        ..error
    };
    let query = document("query")?.unwrap_or_else(|| RawDoc::from(rawdoc! {}));
    let mut request = Request::new(Matcher::parse(&query, &parsing).map_err(within)?);
    let sort = document("sort")?.filter(|sort| !sort.is_empty());
    let parse = |sort: RawDoc| SortPattern::parse(&sort, collator.clone()).map_err(within);
    request.sort = sort.map(parse).transpose()?;
    surroundings::check(call)?;
    Ok(request)
}

//! validate: checks the consistency of a collection.

use bson::{
    Binary, RawArrayBuf, RawDocumentBuf, raw::CString, raw::cstr, rawdoc, spec::BinarySubtype,
};
use protocol::{ErrorCode, Fields};
use storage::ReadAt;

use super::{Auth, Command, On, Run, sizes};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
    read::{blocking, target::Target, views},
};

pub(super) const COMMAND: Command = Command {
    name: "validate",
    help: "Checks a collection's documents and indexes.",
    auth: Auth::Collection(action("validate")),
    on: On::Readable,
    run: Run::Waiting(|call| blocking::command(call, run)),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("validate", &call.body);
    let full = fields.optional("full")?.map_or(Ok(false), |full| full.safe_bool())?;
    let repair = fields.optional("repair")?.map_or(Ok(false), |repair| repair.safe_bool())?;
    if repair {
        let text = "Running the validate command with { repair: true } can only be performed in standalone mode.";
        return Err(Failure::said(ErrorCode::InvalidOptions, text));
    }
    let background = fields.optional("background")?.map_or(Ok(false), |value| value.safe_bool())?;
    if full && background {
        let text = "Running the validate command with both { background: true } and { full: true } \
                    is not supported.";
        return Err(Failure::said(ErrorCode::InvalidOptions, text));
    }
    let target = Target::parse(call)?;
    let store = call.node().store()?;
    let view = store.view(ReadAt::Newest)?;
    let Some(collection) = target.collection(&view)? else {
        let ns = target.name()?;
        if views::exists(&view, ns)? {
            let text = "Cannot validate a view";
            return Err(Failure::said(ErrorCode::CommandNotSupportedOnView, text));
        }
        let text = format!("Collection '{ns}' does not exist to validate.");
        return Err(Failure::said(ErrorCode::NamespaceNotFound, text));
    };
    let report = store.validate(&collection, full)?;
    let (mut keys, mut details) = (RawDocumentBuf::new(), RawDocumentBuf::new());
    let id = collection.id_index().map(|spec| ("_id_", spec));
    let own = collection.indexes().iter().map(|index| (index.name(), index.spec()));
    let mut count = 0;
    for (name, spec) in id.into_iter().chain(own) {
        count += 1;
        let key = || CString::try_from(name).map_err(|error| broken(&error.to_string()));
        if let Some(n) = report.keys_per_index.get(name) {
            keys.append(key()?, sizes::number(*n));
        }
        let valid = !report.invalid_indexes.iter().any(|invalid| invalid == name);
        details.append(key()?, rawdoc! { "valid": valid, "spec": spec.to_owned() });
    }
    let uuid = collection.uuid().as_bytes().to_vec();
    let errors: RawArrayBuf = report.errors.iter().map(String::as_str).collect();
    let mut body = rawdoc! {
        "valid": report.valid(),
        "repaired": false,
        "repairMode": "None",
        "ns": collection.ns().as_str(),
        "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: uuid },
        "warnings": [],
        "errors": errors,
        "extraIndexEntries": [],
        "missingIndexEntries": [],
        "nInvalidDocuments": sizes::number(report.n_invalid_documents),
        "nNonCompliantDocuments": 0,
        "nrecords": sizes::number(report.nrecords),
        "corruptRecords": [],
        "nIndexes": count,
    };
    body.append(cstr!("keysPerIndex"), keys);
    body.append(cstr!("indexDetails"), details);
    Ok(body.into())
}

fn broken(text: &str) -> Failure {
    Failure::said(ErrorCode::InternalError, text)
}

//! `$merge`: each batch is one update or insert command on the target.

use bson::raw::cstr;
use protocol::ErrorCode;
use query::{QueryError, stage::Merge};

use super::{Writing, check_written, next_statements, primary::Primary, write_command};
use crate::{
    error::Failure,
    read::{query_cursor::QueryReading, views},
};

/// Whether the matched fields may be missing or null; fails if no unique index covers them.
pub(super) fn finds_by_nullish(writing: &Writing<'_>, merge: &Merge) -> Result<bool, Failure> {
    let mut on = merge.on();
    on.sort_unstable();
    let Some(target) = writing.view.catalog().collection(&writing.target()) else {
        return if on == ["_id"] { Ok(true) } else { Err(no_index()) };
    };
    let wanted = writing.collator.map(|collator| collator.spec());
    if on == ["_id"] && target.collator().map(|own| own.spec()) == wanted {
        return Ok(true);
    }
    let mut unique = target.indexes().iter().filter(|index| {
        let mut fields: Vec<&str> = index
            .key_pattern()
            .into_iter()
            .flat_map(|pattern| pattern.iter().flatten().map(|(name, _)| name.as_str()))
            .collect();
        fields.sort_unstable();
        index.usable()
            && index.unique()
            && index.partial_filter().is_none()
            && index.collator().map(|own| own.spec()) == wanted
            && fields == on
    });
    let first = unique.next().ok_or_else(no_index)?;
    // An index that is not sparse also contains the documents without the field.
    Ok(!first.sparse() || unique.any(|index| !index.sparse()))
}

fn no_index() -> Failure {
    let text = "Cannot find index to verify that join fields will be unique";
    QueryError::location(51_183, text).into()
}

pub(super) fn run(
    writing: &Writing<'_>,
    merge: &Merge,
    reading: &mut QueryReading,
    primary: &mut Primary<'_>,
) -> Result<(), Failure> {
    let (call, target) = (writing.call, writing.target());
    let nullish = finds_by_nullish(writing, merge)?;
    views::refuse(writing.view, &target).map_err(Failure::into_query_error)?;
    loop {
        let (statements, more) = next_statements(call, reading, |doc, context| {
            let doc = merge.with_id(doc)?;
            Ok(match merge.only_inserts() {
                true => doc.as_raw().to_owned(),
                false => merge.statement(&doc, nullish, context)?,
            })
        })?;
        let sent = statements.count;
        if sent > 0 {
            let command = match merge.only_inserts() {
                true => write_command(
                    call,
                    (cstr!("insert"), target.coll()),
                    (cstr!("documents"), statements),
                ),
                false => {
                    let mut command = write_command(
                        call,
                        (cstr!("update"), target.coll()),
                        (cstr!("updates"), statements),
                    );
                    if let Some(variables) = writing.variables {
                        command.append(cstr!("let"), variables.to_owned());
                    }
                    command
                }
            };
            let reply = primary.write(target.db(), command)?;
            check_written(&reply).map_err(|failure| in_words_of(writing, merge, failure))?;
            let found = reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok());
            if merge.must_match() && found != Some(sent) {
                let text = "$merge could not find a matching document in the target collection for \
                            at least one document in the source collection";
                return Err(QueryError::location(13_113, text).into());
            }
        }
        if !more {
            return Ok(());
        }
    }
}

/// Newer releases explain what a duplicate key means here.
fn in_words_of(writing: &Writing<'_>, merge: &Merge, failure: Failure) -> Failure {
    let says = writing.call.profile().executor_errors_name_collection;
    let (true, Failure::OnPrimary { code: ErrorCode::DuplicateKey, message, details }) =
        (says, &failure)
    else {
        return failure;
    };
    let meaning = match merge.only_inserts() {
        true => {
            "$merge with whenMatched: fail found an existing document with the same values for the \
             'on' fields"
        }
        false => "$merge failed due to a DuplicateKey error",
    };
    let message = format!("{meaning} :: caused by :: {message}");
    let details = details.clone();
    Failure::OnPrimary { code: ErrorCode::DuplicateKey, message, details }
}

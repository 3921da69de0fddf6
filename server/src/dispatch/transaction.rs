//! The fields that make a command part of a transaction or a retryable write.
//!
//! Only a primary runs these. A secondary still parses the fields and refuses invalid combinations before it reports
//! that it is not primary: a driver must not take the reply to an invalid statement for a reason to look for a
//! primary.

use protocol::ErrorCode;

use crate::{commands::Command, error::Failure};

/// The parsed fields.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Statement {
    pub(super) number: Option<i64>,
    pub(super) autocommit: Option<bool>,
    pub(super) start: Option<bool>,
}

/// Commands allowed in a transaction.
const IN_TRANSACTION: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "bulkWrite",
    "commitTransaction",
    "coordinateCommitTransaction",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "prepareTransaction",
    "update",
];

/// Retryable writes.
const RETRYABLE: &[&str] = &["bulkWrite", "delete", "findAndModify", "insert", "update"];

/// Commands that end a transaction are retryable, too.
const DECISIONS: &[&str] =
    &["abortTransaction", "commitTransaction", "coordinateCommitTransaction"];

impl Statement {
    /// True for a statement of a transaction.
    pub(super) fn in_transaction(self) -> bool {
        self.autocommit.is_some()
    }

    /// Checks the combination of fields. `open` is true for a command that runs before authentication and so has no
    /// session.
    pub(super) fn check_fields(
        self,
        open: bool,
        in_session: bool,
        in_set: bool,
    ) -> Result<(), Failure> {
        if open && self.in_transaction() {
            return unsupported("This command is not supported in transactions");
        }
        match self.number {
            Some(_) if open => {
                let text = "It is illegal to provide a txnNumber for this command";
                return Err(Failure::said(ErrorCode::from_code(50889), text));
            }
            Some(_) if !in_session => {
                return invalid("Transaction number requires a session ID to also be specified");
            }
            Some(number) if number < 0 => return invalid("Transaction number cannot be negative"),
            Some(_) if !in_set => {
                let text = "Transaction numbers are only allowed on a replica set member or mongos";
                return Err(Failure::said(ErrorCode::IllegalOperation, text));
            }
            _ => {}
        }
        match (self.autocommit, self.start) {
            (Some(_), _) if self.number.is_none() => {
                invalid("'autocommit' field requires a transaction number to also be specified")
            }
            (Some(true), _) => invalid("Specifying autocommit=true is not allowed."),
            (None, Some(_)) => {
                invalid("'startTransaction' field requires 'autocommit' field to also be specified")
            }
            (_, Some(false)) => invalid("Specifying startTransaction=false is not allowed."),
            _ => Ok(()),
        }
    }

    /// Checks whether the command may have them.
    pub(super) fn check_command(self, command: &Command, db: &str) -> Result<(), Failure> {
        let name = command.name;
        if !self.in_transaction() {
            if self.number.is_none() || RETRYABLE.contains(&name) {
                return Ok(());
            }
            let text = format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {name} is not a retryable write command."
            );
            return Err(Failure::said(ErrorCode::from_code(50768), text));
        }
        if !IN_TRANSACTION.contains(&name) {
            let more = match name {
                "count" => {
                    " Please see http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
                }
                _ => "",
            };
            return unsupported(format!(
                "Cannot run '{name}' in a multi-document transaction.{more}"
            ));
        }
        if matches!(db, "config" | "local") {
            return unsupported(format!(
                "Cannot run command against the '{db}' database in a transaction."
            ));
        }
        match (self.start, name) {
            (Some(true), "killCursors") => unsupported(
                "Cannot run killCursors as the first operation in a multi-document transaction.",
            ),
            (Some(true), "commitTransaction") => {
                unsupported("Cannot start a transaction with a commit")
            }
            (Some(true), "abortTransaction") => {
                unsupported("Cannot start a transaction with an abort")
            }
            (Some(true), "prepareTransaction") => {
                unsupported("Cannot start a transaction with a prepare")
            }
            _ => Ok(()),
        }
    }

    /// The error label for a driver when we report that we are not primary.
    pub(super) fn label(self, command: &Command) -> Option<&'static str> {
        let again = self.number.is_some();
        match self.in_transaction() && !DECISIONS.contains(&command.name) {
            true => Some("TransientTransactionError"),
            false => again.then_some("RetryableWriteError"),
        }
    }
}

fn invalid<T>(text: &str) -> Result<T, Failure> {
    Err(Failure::said(ErrorCode::InvalidOptions, text))
}

/// `OperationNotSupportedInTransaction`.
fn unsupported<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::said(ErrorCode::from_code(263), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;

    const NONE: Statement = Statement { number: None, autocommit: None, start: None };
    const NUMBERED: Statement = Statement { number: Some(5), ..NONE };
    const LATER: Statement = Statement { autocommit: Some(false), ..NUMBERED };
    const FIRST: Statement = Statement { start: Some(true), ..LATER };

    fn code(result: Result<(), Failure>) -> i32 {
        result.map_or_else(|failure| failure.code().code(), |()| 0)
    }

    #[test]
    fn fields_that_do_not_go_together_are_refused_as_mongod_does() {
        let fields =
            |statement: Statement, session| code(statement.check_fields(false, session, true));
        assert_eq!([fields(NONE, false), fields(NUMBERED, true), fields(FIRST, true)], [0; 3]);
        assert_eq!(fields(NUMBERED, false), 72);
        assert_eq!(fields(Statement { number: Some(-3), ..LATER }, true), 72);
        assert_eq!(fields(Statement { number: None, ..LATER }, true), 72);
        assert_eq!(fields(Statement { autocommit: Some(true), ..FIRST }, true), 72);
        assert_eq!(fields(Statement { autocommit: None, ..FIRST }, true), 72);
        assert_eq!(fields(Statement { start: Some(false), ..FIRST }, true), 72);
        assert_eq!(code(NUMBERED.check_fields(false, true, false)), 20);
        assert_eq!(code(NUMBERED.check_fields(true, true, true)), 50889);
        assert_eq!(code(LATER.check_fields(true, true, true)), 263);
    }

    #[test]
    fn commands_and_labels_are_mongods() {
        let of = |name| commands::find(name).unwrap().1;
        let may = |statement: Statement, name| code(statement.check_command(of(name), "shop"));
        for name in IN_TRANSACTION {
            assert_eq!(may(LATER, name), 0, "{name}");
        }
        assert_eq!([may(NUMBERED, "insert"), may(NUMBERED, "find")], [0, 50768]);
        assert_eq!([may(LATER, "count"), may(LATER, "drop"), may(FIRST, "killCursors")], [263; 3]);
        assert_eq!([may(FIRST, "find"), may(FIRST, "commitTransaction")], [0, 263]);
        assert_eq!(code(FIRST.check_command(of("find"), "local")), 263);
        let transient = Some("TransientTransactionError");
        let retryable = Some("RetryableWriteError");
        assert_eq!(LATER.label(of("insert")), transient);
        assert_eq!(FIRST.label(of("find")), transient);
        assert_eq!(LATER.label(of("prepareTransaction")), transient);
        assert_eq!(LATER.label(of("commitTransaction")), retryable);
        assert_eq!(NUMBERED.label(of("update")), retryable);
        assert_eq!(NONE.label(of("insert")), None);
    }
}

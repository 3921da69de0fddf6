//! Commands that only a primary runs. They are known, so that they are refused as a secondary refuses them.

use protocol::ErrorCode;

use super::{Api, Auth, Command, On, OpClass, Run};
use crate::{
    context::{Call, Outcome},
    error::Failure,
};

/// The gate refuses before any handler is reached.
pub(super) fn unreachable(call: &Call) -> Outcome {
    let text = format!("command '{}' has no handler", call.name);
    Err(Failure::said(ErrorCode::InternalError, text))
}

pub(super) fn commands() -> impl Iterator<Item = Command> {
    let stable = STABLE.iter().map(|row| primary(row, Api::V1));
    stable.chain(OTHERS.iter().map(|row| primary(row, Api::None)))
}

type Row = (&'static str, &'static [&'static str], bool, &'static str);

fn primary(&(name, aliases, admin_only, help): &Row, api: Api) -> Command {
    Command {
        name,
        aliases,
        help,
        admin_only,
        api,
        auth: Auth::Write,
        on: On::Primary,
        takes_concerns: true,
        class: match name {
            "insert" => Some(OpClass::Insert),
            "update" => Some(OpClass::Update),
            "delete" => Some(OpClass::Delete),
            _ => Some(OpClass::Command),
        },
        run: Run::Now(unreachable),
        ..Command::DEFAULT
    }
}

/// In the stable API: name, aliases, only on `admin`, help.
const STABLE: &[Row] = &[
    ("abortTransaction", &[], true, "Aborts a transaction."),
    ("bulkWrite", &[], true, "Writes to several collections."),
    ("collMod", &[], false, "Changes options of a collection."),
    ("commitTransaction", &[], true, "Commits a transaction."),
    ("create", &[], false, "Creates a collection or view."),
    ("createIndexes", &[], false, "Builds indexes."),
    ("delete", &[], false, "Deletes documents."),
    ("drop", &[], false, "Drops a collection."),
    ("dropDatabase", &[], false, "Drops a database."),
    ("dropIndexes", &["deleteIndexes"], false, "Drops indexes."),
    ("findAndModify", &["findandmodify"], false, "Changes one document and returns it."),
    ("insert", &[], false, "Inserts documents."),
    ("renameCollection", &[], true, "Renames a collection."),
    ("update", &[], false, "Updates documents."),
];

/// Not in the stable API.
const OTHERS: &[Row] = &[
    ("appendOplogNote", &[], true, "Writes a no-op to the oplog."),
    ("applyOps", &[], false, "Applies oplog entries."),
    ("cleanupOrphaned", &[], true, "Removes documents of other shards."),
    ("cloneCollectionAsCapped", &[], false, "Copies a collection into a capped one."),
    ("convertToCapped", &[], false, "Makes a collection capped."),
    ("coordinateCommitTransaction", &[], true, "Commits a transaction of several shards."),
    ("createRole", &[], false, "Creates a role."),
    ("createUser", &[], false, "Creates a user."),
    ("dbCheck", &[], false, "Compares members by checksums in the oplog."),
    ("dropAllRolesFromDatabase", &[], false, "Drops all roles of a database."),
    ("dropAllUsersFromDatabase", &[], false, "Drops all users of a database."),
    ("dropRole", &[], false, "Drops a role."),
    ("dropUser", &[], false, "Drops a user."),
    ("grantPrivilegesToRole", &[], false, "Adds privileges to a role."),
    ("grantRolesToRole", &[], false, "Adds roles to a role."),
    ("grantRolesToUser", &[], false, "Adds roles to a user."),
    ("mergeChunks", &[], true, "Merges chunks."),
    ("prepareTransaction", &[], true, "Prepares a transaction of several shards."),
    ("revokePrivilegesFromRole", &[], false, "Takes privileges from a role."),
    ("revokeRolesFromRole", &[], false, "Takes roles from a role."),
    ("revokeRolesFromUser", &[], false, "Takes roles from a user."),
    ("setClusterParameter", &[], true, "Sets a parameter of the whole cluster."),
    ("setDefaultRWConcern", &[], true, "Sets default read and write concerns."),
    ("setFeatureCompatibilityVersion", &[], true, "Sets the feature compatibility version."),
    ("setIndexCommitQuorum", &[], false, "Sets who must have built an index before it is used."),
    ("setUserWriteBlockMode", &[], false, "Blocks or unblocks writes."),
    ("splitChunk", &[], true, "Splits a chunk."),
    ("splitVector", &[], false, "Finds points to split a chunk at."),
    ("updateRole", &[], false, "Changes a role."),
    ("updateUser", &[], false, "Changes a user."),
    ("voteAbortIndexBuild", &[], true, "A member gives up an index build."),
    ("voteCommitIndexBuild", &[], true, "A member has built an index."),
];

//! Commands that only a primary runs. They are listed so that they are refused as a secondary refuses them.

use protocol::{ErrorCode, Release};

use super::{Api, Auth, Command, MEMBER, On, OpClass, Run};
use crate::{
    auth::{action::action, requirement, writes},
    context::{Call, Outcome},
    error::Failure,
};

/// Never called: the state check refuses the command before.
pub(super) fn unreachable(call: &Call) -> Outcome {
    let text = format!("command '{}' has no handler", call.name);
    Err(Failure::said(ErrorCode::InternalError, text))
}

pub(super) fn commands() -> impl Iterator<Item = Command> {
    let stable = STABLE.iter().map(|row| primary(row, Api::V1));
    let others = OTHERS.iter().map(|row| primary(row, Api::None));
    let newer = NEWER.iter().map(|row| Command { since: Release::V8_0, ..primary(row, Api::None) });
    stable.chain(others).chain(newer)
}

/// Name, aliases, only on `admin`, help, required privileges.
type Row = (&'static str, &'static [&'static str], bool, &'static str, Auth);

fn primary(&(name, aliases, admin_only, help, auth): &Row, api: Api) -> Command {
    Command {
        name,
        aliases,
        help,
        admin_only,
        api,
        auth,
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

const fn on_cluster(name: &str) -> Auth {
    Auth::Cluster(action(name))
}

const fn on_db(name: &str) -> Auth {
    Auth::Database(action(name))
}

const fn on_coll(name: &str) -> Auth {
    Auth::Collection(action(name))
}

/// Commands in the stable API.
#[rustfmt::skip]
const STABLE: &[Row] = &[
    ("abortTransaction", &[], true, "Aborts a transaction.", Auth::User),
    ("bulkWrite", &[], true, "Writes to several collections.", Auth::Body("the rights of each write", writes::bulk_write)),
    ("collMod", &[], false, "Changes options of a collection.", on_coll("collMod")),
    ("commitTransaction", &[], true, "Commits a transaction.", Auth::User),
    ("create", &[], false, "Creates a collection or view.", Auth::Body("`createCollection` on the collection, or `insert` for a plain one", writes::create)),
    ("createIndexes", &[], false, "Builds indexes.", on_coll("createIndex")),
    ("delete", &[], false, "Deletes documents.", on_coll("remove")),
    ("drop", &[], false, "Drops a collection.", on_coll("dropCollection")),
    ("dropDatabase", &[], false, "Drops a database.", on_db("dropDatabase")),
    ("dropIndexes", &["deleteIndexes"], false, "Drops indexes.", on_coll("dropIndex")),
    ("findAndModify", &["findandmodify"], false, "Changes one document and returns it.", Auth::Body("`find` and `update` or `remove` on the collection, `insert` for an upsert", writes::find_and_modify)),
    ("insert", &[], false, "Inserts documents.", Auth::Body("`insert` on the collection", writes::insert)),
    ("renameCollection", &[], true, "Renames a collection.", Auth::Body("`renameCollectionSameDB` on the database, or the rights to read one and write the other", writes::rename)),
    ("update", &[], false, "Updates documents.", Auth::Body("`update` on the collection, `insert` for an upsert", writes::update)),
];

/// Commands that are not in the stable API.
#[rustfmt::skip]
const OTHERS: &[Row] = &[
    ("appendOplogNote", &[], true, "Writes a no-op to the oplog.", on_cluster("appendOplogNote")),
    ("applyOps", &[], false, "Applies oplog entries.", Auth::Body("`applyOps` on the cluster, and more by its entries", writes::apply_ops)),
    ("cleanupOrphaned", &[], true, "Removes documents of other shards.", on_cluster("cleanupOrphaned")),
    ("cloneCollectionAsCapped", &[], false, "Copies a collection into a capped one.", Auth::Body("`find` on one, `insert`, `createIndex` and `convertToCapped` on the other collection", writes::clone_as_capped)),
    ("convertToCapped", &[], false, "Makes a collection capped.", on_coll("convertToCapped")),
    ("coordinateCommitTransaction", &[], true, "Commits a transaction of several shards.", Auth::Body("`internal` on the cluster from 8.0 on", requirement::coordinate_commit)),
    ("createRole", &[], false, "Creates a role.", Auth::Body("`createRole` on the database, `grantRole` for what it gives", writes::create_role)),
    ("createUser", &[], false, "Creates a user.", Auth::Body("`createUser` on the database, `grantRole` for each role", writes::create_user)),
    ("dbCheck", &[], false, "Compares members by checksums in the oplog.", Auth::Body("`dbCheck` on the collection or the database", writes::db_check)),
    ("dropAllRolesFromDatabase", &[], false, "Drops all roles of a database.", on_db("dropRole")),
    ("dropAllUsersFromDatabase", &[], false, "Drops all users of a database.", on_db("dropUser")),
    ("dropRole", &[], false, "Drops a role.", on_db("dropRole")),
    ("dropUser", &[], false, "Drops a user.", on_db("dropUser")),
    ("grantPrivilegesToRole", &[], false, "Adds privileges to a role.", Auth::Body("`grantRole` where the privileges are", |call| requirement::privileges(call, action("grantRole")))),
    ("grantRolesToRole", &[], false, "Adds roles to a role.", Auth::Body("`grantRole` for each role", |call| requirement::roles(call, action("grantRole")))),
    ("grantRolesToUser", &[], false, "Adds roles to a user.", Auth::Body("`grantRole` for each role", |call| requirement::roles(call, action("grantRole")))),
    ("mergeChunks", &[], true, "Merges chunks.", MEMBER),
    ("prepareTransaction", &[], true, "Prepares a transaction of several shards.", MEMBER),
    ("revokePrivilegesFromRole", &[], false, "Takes privileges from a role.", Auth::Body("`revokeRole` where the privileges are", |call| requirement::privileges(call, action("revokeRole")))),
    ("revokeRolesFromRole", &[], false, "Takes roles from a role.", Auth::Body("`revokeRole` for each role", |call| requirement::roles(call, action("revokeRole")))),
    ("revokeRolesFromUser", &[], false, "Takes roles from a user.", Auth::Body("`revokeRole` for each role", |call| requirement::roles(call, action("revokeRole")))),
    ("setClusterParameter", &[], true, "Sets a parameter of the whole cluster.", on_cluster("setClusterParameter")),
    ("setDefaultRWConcern", &[], true, "Sets default read and write concerns.", on_cluster("setDefaultRWConcern")),
    ("setFeatureCompatibilityVersion", &[], true, "Sets the feature compatibility version.", on_cluster("setFeatureCompatibilityVersion")),
    ("setIndexCommitQuorum", &[], false, "Sets who must have built an index before it is used.", on_coll("createIndex")),
    ("setUserWriteBlockMode", &[], false, "Blocks or unblocks writes.", on_cluster("setUserWriteBlockMode")),
    ("splitChunk", &[], true, "Splits a chunk.", MEMBER),
    ("splitVector", &[], false, "Finds points to split a chunk at.", Auth::Body("`splitVector` on the collection", writes::split_vector)),
    ("updateRole", &[], false, "Changes a role.", Auth::Body("`revokeRole` on all databases, `grantRole` for what it gives", writes::update_role)),
    ("updateUser", &[], false, "Changes a user.", Auth::Body("`changePassword`, `changeCustomData`, or `revokeRole` and `grantRole`, by what changes", writes::update_user)),
    ("voteAbortIndexBuild", &[], true, "A member gives up an index build.", MEMBER),
    ("voteCommitIndexBuild", &[], true, "A member has built an index.", MEMBER),
];

/// Commands since 8.0.
#[rustfmt::skip]
const NEWER: &[Row] = &[
    ("cleanupStructuredEncryptionData", &[], false, "Tidies up after queryable encryption.", on_coll("cleanupStructuredEncryptionData")),
    ("compactStructuredEncryptionData", &[], false, "Tidies up after queryable encryption.", on_coll("compactStructuredEncryptionData")),
    ("configureQueryAnalyzer", &[], true, "Samples queries of a collection.", Auth::Body("`configureQueryAnalyzer` on the collection", writes::configure_query_analyzer)),
    ("createSearchIndexes", &[], false, "Creates search indexes.", on_coll("createSearchIndexes")),
    ("dropSearchIndex", &[], false, "Drops a search index.", on_coll("dropSearchIndex")),
    ("listSearchIndexes", &[], false, "Lists search indexes.", on_coll("listSearchIndexes")),
    ("removeQuerySettings", &[], true, "Removes settings of a query shape.", on_cluster("querySettings")),
    ("setQuerySettings", &[], true, "Sets what plans a query shape may have.", on_cluster("querySettings")),
    ("updateSearchIndex", &[], false, "Changes a search index.", on_coll("updateSearchIndex")),
];

//! MongoDB's releases: one row each, with everything in which they differ on the wire.
//!
//! A node shows the release of the set that it joins; `--impersonate` pins one. A difference between releases is a
//! named field of [`Profile`], or a `since` of an operator, a stage or a command; no other code compares versions.
//!
//! A release is recognised by its highest wire version, which is known from the first peer that connects, before
//! there is a config. The rows of 4.4, 5.0 and 8.2 were compared with servers of these releases; the others follow
//! MongoDB's release notes and were not.

/// A release series, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "each variant is a version number")]
pub enum Release {
    V4_4,
    V5_0,
    V6_0,
    V7_0,
    V8_0,
    V8_1,
    V8_2,
    V8_3,
    V9_0,
}

impl Release {
    /// The oldest release with a row.
    pub const OLDEST: Self = Self::V4_4;
    /// The newest release with a row.
    pub const NEWEST: Self = Self::V9_0;
    /// The newest release that tests compare with a real server; shown until the node knows its set.
    pub const NEWEST_TESTED: Self = Self::V8_2;

    /// The row of this release.
    pub fn profile(self) -> &'static Profile {
        match self {
            Self::V4_4 => &V4_4,
            Self::V5_0 => &V5_0,
            Self::V6_0 => &V6_0,
            Self::V7_0 => &V7_0,
            Self::V8_0 => &V8_0,
            Self::V8_1 => &V8_1,
            Self::V8_2 => &V8_2,
            Self::V8_3 => &V8_3,
            Self::V9_0 => &V9_0,
        }
    }
}

impl Default for Release {
    fn default() -> Self {
        Self::NEWEST_TESTED
    }
}

/// How a release behaves towards clients and members of its set.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// The release that this row describes.
    pub release: Release,
    /// Feature compatibility version, and the name of the row: `8.2`.
    pub fcv: &'static str,
    /// The `version` field of buildInfo.
    pub version: &'static str,
    /// The `versionArray` field of buildInfo.
    pub version_array: [i32; 4],
    /// The `gitVersion` field of buildInfo; `nogitversion` if unknown.
    pub git_version: &'static str,
    /// Highest wire version, and the only one for internal clients.
    pub wire_version: i32,

    // Differences between members.
    /// Since 8.0, writing to the oplog is separate from applying: heartbeats and reports have `writtenOpTime` and
    /// `lastOpWritten`, and durable may be ahead of applied.
    pub has_written: bool,
    /// Heartbeat replies have `configTerm` even without a config.
    pub config_term_always: bool,
    /// `$replData` has `primaryIndex`.
    pub primary_index_in_repl_data: bool,
    /// Value of `$replData.configVersion` when there is no config.
    pub no_config_version: i64,
    /// Heartbeat requests have `primaryId` (late 5.0 and later).
    pub primary_id_in_heartbeat: bool,
    /// When `$oplogQueryData` has `syncSourceHost`.
    pub sync_source_host_in_oplog_query_data: Told,
    /// Internal requests have `maxTimeMSOpOnly`.
    pub max_time_ms_op_only: bool,
    /// `replSetGetStatus` has `lastAppliedWallTime` and similar fields for each member.
    pub wall_times_in_members: bool,
    /// `replSetGetStatus` has `readConcernMajorityWallTime`.
    pub majority_wall_time_in_status: bool,
    /// Its members send `hello` in an OP_MSG; older ones send `isMaster` in an OP_QUERY.
    pub hello_by_op_msg: bool,
    /// Internal clients get `$clusterTime` without a signature.
    pub internal_cluster_time_unsigned: bool,
    /// Members with a key file may log in by SCRAM-SHA-1.
    pub key_file_by_sha_1: bool,
    /// `local.replset.minvalid` is updated with every applied batch.
    pub min_valid_follows_applied: bool,
    /// The error for a cluster time signed by an unknown key names the "Cache Reader".
    pub cache_reader_refuses_keys: bool,
    /// A member that shuts down first refuses requests for a while, so that clients switch to another member.
    pub quiesces: bool,
    /// Resume tokens of scans carry `$initialSyncId`.
    pub resume_tokens_name_initial_sync: bool,
    /// Resume tokens of scans of the oplog are timestamps.
    pub oplog_tokens_are_times: bool,
    /// The error text for an invalid resume token: the fields that it must contain.
    pub resume_token_rule: &'static str,
    /// The text between the error for a resume position that no longer exists and that position.
    pub lost_place_frame: &'static str,
    /// The error of a tailable cursor that lost its position begins with the executor's prefix.
    pub lost_tail_names_executor: bool,

    // Differences in parsing requests.
    /// find and aggregate use generated parsers; the error texts of 4.4 differ.
    pub typed_reads: bool,
    /// count, distinct, replSetResizeOplog, `maxTimeMS` and `readConcern` use generated parsers.
    pub typed_commands: bool,
    /// ping and similar commands refuse unknown fields.
    pub strict_fields: bool,
    /// `apiVersion` and related fields are supported.
    pub stable_api: bool,
    /// OP_QUERY can carry every command, not only the handshake.
    pub op_query_serves_all: bool,
    /// An HTTP request gets a text reply; otherwise the connection is just closed.
    pub answers_http: bool,
    /// Read commands accept variables (`let`).
    pub takes_let: bool,
    /// find accepts `ntoreturn`, which members of old sets send.
    pub takes_ntoreturn: bool,
    /// distinct accepts a hint.
    pub distinct_takes_hint: bool,
    /// A pipeline has at most 1000 stages.
    pub pipelines_are_bounded: bool,
    /// `allowDiskUse` defaults to true.
    pub disk_use_by_default: bool,
    /// Read concern snapshot is supported outside of transactions.
    pub snapshot_reads: bool,
    /// explain accepts every read concern.
    pub explain_takes_concerns: bool,
    /// `invalidateUserCache` runs only on the database `admin`.
    pub user_cache_on_admin_only: bool,
    /// A connection has one user; earlier releases allow one user per database.
    pub one_user_a_connection: bool,
    /// The error text begins with "Command", not "command", "requires authentication", and an unauthenticated client
    /// is not told which commands run only on `admin`.
    pub login_comes_first: bool,

    // Differences in replies.
    /// Order and spelling of the buildInfo fields.
    pub build_info: BuildInfoShape,
    /// Codes 40414 and 40415 have names.
    pub idl_codes_have_names: bool,
    /// Errors of getLog, getParameter and setParameter carry a code.
    pub parameter_errors_have_codes: bool,
    /// An error reply begins with `operationTime`.
    pub error_starts_with_operation_time: bool,
    /// Errors during document reads name the collection.
    pub executor_errors_name_collection: bool,
    /// Errors during a pipeline's document reads begin with the executor's prefix.
    pub aggregate_errors_name_executor: bool,
    /// The `options` value of availableQueryOptions; 5.0 is the last release that has the command.
    pub available_query_options: i32,
    /// `compression` is at the start of hello's reply, not at its end.
    pub hello_compression_first: bool,
    /// Lines of getLog end with a line break.
    pub log_lines_end_in_newline: bool,
    /// connectionStatus returns the connection's UUID.
    pub connection_status_uuid: bool,
    /// hostInfo lists cores by kind.
    pub host_info_cores: bool,
    /// getDefaultRWConcern returns the implicit defaults.
    pub implicit_rw_concern: bool,
    /// listIndexes shows the fields of an index specification in a fixed order with fixed types, however the command
    /// wrote them.
    pub typed_index_specs: bool,
    /// listCollections has `configDebugDump` for collections in `config`.
    pub config_debug_dump: bool,
    /// listDatabases returns sizes as integers, with `totalSizeMb`.
    pub database_sizes_are_longs: bool,
    /// dbStats and dataSize return integers.
    pub statistics_are_longs: bool,
    /// dbStats returns free storage sizes by default.
    pub free_storage_unasked: bool,
    /// collStats has `numOrphanDocs`.
    pub orphan_counts: bool,
    /// dbHash reads capped collections in natural order instead of by `_id`.
    pub db_hash_by_capped_order: bool,
    /// rolesInfo shows `_id`.
    pub roles_show_id: bool,
    /// hello lists the strongest of a user's mechanisms first.
    pub strongest_mechanism_first: bool,
    /// Sessions are shown with the fields that a transaction adds to the session id.
    pub sessions_show_transactions: bool,
}

/// When a release writes a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The release does not have the field.
    Never,
    /// Only if there is a value.
    IfThere,
    /// Always; the value may be empty.
    Always,
}

/// Order and spelling of the buildInfo fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildInfoShape {
    /// `sysInfo`, followed by `versionArray`.
    Classic,
    /// `versionArray` second, `sysinfo` in lower case.
    Idl,
}

impl Profile {
    /// All rows, oldest first.
    pub fn all() -> &'static [&'static Self] {
        ROWS
    }

    /// The row of a release such as `8.2`, or of a full version such as `8.2.1`.
    pub fn named(text: &str) -> Option<&'static Self> {
        ROWS.iter().copied().find(|profile| {
            text.strip_prefix(profile.fcv)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The newest row whose wire version is at most `wire_version`; `None` if all rows are newer.
    pub fn for_wire_version(wire_version: i32) -> Option<&'static Self> {
        ROWS.iter().copied().rev().find(|profile| profile.wire_version <= wire_version)
    }

    /// The row that is used until the node knows its set.
    pub fn newest_tested() -> &'static Self {
        Release::NEWEST_TESTED.profile()
    }

    /// True if `wire_version` belongs to a release newer than all rows.
    pub fn is_unknown(wire_version: i32) -> bool {
        wire_version > Release::NEWEST.profile().wire_version
    }
}

static ROWS: &[&Profile] = &[&V4_4, &V5_0, &V6_0, &V7_0, &V8_0, &V8_1, &V8_2, &V8_3, &V9_0];

const V4_4: Profile = Profile {
    release: Release::V4_4,
    fcv: "4.4",
    version: "4.4.10",
    version_array: [4, 4, 10, 0],
    git_version: "58971da1ef93435a9f62bf4708a81713def6e88c",
    wire_version: 9,
    has_written: false,
    config_term_always: false,
    primary_index_in_repl_data: true,
    no_config_version: 1,
    primary_id_in_heartbeat: false,
    sync_source_host_in_oplog_query_data: Told::IfThere,
    max_time_ms_op_only: false,
    wall_times_in_members: false,
    majority_wall_time_in_status: true,
    hello_by_op_msg: false,
    internal_cluster_time_unsigned: false,
    key_file_by_sha_1: true,
    min_valid_follows_applied: true,
    cache_reader_refuses_keys: true,
    quiesces: false,
    resume_tokens_name_initial_sync: false,
    oplog_tokens_are_times: false,
    resume_token_rule: "the '_resumeAfter' object must contain exactly one field named '$recordId', of type NumberLong.",
    lost_place_frame: ". recordId: ",
    lost_tail_names_executor: false,
    typed_reads: false,
    typed_commands: false,
    strict_fields: false,
    stable_api: false,
    op_query_serves_all: true,
    answers_http: true,
    takes_let: false,
    takes_ntoreturn: true,
    distinct_takes_hint: false,
    pipelines_are_bounded: false,
    disk_use_by_default: false,
    snapshot_reads: false,
    explain_takes_concerns: false,
    user_cache_on_admin_only: true,
    one_user_a_connection: false,
    login_comes_first: false,
    build_info: BuildInfoShape::Classic,
    idl_codes_have_names: false,
    parameter_errors_have_codes: false,
    error_starts_with_operation_time: true,
    executor_errors_name_collection: false,
    aggregate_errors_name_executor: false,
    available_query_options: 254,
    hello_compression_first: false,
    log_lines_end_in_newline: false,
    connection_status_uuid: false,
    host_info_cores: false,
    implicit_rw_concern: false,
    typed_index_specs: false,
    config_debug_dump: false,
    database_sizes_are_longs: false,
    statistics_are_longs: false,
    free_storage_unasked: false,
    orphan_counts: false,
    db_hash_by_capped_order: false,
    roles_show_id: false,
    strongest_mechanism_first: false,
    sessions_show_transactions: false,
};

const V5_0: Profile = Profile {
    release: Release::V5_0,
    fcv: "5.0",
    version: "5.0.3",
    version_array: [5, 0, 3, 0],
    git_version: "657fea5a61a74d7a79df7aff8e4bcf0bc742b748",
    wire_version: 13,
    config_term_always: true,
    oplog_tokens_are_times: true,
    resume_token_rule: "the '_resumeAfter' object must contain exactly one field named '$recordId', of type NumberLong, jstOID or jstNULL.",
    lost_tail_names_executor: true,
    primary_index_in_repl_data: false,
    no_config_version: i32::MAX as i64,
    sync_source_host_in_oplog_query_data: Told::Never,
    max_time_ms_op_only: true,
    majority_wall_time_in_status: false,
    quiesces: true,
    typed_reads: true,
    strict_fields: true,
    stable_api: true,
    takes_let: true,
    pipelines_are_bounded: true,
    snapshot_reads: true,
    error_starts_with_operation_time: false,
    aggregate_errors_name_executor: true,
    available_query_options: 246,
    implicit_rw_concern: true,
    typed_index_specs: true,
    database_sizes_are_longs: true,
    free_storage_unasked: true,
    roles_show_id: true,
    strongest_mechanism_first: true,
    ..V4_4
};

const V6_0: Profile = Profile {
    release: Release::V6_0,
    fcv: "6.0",
    version: "6.0.0",
    version_array: [6, 0, 0, 0],
    git_version: "e61bf27c2f6a83fed36e5a13c008a32d563babe2",
    wire_version: 17,
    primary_id_in_heartbeat: true,
    sync_source_host_in_oplog_query_data: Told::Always,
    wall_times_in_members: true,
    hello_by_op_msg: true,
    cache_reader_refuses_keys: false,
    typed_commands: true,
    op_query_serves_all: false,
    takes_ntoreturn: false,
    distinct_takes_hint: true,
    disk_use_by_default: true,
    user_cache_on_admin_only: false,
    statistics_are_longs: true,
    free_storage_unasked: false,
    orphan_counts: true,
    ..V5_0
};

const V7_0: Profile = Profile {
    release: Release::V7_0,
    fcv: "7.0",
    version: "7.0.0",
    version_array: [7, 0, 0, 0],
    git_version: "37d84072b5c5b9fd723db5fa133fb202ad2317f1",
    wire_version: 21,
    idl_codes_have_names: true,
    ..V6_0
};

const V8_0: Profile = Profile {
    release: Release::V8_0,
    fcv: "8.0",
    version: "8.0.0",
    version_array: [8, 0, 0, 0],
    git_version: "d7cd03b239ac39a3c7d63f7145e91aca36f93db6",
    wire_version: 25,
    has_written: true,
    internal_cluster_time_unsigned: true,
    key_file_by_sha_1: false,
    min_valid_follows_applied: false,
    resume_tokens_name_initial_sync: true,
    resume_token_rule: "the '$_resumeAfter' object must contain '$recordId', of type NumberLong, BinData or jstNULL and optional '$initialSyncId of type BinData.",
    lost_place_frame: ": ",
    answers_http: false,
    explain_takes_concerns: true,
    one_user_a_connection: true,
    login_comes_first: true,
    parameter_errors_have_codes: true,
    executor_errors_name_collection: true,
    hello_compression_first: true,
    log_lines_end_in_newline: true,
    connection_status_uuid: true,
    host_info_cores: true,
    sessions_show_transactions: true,
    ..V7_0
};

const V8_1: Profile = Profile {
    release: Release::V8_1,
    fcv: "8.1",
    version: "8.1.2",
    version_array: [8, 1, 2, 0],
    git_version: "nogitversion",
    wire_version: 26,
    ..V8_0
};

const V8_2: Profile = Profile {
    release: Release::V8_2,
    fcv: "8.2",
    version: "8.2.0",
    version_array: [8, 2, 0, 0],
    git_version: "13e629eeccd63f00d17568fc4c12b7530fa34b54",
    wire_version: 27,
    build_info: BuildInfoShape::Idl,
    config_debug_dump: true,
    db_hash_by_capped_order: true,
    ..V8_1
};

// Since 5.1 the wire version grows by one per release, so the numbers of these two follow from 8.2's.
const V8_3: Profile = Profile {
    release: Release::V8_3,
    fcv: "8.3",
    version: "8.3.0",
    version_array: [8, 3, 0, 0],
    git_version: "nogitversion",
    wire_version: 28,
    ..V8_2
};

const V9_0: Profile = Profile {
    release: Release::V9_0,
    fcv: "9.0",
    version: "9.0.0",
    version_array: [9, 0, 0, 0],
    git_version: "nogitversion",
    wire_version: 29,
    ..V8_3
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_name_and_wire_version() {
        assert_eq!(Profile::named("8.2").unwrap().wire_version, 27);
        assert_eq!(Profile::named("5.0.3").unwrap().release, Release::V5_0);
        assert_eq!(Profile::named("6.0.27").unwrap().release, Release::V6_0);
        assert_eq!(Profile::named("8"), None);
        assert_eq!(Profile::named("8.20"), None);
        let release = |wire| Profile::for_wire_version(wire).map(|profile| profile.release);
        assert_eq!(release(8), None);
        assert_eq!(release(9), Some(Release::V4_4));
        assert_eq!(release(14), Some(Release::V5_0), "5.1 is shown as the release before it");
        assert_eq!(release(26), Some(Release::V8_1));
        assert_eq!(release(99), Some(Release::NEWEST));
        assert!(Profile::is_unknown(99) && !Profile::is_unknown(29));
    }

    #[test]
    fn rows_are_in_order_and_each_release_has_its_own() {
        assert!(ROWS.is_sorted_by_key(|profile| profile.wire_version));
        for row in ROWS {
            assert_eq!(row.release.profile(), *row);
            let [major, minor, ..] = row.version_array;
            assert_eq!(row.fcv, format!("{major}.{minor}"));
            assert!(row.version.starts_with(row.fcv));
        }
        assert_eq!(ROWS.first().unwrap().release, Release::OLDEST);
        assert_eq!(ROWS.last().unwrap().release, Release::NEWEST);
    }
}

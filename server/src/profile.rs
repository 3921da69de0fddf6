//! Whom we look like: one profile per MongoDB version, all of it data.
//!
//! A node mirrors the set that it joins; `--impersonate` pins a version. Where two versions answer
//! differently, the difference is a field here and never an `if version` elsewhere.

/// What a version of MongoDB shows to clients and members.
#[derive(Debug, PartialEq)]
pub struct Profile {
    /// Feature compatibility version, and the name of the profile: `8.2`.
    pub fcv: &'static str,
    /// `version` of buildInfo.
    pub version: &'static str,
    /// `versionArray` of buildInfo.
    pub version_array: [i32; 4],
    /// `gitVersion` of buildInfo.
    pub git_version: &'static str,
    /// Highest wire version, and the only one for internal clients.
    pub wire_version: i32,
    /// The order and spelling of buildInfo's fields.
    pub build_info: BuildInfoShape,
    /// Codes 40414 and 40415 have names.
    pub idl_codes_have_names: bool,
    /// Errors of getLog, getParameter and setParameter carry a code.
    pub parameter_errors_have_codes: bool,
    /// `operationTime` stands at the beginning of an error reply.
    pub error_starts_with_operation_time: bool,
    /// Internal clients get `$clusterTime` without a signature.
    pub internal_cluster_time_unsigned: bool,
    /// OP_QUERY serves every command, not only the handshake.
    pub op_query_serves_all: bool,
    /// `options` of availableQueryOptions, where the command exists.
    pub available_query_options: Option<i32>,
    /// ping and its like refuse fields that they don't know.
    pub strict_fields: bool,
    /// `compression` stands at the beginning of hello's reply, not at its end.
    pub hello_compression_first: bool,
    /// Lines of getLog end with a line break.
    pub log_lines_end_in_newline: bool,
    /// connectionStatus names the connection's UUID.
    pub connection_status_uuid: bool,
    /// hostInfo tells cores by their kinds.
    pub host_info_cores: bool,
    /// Resume tokens of scans carry `$initialSyncId`.
    pub resume_tokens_name_initial_sync: bool,
    /// A browser gets a sentence instead of a closed connection.
    pub answers_http: bool,
    /// getDefaultRWConcern knows the implicit defaults.
    pub implicit_rw_concern: bool,
    /// A member that is told to end lets its clients find another first.
    pub quiesces: bool,
    /// listIndexes shows each field of a spec in one place and with one type, whatever the command had.
    pub typed_index_specs: bool,
    /// dbHash goes through capped collections in natural order, not by `_id`.
    pub db_hash_by_capped_order: bool,
    /// A connection is one user's; earlier versions let a user of each database log in.
    pub one_user_a_connection: bool,
    /// "Command", not "command", requires authentication; and nobody is told what is only on `admin`.
    pub login_comes_first: bool,
    /// Errors while documents are read name the collection.
    pub executor_errors_name_collection: bool,
    /// `allowDiskUse` is true unless a command says otherwise.
    pub disk_use_by_default: bool,
    /// Read concern snapshot is there outside of transactions.
    pub snapshot_reads: bool,
    /// A pipeline has an end: a thousand stages.
    pub pipelines_are_bounded: bool,
    /// Sessions are shown with what a transaction within them would add to their name.
    pub sessions_show_transactions: bool,
    /// explain takes every read concern.
    pub explain_takes_concerns: bool,
    /// Commands that read take variables.
    pub takes_let: bool,
}

/// The order and spelling of buildInfo's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildInfoShape {
    /// `sysInfo`, and `versionArray` after it.
    Classic,
    /// `versionArray` second, `sysinfo`.
    Idl,
}

impl Profile {
    /// What its query language has.
    pub fn release(&self) -> query::Release {
        let [major, minor, ..] = self.version_array;
        query::Release(major, minor)
    }

    /// All profiles, oldest first.
    pub fn all() -> &'static [Profile] {
        PROFILES
    }

    /// The profile called `8.2`, also by a full version `8.2.1`.
    pub fn named(text: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| {
            text.strip_prefix(profile.fcv)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The newest profile whose wire version is not above `wire_version`.
    pub fn for_wire_version(wire_version: i32) -> Option<&'static Profile> {
        PROFILES.iter().rev().find(|profile| profile.wire_version <= wire_version)
    }

    /// What is shown until the set's version is known.
    pub fn newest() -> &'static Profile {
        &V8_2
    }
}

static PROFILES: &[Profile] = &[V4_4, V5_0, V6_0, V7_0, V8_0, V8_2];

const V4_4: Profile = Profile {
    fcv: "4.4",
    version: "4.4.10",
    version_array: [4, 4, 10, 0],
    git_version: "58971da1ef93435a9f62bf4708a81713def6e88c",
    wire_version: 9,
    build_info: BuildInfoShape::Classic,
    idl_codes_have_names: false,
    parameter_errors_have_codes: false,
    error_starts_with_operation_time: true,
    internal_cluster_time_unsigned: false,
    op_query_serves_all: true,
    available_query_options: Some(254),
    strict_fields: false,
    hello_compression_first: false,
    log_lines_end_in_newline: false,
    connection_status_uuid: false,
    host_info_cores: false,
    answers_http: true,
    resume_tokens_name_initial_sync: false,
    implicit_rw_concern: false,
    quiesces: false,
    typed_index_specs: false,
    db_hash_by_capped_order: false,
    one_user_a_connection: false,
    login_comes_first: false,
    executor_errors_name_collection: false,
    disk_use_by_default: false,
    snapshot_reads: false,
    pipelines_are_bounded: false,
    sessions_show_transactions: false,
    explain_takes_concerns: false,
    takes_let: false,
};

const V5_0: Profile = Profile {
    fcv: "5.0",
    version: "5.0.3",
    version_array: [5, 0, 3, 0],
    git_version: "657fea5a61a74d7a79df7aff8e4bcf0bc742b748",
    wire_version: 13,
    error_starts_with_operation_time: false,
    available_query_options: Some(246),
    strict_fields: true,
    implicit_rw_concern: true,
    quiesces: true,
    typed_index_specs: true,
    snapshot_reads: true,
    pipelines_are_bounded: true,
    takes_let: true,
    ..V4_4
};

const V6_0: Profile = Profile {
    fcv: "6.0",
    version: "6.0.0",
    version_array: [6, 0, 0, 0],
    git_version: "e61bf27c2f6a83fed36e5a13c008a32d563babe2",
    wire_version: 17,
    op_query_serves_all: false,
    available_query_options: None,
    disk_use_by_default: true,
    ..V5_0
};

const V7_0: Profile = Profile {
    fcv: "7.0",
    version: "7.0.0",
    version_array: [7, 0, 0, 0],
    git_version: "37d84072b5c5b9fd723db5fa133fb202ad2317f1",
    wire_version: 21,
    idl_codes_have_names: true,
    ..V6_0
};

const V8_0: Profile = Profile {
    fcv: "8.0",
    version: "8.0.0",
    version_array: [8, 0, 0, 0],
    git_version: "d7cd03b239ac39a3c7d63f7145e91aca36f93db6",
    wire_version: 25,
    parameter_errors_have_codes: true,
    internal_cluster_time_unsigned: true,
    hello_compression_first: true,
    log_lines_end_in_newline: true,
    connection_status_uuid: true,
    one_user_a_connection: true,
    login_comes_first: true,
    host_info_cores: true,
    answers_http: false,
    resume_tokens_name_initial_sync: true,
    executor_errors_name_collection: true,
    explain_takes_concerns: true,
    sessions_show_transactions: true,
    ..V7_0
};

const V8_2: Profile = Profile {
    fcv: "8.2",
    version: "8.2.0",
    version_array: [8, 2, 0, 0],
    git_version: "13e629eeccd63f00d17568fc4c12b7530fa34b54",
    wire_version: 27,
    build_info: BuildInfoShape::Idl,
    db_hash_by_capped_order: true,
    ..V8_0
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_by_name_and_wire_version() {
        assert_eq!(Profile::named("8.2").unwrap().wire_version, 27);
        assert_eq!(Profile::named("5.0.3").unwrap().fcv, "5.0");
        assert_eq!(Profile::named("8"), None);
        assert_eq!(Profile::named("8.20"), None);
        assert_eq!(Profile::for_wire_version(26).unwrap().fcv, "8.0");
        assert_eq!(Profile::for_wire_version(13).unwrap().fcv, "5.0");
        assert_eq!(Profile::for_wire_version(8), None);
    }

    #[test]
    fn profiles_are_in_order() {
        assert!(PROFILES.is_sorted_by_key(|profile| profile.wire_version));
        assert_eq!(Profile::newest(), PROFILES.last().unwrap());
    }
}

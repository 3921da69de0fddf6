//! Which MongoDB version we show: impersonation is data.
//!
//! A node shows the version of the set that it joins. The version is known by its highest wire
//! version, which is told by the first peer that talks to us, before there is a config.

/// What differs on the wire from one MongoDB version to another.
#[derive(PartialEq, Eq, Debug)]
pub struct Profile {
    /// `buildInfo.version`.
    pub version: &'static str,
    /// The feature compatibility version of this release.
    pub fcv: &'static str,
    /// Highest wire version; also the lowest for internal clients.
    pub max_wire_version: i32,
    /// 8.0 split writing from applying: `writtenOpTime` in heartbeats and reports, `lastOpWritten`, and
    /// durable may be ahead of applied.
    pub has_written: bool,
    /// 4.4 writes `configTerm` in heartbeat replies only if there is one.
    pub config_term_always: bool,
    /// 4.4 writes `primaryIndex` in `$replData`.
    pub primary_index_in_repl_data: bool,
    /// What `$replData.configVersion` is without a config.
    pub no_config_version: i64,
    /// `primaryId` in heartbeat requests and in `primaryId`-less replies (late 5.0 and later).
    pub primary_id_in_heartbeat: bool,
    /// `syncSourceHost` in `$oplogQueryData`.
    pub sync_source_host_in_oplog_query_data: Told,
    /// `maxTimeMSOpOnly` in internal requests.
    pub max_time_ms_op_only: bool,
    /// `lastAppliedWallTime` and the like for each member of `replSetGetStatus`.
    pub wall_times_in_members: bool,
    /// 4.4 has `readConcernMajorityWallTime` in `replSetGetStatus`.
    pub majority_wall_time_in_status: bool,
    /// The handshake that its clients send: `hello` by OP_MSG (8.x), or `isMaster` by OP_QUERY.
    pub hello_by_op_msg: bool,
}

/// Whether a version writes a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It does not know it.
    Never,
    /// Where there is something to tell.
    IfThere,
    /// Empty where there is nothing to tell.
    Always,
}

impl Profile {
    /// The profile of the release with this highest wire version, or of the one before it.
    pub fn by_wire_version(max_wire_version: i32) -> Option<&'static Self> {
        PROFILES.iter().rev().find(|profile| profile.max_wire_version <= max_wire_version)
    }

    /// The profile of `4.4`, `8.2`, `8.2.0` and the like.
    pub fn by_version(version: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.version == version || profile.fcv == version)
    }

    /// What is shown as long as no set is known.
    pub fn newest() -> &'static Self {
        V8_2
    }
}

static PROFILES: [Profile; 7] = [
    Profile {
        version: "4.4.10",
        fcv: "4.4",
        max_wire_version: 9,
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
    },
    Profile {
        version: "5.0.3",
        fcv: "5.0",
        max_wire_version: 13,
        primary_id_in_heartbeat: false,
        sync_source_host_in_oplog_query_data: Told::Never,
        wall_times_in_members: false,
        hello_by_op_msg: false,
        ..modern("", "", 0, false)
    },
    modern("6.0.27", "6.0", 17, false),
    modern("7.0.28", "7.0", 21, false),
    modern("8.0.17", "8.0", 25, true),
    modern("8.1.2", "8.1", 26, true),
    modern("8.2.0", "8.2", 27, true),
];

static V8_2: &Profile = &PROFILES[6];

const fn modern(
    version: &'static str,
    fcv: &'static str,
    max_wire_version: i32,
    has_written: bool,
) -> Profile {
    Profile {
        version,
        fcv,
        max_wire_version,
        has_written,
        config_term_always: true,
        primary_index_in_repl_data: false,
        no_config_version: i32::MAX as i64,
        primary_id_in_heartbeat: true,
        sync_source_host_in_oplog_query_data: Told::Always,
        max_time_ms_op_only: true,
        wall_times_in_members: true,
        majority_wall_time_in_status: false,
        hello_by_op_msg: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_version_names_its_release_or_the_one_before() {
        let version = |wire| Profile::by_wire_version(wire).map(|profile| profile.fcv);
        assert_eq!(version(9), Some("4.4"));
        assert_eq!(version(13), Some("5.0"));
        assert_eq!(version(14), Some("5.0"));
        assert_eq!(version(27), Some("8.2"));
        assert_eq!(version(99), Some("8.2"));
        assert_eq!(version(8), None);
    }

    #[test]
    fn releases_are_in_order() {
        assert!(PROFILES.is_sorted_by_key(|profile| profile.max_wire_version));
        assert_eq!(Profile::newest().fcv, "8.2");
        assert_eq!(Profile::by_version("5.0").unwrap().max_wire_version, 13);
    }
}

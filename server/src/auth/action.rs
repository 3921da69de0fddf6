//! MongoDB's action types.

use std::fmt;

/// One action, by its index in [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action(u8);

/// The action with this name; an unknown name in a constant does not compile.
pub const fn action(name: &str) -> Action {
    let mut at = 0;
    #[allow(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        reason = "below NAMES.len(), which is below 256"
    )]
    while at < NAMES.len() {
        if same(NAMES[at].as_bytes(), name.as_bytes()) {
            return Action(at as u8);
        }
        at += 1;
    }
    panic!("no action has this name")
}

#[allow(clippy::indexing_slicing, reason = "both have the length that bounds the index")]
const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl Action {
    /// The action with this name; `None` for an action of another release.
    pub fn by_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|known| *known == name).and_then(|at| u8::try_from(at).ok()).map(Self)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.get(usize::from(self.0)).copied().unwrap_or_default()
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ActionSet([u64; WORDS]);

const WORDS: usize = 3;
const ANY: Action = action("anyAction");

impl ActionSet {
    /// Adds an action.
    pub fn insert(&mut self, action: Action) {
        if let Some(word) = self.0.get_mut(usize::from(action.0 / 64)) {
            *word |= 1 << (action.0 % 64);
        }
    }

    /// Adds the actions of another set.
    pub fn extend(&mut self, other: Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// True if the set contains the action, or `anyAction`.
    pub fn allows(self, action: Action) -> bool {
        self.contains(action) || self.contains(ANY)
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The actions in mongod's order.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        (0u8..).take(NAMES.len()).map(Action).filter(move |action| self.contains(*action))
    }

    fn contains(self, action: Action) -> bool {
        self.0.get(usize::from(action.0 / 64)).is_some_and(|word| word >> (action.0 % 64) & 1 == 1)
    }
}

impl FromIterator<Action> for ActionSet {
    fn from_iter<T: IntoIterator<Item = Action>>(actions: T) -> Self {
        let mut set = Self::default();
        actions.into_iter().for_each(|action| set.insert(action));
        set
    }
}

impl fmt::Debug for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// All actions of 4.4 to 8.2, in the order of 8.2; older and internal ones at the end.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "addShard", "analyze", "analyzeShardKey", "bypassDocumentValidation", "changeCustomData",
    "changePassword", "changeStream", "clearJumboFlag", "cleanupStructuredEncryptionData",
    "collMod", "collStats", "dbCheck", "exportCollection", "importCollection",
    "listClusterCatalog", "allCollectionStats", "appendOplogNote", "applicationMessage",
    "auditConfigure", "authSchemaUpgrade", "bypassDefaultMaxTimeMS", "bypassWriteBlockingMode",
    "checkMetadataConsistency", "cleanupOrphaned", "configureBackgroundTask", "compact",
    "compactStructuredEncryptionData", "configureQueryAnalyzer", "connPoolStats",
    "connPoolSync", "convertToCapped", "createCollection", "createIndex", "createRole",
    "createSearchIndexes", "createUser", "dbHash", "dbStats", "dropCollection",
    "dropConnections", "dropDatabase", "dropIndex", "dropRole", "dropSearchIndex", "dropUser",
    "enableProfiler", "enableSharding", "find", "flushRouterConfig", "forceUUID", "fsync",
    "getClusterParameter", "getDatabaseVersion", "getDefaultRWConcern", "getCmdLineOpts",
    "getLog", "getParameter", "getShardMap", "getShardVersion", "grantRole", "hostInfo",
    "indexStats", "inprog", "insert", "invalidateUserCache", "issueDirectShardOperations",
    "killAnyCursor", "killAnySession", "killCursors", "killop", "listCachedAndActiveUsers",
    "listCollections", "listDatabases", "listIndexes", "listSampledQueries",
    "listSearchIndexes", "listSessions", "listShards", "logRotate", "netstat", "oidcListKeys",
    "oidcRefreshKeys", "oidReset", "querySettings", "queryStatsRead",
    "queryStatsReadTransformed", "removeShard", "replSetConfigure", "replSetGetConfig",
    "replSetGetStatus", "replSetResizeOplog", "replSetStateChange", "resync",
    "rotateCertificates", "serverStatus", "setClusterParameter", "setDefaultRWConcern",
    "setFeatureCompatibilityVersion", "setParameter", "setUserWriteBlockMode",
    "shardedDataDistribution", "shardingState", "shutdown", "top", "touch", "trafficRecord",
    "transitionFromDedicatedConfigServer", "transitionToDedicatedConfigServer", "unlock",
    "updateSearchIndex", "moveChunk", "moveCollection", "planCacheIndexFilter", "planCacheRead",
    "planCacheWrite", "performRawDataOperations", "refineCollectionShardKey", "reIndex",
    "remove", "renameCollectionSameDB", "reshardCollection", "revokeRole",
    "setAuthenticationRestriction", "splitChunk", "splitVector", "storageDetails",
    "unshardCollection", "update", "useTenant", "useUUID", "validate", "viewRole", "viewUser",
    "applyOps", "setChangeStreamState", "getChangeStreamState", "advanceClusterTime", "changeOwnCustomData", "changeOwnPassword",
    "checkFreeMonitoringStatus", "cpuProfiler", "emptycapped", "impersonate", "internal",
    "operationMetrics", "reapLogicalSession", "runAsLessPrivilegedUser", "runTenantMigration",
    "setFreeMonitoring", "anyAction",
];

const _: () = assert!(NAMES.len() <= 64 * WORDS, "a set has a bit for each");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: ActionSet = [action("find"), action("viewUser")].into_iter().collect();
        assert!(set.allows(action("find")) && set.allows(action("viewUser")));
        assert!(!set.allows(action("insert")) && !set.is_empty());
        assert_eq!(set.iter().map(Action::name).collect::<Vec<_>>(), ["find", "viewUser"]);
        assert_eq!(Action::by_name("fly"), None);
    }

    #[test]
    fn any_action_is_every_action() {
        let set: ActionSet = [action("anyAction")].into_iter().collect();
        assert!(set.allows(action("internal")));
    }

    #[test]
    fn each_has_one_name() {
        let names: std::collections::HashSet<_> = NAMES.iter().collect();
        assert_eq!(names.len(), NAMES.len());
    }
}

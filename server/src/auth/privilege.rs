//! Privileges: actions on resources, and whether they cover a target.
//!
//! ```text
//!   wanted: find on shop.carts                        covered by   { anyResource }
//!                                                                  { db: "", collection: "" }      not local, not config
//!                                                                  { db: "shop", collection: "" }
//!                                                                  { db: "", collection: "carts" }
//!                                                                  { db: "shop", collection: "carts" }
//! ```
//! A system collection is covered only by patterns that name the collection; `local.replset.*` count as system
//! collections.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::action::{Action, ActionSet};

/// The resource of a privilege, as in role documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Everything.
    Any,
    /// The cluster itself.
    Cluster,
    /// A collection; an empty name means any.
    Collection {
        /// The database; empty means any.
        db: String,
        /// The collection; empty means any except system collections.
        coll: String,
    },
    /// The buckets of time-series collections; an empty name means any.
    Buckets {
        /// The database; empty means any.
        db: String,
        /// The time-series collection; empty means any.
        coll: String,
    },
}

/// What a command accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// The cluster.
    Cluster,
    /// A database as a whole.
    Database(&'a str),
    /// A collection.
    Collection(&'a str, &'a str),
    /// All user databases.
    AnyNormal,
}

const BUCKETS: &str = "system.buckets.";

impl Resource {
    /// Parses the resource of a role document; `None` for an unknown form.
    pub fn parse(doc: &RawDocument) -> Option<Self> {
        let text = |name| doc.get_str(name).ok().map(str::to_owned);
        let flag = |name| matches!(doc.get(name), Ok(Some(RawBsonRef::Boolean(true))));
        if flag("anyResource") {
            return Some(Self::Any);
        }
        if flag("cluster") {
            return Some(Self::Cluster);
        }
        if let Some(coll) = text("system_buckets") {
            return Some(Self::Buckets { db: text("db").unwrap_or_default(), coll });
        }
        Some(Self::Collection { db: text("db")?, coll: text("collection")? })
    }

    /// The document in mongod's format.
    pub fn to_raw(&self) -> RawDocumentBuf {
        match self {
            Self::Any => rawdoc! { "anyResource": true },
            Self::Cluster => rawdoc! { "cluster": true },
            Self::Collection { db, coll } => {
                rawdoc! { "db": db.as_str(), "collection": coll.as_str() }
            }
            Self::Buckets { db, coll } if db.is_empty() => {
                rawdoc! { "system_buckets": coll.as_str() }
            }
            Self::Buckets { db, coll } => {
                rawdoc! { "db": db.as_str(), "system_buckets": coll.as_str() }
            }
        }
    }

    /// True if a privilege on this resource applies to the target.
    pub fn covers(&self, target: Target<'_>) -> bool {
        match (self, target) {
            (Self::Any, _) | (Self::Cluster, Target::Cluster) => true,
            (Self::Cluster, _) | (_, Target::Cluster) => false,
            (Self::Collection { db, coll }, Target::AnyNormal) => db.is_empty() && coll.is_empty(),
            (Self::Collection { db, coll }, Target::Database(wanted)) => {
                coll.is_empty() && covers_db(db, wanted)
            }
            (Self::Collection { db, coll }, Target::Collection(wanted_db, wanted)) => {
                if coll.is_empty() {
                    is_normal(wanted_db, wanted) && covers_db(db, wanted_db)
                } else {
                    coll == wanted && (db.is_empty() || db == wanted_db)
                }
            }
            (Self::Buckets { .. }, Target::Database(_) | Target::AnyNormal) => false,
            (Self::Buckets { db, coll }, Target::Collection(wanted_db, wanted)) => {
                wanted.strip_prefix(BUCKETS).is_some_and(|of| coll.is_empty() || coll == of)
                    && (db.is_empty() || db == wanted_db)
            }
        }
    }

    /// True if it covers anything in the database.
    fn touches(&self, wanted: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Cluster => false,
            Self::Collection { db, coll } if coll.is_empty() => covers_db(db, wanted),
            Self::Collection { db, .. } | Self::Buckets { db, .. } => db.is_empty() || db == wanted,
        }
    }
}

/// "Any database" means the user databases.
fn covers_db(pattern: &str, db: &str) -> bool {
    if pattern.is_empty() { !matches!(db, "local" | "config") } else { pattern == db }
}

fn is_normal(db: &str, coll: &str) -> bool {
    !(coll.starts_with("system.") || db == "local" && coll.starts_with("replset."))
}

/// A set of privileges.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Privileges(Vec<(Resource, ActionSet)>);

impl Privileges {
    /// Adds actions on a resource.
    pub fn add(&mut self, resource: Resource, actions: ActionSet) {
        if actions.is_empty() {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, known)) => known.extend(actions),
            None => self.0.push((resource, actions)),
        }
    }

    /// Adds all privileges of another set.
    pub fn extend(&mut self, other: &Self) {
        for (resource, actions) in &other.0 {
            self.add(resource.clone(), *actions);
        }
    }

    /// True if the action on the target is allowed.
    pub fn allow(&self, target: Target<'_>, action: Action) -> bool {
        self.0.iter().any(|(resource, actions)| actions.allows(action) && resource.covers(target))
    }

    /// True if any action is allowed on the target.
    pub fn touch(&self, target: Target<'_>) -> bool {
        self.0.iter().any(|(resource, _)| resource.covers(target))
    }

    /// True if any action is allowed on anything in the database.
    pub(crate) fn touch_within(&self, db: &str) -> bool {
        self.0.iter().any(|(resource, _)| resource.touches(db))
    }

    /// Iterates over the privileges.
    pub fn iter(&self) -> impl Iterator<Item = &(Resource, ActionSet)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::action::action, *};

    fn on(db: &str, coll: &str) -> Resource {
        Resource::Collection { db: db.to_owned(), coll: coll.to_owned() }
    }

    /// Each row: resource, target, whether the resource covers it.
    #[test]
    fn patterns_cover_what_mongod_lets_them_cover() {
        let coll = Target::Collection;
        let buckets = Resource::Buckets { db: String::new(), coll: String::new() };
        let of_t = Resource::Buckets { db: "d".to_owned(), coll: "t".to_owned() };
        let cases = [
            (Resource::Any, Target::Cluster, true),
            (Resource::Any, coll("local", "system.replset"), true),
            (Resource::Cluster, Target::Cluster, true),
            (Resource::Cluster, Target::Database("d"), false),
            (on("", ""), Target::Cluster, false),
            (on("", ""), coll("d", "c"), true),
            (on("", ""), coll("local", "c"), false),
            (on("", ""), coll("config", "c"), false),
            (on("", ""), coll("d", "system.users"), false),
            (on("", ""), Target::Database("d"), true),
            (on("", ""), Target::Database("local"), false),
            (on("d", ""), coll("d", "c"), true),
            (on("d", ""), coll("e", "c"), false),
            (on("d", ""), coll("d", "system.js"), false),
            (on("local", ""), coll("local", "oplog.rs"), true),
            (on("local", ""), coll("local", "replset.minvalid"), false),
            (on("local", "replset.minvalid"), coll("local", "replset.minvalid"), true),
            (on("d", ""), Target::Database("d"), true),
            (on("", "system.js"), coll("d", "system.js"), true),
            (on("", "system.js"), coll("local", "system.js"), true),
            (on("d", "c"), coll("d", "c"), true),
            (on("d", "c"), coll("d", "cc"), false),
            (on("d", "c"), Target::Database("d"), false),
            (on("", ""), coll("d", "system.buckets.t"), false),
            (buckets.clone(), coll("d", "system.buckets.t"), true),
            (buckets, coll("d", "t"), false),
            (of_t.clone(), coll("d", "system.buckets.t"), true),
            (of_t, coll("d", "system.buckets.u"), false),
        ];
        for (resource, target, covers) in cases {
            assert_eq!(resource.covers(target), covers, "{resource:?} {target:?}");
        }
    }

    #[test]
    fn privileges_add_up() {
        let mut privileges = Privileges::default();
        privileges.add(on("d", "c"), [action("find")].into_iter().collect());
        privileges.add(on("d", "c"), [action("insert")].into_iter().collect());
        privileges.add(on("e", "x"), ActionSet::default());
        assert_eq!(privileges.iter().count(), 1);
        assert!(privileges.allow(Target::Collection("d", "c"), action("insert")));
        assert!(!privileges.allow(Target::Collection("d", "c"), action("remove")));
        assert!(privileges.touch(Target::Collection("d", "c")));
        assert!(privileges.touch_within("d") && !privileges.touch_within("e"));
    }

    #[test]
    fn documents_are_read_and_written() {
        for doc in [
            rawdoc! { "anyResource": true },
            rawdoc! { "cluster": true },
            rawdoc! { "db": "d", "collection": "" },
            rawdoc! { "system_buckets": "" },
            rawdoc! { "db": "d", "system_buckets": "t" },
        ] {
            assert_eq!(Resource::parse(&doc).unwrap().to_raw(), doc);
        }
        assert_eq!(Resource::parse(&rawdoc! { "galaxy": true }), None);
    }
}

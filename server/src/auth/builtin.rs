//! MongoDB's built-in roles per release, as real servers list them.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{
    action::{Action, ActionSet},
    privilege::{Privileges, Resource},
};
use protocol::{Profile, Release};

/// All built-in roles of one release.
#[derive(Debug)]
pub struct BuiltinRoles(BTreeMap<&'static str, Role>);

#[derive(Debug)]
struct Role {
    of_every_database: bool,
    lines: Vec<(&'static str, ActionSet)>,
}

/// The roles of the release that is shown; for a release without its own list, those of a similar one.
pub fn of(profile: &Profile) -> &'static BuiltinRoles {
    static V4_4: LazyLock<BuiltinRoles> =
        LazyLock::new(|| parse(include_str!("builtin_roles/4.4.txt")));
    static V5_0: LazyLock<BuiltinRoles> =
        LazyLock::new(|| parse(include_str!("builtin_roles/5.0.txt")));
    static V8_2: LazyLock<BuiltinRoles> =
        LazyLock::new(|| parse(include_str!("builtin_roles/8.2.txt")));
    match profile.release {
        Release::V4_4 => &V4_4,
        // 8.0 has the roles of 8.2; 6.0 and 7.0 are closer to 5.0.
        Release::V5_0 | Release::V6_0 | Release::V7_0 => &V5_0,
        Release::V8_0 | Release::V8_1 | Release::V8_2 | Release::V8_3 | Release::V9_0 => &V8_2,
    }
}

impl BuiltinRoles {
    /// The privileges of `role@db`; `None` if it is not a built-in role.
    pub fn privileges(&self, role: &str, db: &str) -> Option<Privileges> {
        let role = self.0.get(role).filter(|role| role.of_every_database || db == "admin")?;
        let mut privileges = Privileges::default();
        for (resource, actions) in &role.lines {
            privileges.add(resource_of(resource, db), *actions);
        }
        Some(privileges)
    }

    /// The names of a database's built-in roles.
    pub fn names(&self, db: &str) -> impl Iterator<Item = &'static str> {
        let on_admin = db == "admin";
        let fits = move |(_, role): &(&&str, &Role)| on_admin || role.of_every_database;
        self.0.iter().filter(fits).map(|(name, _)| *name)
    }
}

fn parse(text: &'static str) -> BuiltinRoles {
    let mut roles = BTreeMap::new();
    let mut current = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix("role ") {
            let (name, of) = head.split_once(" of ").expect("a role's line names its databases");
            let role = Role { of_every_database: of == "every database", lines: Vec::new() };
            current = Some(name);
            roles.insert(name, role);
        } else {
            let (resource, actions) = line.trim().split_once(": ").expect("a resource has actions");
            let actions =
                actions.split(' ').map(|name| Action::by_name(name).expect("a known action"));
            let role = current.and_then(|name| roles.get_mut(name)).expect("a role comes first");
            role.lines.push((resource, actions.collect()));
        }
    }
    BuiltinRoles(roles)
}

fn resource_of(text: &str, db: &str) -> Resource {
    let part = |text: &str| match text {
        "*" => String::new(),
        "{db}" => db.to_owned(),
        name => name.to_owned(),
    };
    let (buckets, name) = match text.strip_prefix("buckets ") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    match (text, name.split_once('.')) {
        ("any", _) => Resource::Any,
        ("cluster", _) => Resource::Cluster,
        (_, Some((db, coll))) if buckets => Resource::Buckets { db: part(db), coll: part(coll) },
        (_, Some((db, coll))) => Resource::Collection { db: part(db), coll: part(coll) },
        (_, None) => unreachable!("the tables name resources as any, cluster or a.b"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{action::action, privilege::Target},
        *,
    };

    #[test]
    fn every_version_has_its_roles() {
        for profile in Profile::all() {
            let roles = of(profile);
            let read = roles.privileges("read", "d").unwrap();
            assert!(read.allow(Target::Collection("d", "c"), action("find")));
            assert!(!read.allow(Target::Collection("e", "c"), action("find")));
            assert!(!read.allow(Target::Collection("d", "c"), action("insert")));
            let system = roles.privileges("__system", "admin").unwrap();
            assert!(system.allow(Target::Cluster, action("internal")));
            assert!(roles.privileges("root", "d").is_none());
            assert!(roles.privileges("nobody", "admin").is_none());
            for name in roles.names("admin") {
                assert!(roles.privileges(name, "admin").is_some());
            }
            assert!(roles.names("d").count() < roles.names("admin").count());
        }
    }

    #[test]
    fn only_the_system_is_internal() {
        for profile in Profile::all() {
            let roles = of(profile);
            for name in roles.names("admin").filter(|name| *name != "__system") {
                let privileges = roles.privileges(name, "admin").unwrap();
                assert!(!privileges.allow(Target::Cluster, action("internal")), "{name}");
            }
        }
    }
}

//! A user, built from `admin.system.users` and the roles in `admin.system.roles`.

use std::{collections::BTreeSet, fmt, net::SocketAddr};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use protocol::{
    RawDoc,
    scram::{Credentials, Mechanism},
};
use sha2::{Digest as _, Sha256};

use super::{
    action::Action,
    builtin::BuiltinRoles,
    privilege::{Privileges, Resource},
    restriction::Restrictions,
};

/// A user's name: `name@db`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UserName {
    /// The user.
    pub user: String,
    /// The user's database.
    pub db: String,
}

/// A role's name: `name@db`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoleName {
    /// The role.
    pub role: String,
    /// The role's database.
    pub db: String,
}

/// Identifies a user in sessions: the SHA-256 of `name@db`, or of the empty string if nobody is logged in.
pub type Digest = [u8; 32];

impl UserName {
    /// The digest of a user, or of no user.
    pub fn digest(of: Option<&Self>) -> Digest {
        Sha256::digest(of.map(Self::to_string).unwrap_or_default()).into()
    }

    /// Parses `{user, db}`.
    pub fn parse(doc: &RawDocument) -> Option<Self> {
        Some(Self::new(doc.get_str("user").ok()?, doc.get_str("db").ok()?))
    }

    /// The name with which members log in.
    pub fn system() -> Self {
        Self::new("__system", "local")
    }

    /// Makes a name from its parts.
    pub fn new(user: &str, db: &str) -> Self {
        Self { user: user.to_owned(), db: db.to_owned() }
    }

    /// The `_id` of the user's document.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.user)
    }

    /// The document in mongod's format.
    pub fn to_raw(&self) -> RawDocumentBuf {
        rawdoc! { "user": self.user.as_str(), "db": self.db.as_str() }
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.db)
    }
}

impl RoleName {
    /// Makes a name from its parts.
    pub fn new(role: &str, db: &str) -> Self {
        Self { role: role.to_owned(), db: db.to_owned() }
    }

    /// The `_id` of the role's document.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.role)
    }

    /// The document in mongod's format.
    pub fn to_raw(&self) -> RawDocumentBuf {
        rawdoc! { "role": self.role.as_str(), "db": self.db.as_str() }
    }

    /// Parses `{role, db}`.
    pub fn parse(doc: &RawDocument) -> Option<Self> {
        Some(Self::new(doc.get_str("role").ok()?, doc.get_str("db").ok()?))
    }
}

/// A user with everything that its roles grant.
#[derive(Debug)]
pub struct User {
    /// The name.
    pub name: UserName,
    /// `userId`: a user that was dropped and created again has another one.
    pub id: Option<Vec<u8>>,
    /// The granted roles, in order.
    pub roles: Vec<RoleName>,
    /// The granted and inherited roles.
    pub all_roles: Vec<RoleName>,
    /// Its privileges.
    pub privileges: Privileges,
    /// Its stored credentials.
    pub credentials: Vec<Credentials>,
    /// It authenticates by other means than a password.
    pub external: bool,
    restrictions: Vec<Restrictions>,
}

/// Provides role documents.
pub trait RoleDocuments {
    /// The error of reading.
    type Error;
    /// The document of a custom role.
    fn role(&mut self, name: &RoleName) -> Result<Option<RawDoc>, Self::Error>;
}

/// The result of resolving roles with everything that they inherit.
#[derive(Default)]
pub struct Resolved {
    /// The roles themselves.
    pub roles: Vec<RoleName>,
    /// Their privileges.
    pub privileges: Privileges,
    /// Their authentication restrictions.
    pub restrictions: Vec<Restrictions>,
}

impl User {
    /// Resolves a user's roles.
    pub fn resolve<D: RoleDocuments>(
        name: UserName,
        doc: &RawDocument,
        builtin: &BuiltinRoles,
        documents: &mut D,
    ) -> Result<Self, D::Error> {
        let roles = role_names(doc);
        let resolved = resolve(&roles, builtin, documents)?;
        let mut restrictions = resolved.restrictions;
        restrictions.push(Restrictions::parse(doc));
        let credentials = doc.get_document("credentials").ok();
        let scram = |mechanism| credentials.and_then(|all| parse_credentials(mechanism, all));
        Ok(Self {
            name,
            id: doc.get_binary("userId").ok().map(|id| id.bytes.to_vec()),
            roles,
            all_roles: resolved.roles,
            privileges: resolved.privileges,
            credentials: [Mechanism::ScramSha1, Mechanism::ScramSha256]
                .into_iter()
                .filter_map(scram)
                .collect(),
            external: credentials.is_some_and(|all| all.get_bool("external").unwrap_or_default()),
            restrictions,
        })
    }

    /// A member of the set.
    pub fn member(name: UserName, builtin: &BuiltinRoles, credentials: Vec<Credentials>) -> Self {
        Self {
            name,
            id: None,
            privileges: builtin.privileges("__system", "admin").unwrap_or_default(),
            // These roles were not granted by anybody, so mongod shows none.
            all_roles: Vec::new(),
            roles: Vec::new(),
            credentials,
            external: false,
            restrictions: Vec::new(),
        }
    }

    /// The restrictions of its roles in mongod's format.
    pub(crate) fn restrictions_shown(&self) -> RawArrayBuf {
        let of_roles = self.restrictions.split_last().map_or(&[][..], |(_, of_roles)| of_roles);
        of_roles.iter().filter_map(Restrictions::to_raw).collect()
    }

    /// True if it may log in with these addresses.
    pub(crate) fn welcome_from(&self, remote: SocketAddr, local: SocketAddr) -> bool {
        self.restrictions.iter().all(|each| each.met(remote, local))
    }
}

/// The roles in a user or role document, in order.
pub(crate) fn role_names(doc: &RawDocument) -> Vec<RoleName> {
    let roles = doc.get_array("roles").ok();
    let roles = roles.into_iter().flatten().flatten();
    roles.filter_map(|role| RoleName::parse(role.as_document()?)).collect()
}

/// Resolves roles recursively; a missing role grants nothing, and cycles are detected.
pub fn resolve<D: RoleDocuments>(
    direct: &[RoleName],
    builtin: &BuiltinRoles,
    documents: &mut D,
) -> Result<Resolved, D::Error> {
    let mut resolved = Resolved::default();
    let mut seen = BTreeSet::new();
    let mut ahead: Vec<RoleName> = direct.iter().rev().cloned().collect();
    while let Some(name) = ahead.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(privileges) = builtin.privileges(&name.role, &name.db) {
            resolved.privileges.extend(&privileges);
            resolved.roles.push(name);
        } else if let Some(doc) = documents.role(&name)? {
            resolved.privileges.extend(&privileges_of(&doc));
            resolved.restrictions.push(Restrictions::parse(&doc));
            ahead.extend(role_names(&doc).into_iter().rev());
            resolved.roles.push(name);
        }
    }
    Ok(resolved)
}

/// A role document's own privileges. Actions of other releases are ignored.
pub(crate) fn privileges_of(doc: &RawDocument) -> Privileges {
    let mut privileges = Privileges::default();
    let list = doc.get_array("privileges").ok();
    for privilege in list.into_iter().flatten().flatten() {
        let RawBsonRef::Document(privilege) = privilege else { continue };
        let Some(resource) = privilege.get_document("resource").ok().and_then(Resource::parse)
        else {
            continue;
        };
        let actions = privilege.get_array("actions").ok();
        let actions = actions.into_iter().flatten().flatten();
        let actions = actions.filter_map(|action| Action::by_name(action.as_str()?));
        privileges.add(resource, actions.collect());
    }
    privileges
}

fn parse_credentials(mechanism: Mechanism, all: &RawDocument) -> Option<Credentials> {
    let doc = all.get_document(mechanism.name()).ok()?;
    let bytes = |name| BASE64.decode(doc.get_str(name).ok()?).ok();
    Some(Credentials {
        mechanism,
        salt: bytes("salt")?,
        iterations: u32::try_from(doc.get_i32("iterationCount").ok()?).ok()?,
        stored_key: bytes("storedKey")?,
        server_key: bytes("serverKey")?,
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, convert::Infallible};

    use super::{
        super::{action::action, builtin, privilege::Target},
        *,
    };
    use protocol::Profile;

    struct Memory(HashMap<&'static str, RawDocumentBuf>);

    impl RoleDocuments for Memory {
        type Error = Infallible;
        fn role(&mut self, name: &RoleName) -> Result<Option<RawDoc>, Infallible> {
            Ok(self.0.get(name.id().as_str()).cloned().map(RawDoc::from))
        }
    }

    fn user(
        doc: RawDocumentBuf,
        roles: impl IntoIterator<Item = (&'static str, RawDocumentBuf)>,
    ) -> User {
        let name = UserName::new("u", "admin");
        let mut roles = Memory(roles.into_iter().collect());
        User::resolve(name, &doc, builtin::of(Profile::newest_tested()), &mut roles).unwrap()
    }

    #[test]
    fn roles_are_followed_through_circles_and_gaps() {
        let reader = rawdoc! {
            "privileges": [{ "resource": { "db": "d", "collection": "c" }, "actions": ["find", "fly"] }],
            "roles": [{ "role": "writer", "db": "d" }, { "role": "gone", "db": "d" }],
        };
        let writer = rawdoc! {
            "privileges": [{ "resource": { "cluster": true }, "actions": ["serverStatus"] }],
            "roles": [{ "role": "reader", "db": "d" }, { "role": "read", "db": "e" }],
        };
        let doc = rawdoc! { "roles": [{ "role": "reader", "db": "d" }] };
        let user = user(doc, [("d.reader", reader), ("d.writer", writer)]);
        assert!(user.privileges.allow(Target::Collection("d", "c"), action("find")));
        assert!(user.privileges.allow(Target::Cluster, action("serverStatus")));
        assert!(user.privileges.allow(Target::Collection("e", "x"), action("find")));
        assert!(!user.privileges.allow(Target::Collection("d", "x"), action("find")));
        let names: Vec<_> = user.all_roles.iter().map(RoleName::id).collect();
        assert_eq!(names, ["d.reader", "d.writer", "e.read"]);
        assert_eq!(user.roles.len(), 1);
    }

    #[test]
    fn restrictions_of_the_user_and_of_each_role_count() {
        let role = rawdoc! { "authenticationRestrictions": [{ "clientSource": ["10.0.0.0/8"] }] };
        let doc = rawdoc! {
            "roles": [{ "role": "r", "db": "d" }],
            "authenticationRestrictions": [{ "clientSource": ["10.1.0.0/16", "11.0.0.0/8"] }],
        };
        let user = user(doc, [("d.r", role)]);
        let from = |ip: &str| {
            let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 1);
            user.welcome_from(at(ip), at("10.0.0.1"))
        };
        assert!(from("10.1.2.3") && !from("10.2.0.1") && !from("11.0.0.1"));
    }

    #[test]
    fn credentials_are_read_and_never_shown() {
        let doc = rawdoc! { "credentials": { "SCRAM-SHA-256": {
            "iterationCount": 15000, "salt": "AAAA", "storedKey": "c2VjcmV0", "serverKey": "c2VjcmV0",
        } } };
        let user = user(doc, []);
        assert_eq!(user.credentials[0].stored_key, b"secret");
        assert!(!format!("{user:?}").contains("ecret"));
    }
}

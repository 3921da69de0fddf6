//! Authentication and authorization.
//!
//! ```text
//!   saslStart, hello --> conversation --> login --> Who, per request --> may(target, action)
//!                            |                       |
//!                key file: __system            users: admin.system.users and system.roles, as applied
//! ```
//! A1 If access control is enabled, no command runs before its [`crate::commands::Auth`] was checked, and
//!    unauthenticated clients may only run commands that require nothing.
//! A2 A request is authorized by the current user and role documents, also on an old connection and for a read of the
//!    past.

pub mod action;
pub mod builtin;
pub mod key_file;
pub mod login;
pub mod pipeline;
pub mod privilege;
pub mod requirement;
pub mod restriction;
pub mod shown;
pub mod user;
pub mod users;
pub mod writes;

use protocol::Profile;
use std::{net::SocketAddr, sync::Arc};

use protocol::scram::{Credentials, Mechanism, ScramError};
use storage::StorageError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{config::ClusterAuthMode, context::Node, error::Failure, tls::Tls};
use action::Action;
use key_file::Keys;
use privilege::{Privileges, Target};
use user::{Digest, User, UserName};
use users::Users;

/// Access control, one per process.
pub struct Access {
    /// Whether access control is enabled.
    required: bool,
    mode: ClusterAuthMode,
    member_credentials: Vec<Credentials>,
    users: Users,
    /// Limits concurrent logins.
    attempts: Arc<Semaphore>,
    /// TLS, if it is used.
    pub tls: Option<Arc<Tls>>,
}

/// mongod's iteration counts for members' credentials and, by default, for users'.
const ITERATIONS_SHA_256: u32 = 15_000;
const ITERATIONS_SHA_1: u32 = 10_000;
/// mongod's salt lengths for SCRAM-SHA-256 and SCRAM-SHA-1.
const SALT_LEN_SHA_256: usize = 28;
const SALT_LEN_SHA_1: usize = 16;
/// Maximum number of logins processed concurrently. These clients are not authenticated yet, so most threads are
/// reserved for those that are. The state of a conversation between its messages is bounded, too, and each connection
/// has at most one.
const ATTEMPTS_MAX: usize = 8;

impl Access {
    /// `keys` are those of the key file.
    pub fn new(
        required: bool,
        mode: ClusterAuthMode,
        keys: Option<&Keys>,
        tls: Option<Arc<Tls>>,
    ) -> Result<Self, ScramError> {
        let name = UserName::system();
        let mut member_credentials = Vec::new();
        for (mechanism, salt_len, iterations) in [
            (Mechanism::ScramSha256, SALT_LEN_SHA_256, ITERATIONS_SHA_256),
            (Mechanism::ScramSha1, SALT_LEN_SHA_1, ITERATIONS_SHA_1),
        ] {
            let salt: Vec<u8> = (0..salt_len).map(|_| rand::random()).collect();
            for key in keys.into_iter().flat_map(Keys::iter) {
                member_credentials
                    .push(Credentials::derive(mechanism, &name.user, key, &salt, iterations)?);
            }
        }
        Ok(Self { required, mode, member_credentials, tls, ..Self::off() })
    }

    /// Access control disabled: everything is allowed to everybody.
    pub fn off() -> Self {
        Self {
            required: false,
            mode: ClusterAuthMode::Undefined,
            member_credentials: Vec::new(),
            users: Users::default(),
            attempts: Arc::new(Semaphore::new(ATTEMPTS_MAX)),
            tls: None,
        }
    }

    /// True if access control is enabled.
    pub fn required(&self) -> bool {
        self.required
    }

    /// How members authenticate.
    pub fn mode(&self) -> ClusterAuthMode {
        self.mode
    }

    /// Waits for a turn to process a login, in the order of requests.
    pub async fn turn(&self) -> OwnedSemaphorePermit {
        self.attempts.clone().acquire_owned().await.expect("it is never closed")
    }

    /// The current user: a member by its key, others by their documents.
    pub fn find(&self, node: &Node, name: &UserName) -> Result<Option<Arc<User>>, Failure> {
        let profile = node.profile();
        if *name == UserName::system() {
            let credentials = self.credentials_of_members(profile);
            let known = !credentials.is_empty();
            return Ok(known.then(|| self.member(profile)));
        }
        // The database `local` is not replicated, so it has no users except members.
        if name.db == "local" {
            return Ok(None);
        }
        Ok(self.users.find(node.store()?, profile, name)?)
    }

    /// The user that represents a member of the set.
    pub fn member(&self, profile: &Profile) -> Arc<User> {
        let credentials = self.credentials_of_members(profile);
        Arc::new(User::member(UserName::system(), builtin::of(profile), credentials))
    }

    fn credentials_of_members(&self, profile: &Profile) -> Vec<Credentials> {
        if !self.mode.accepts_keys() {
            return Vec::new();
        }
        let fits = |own: &&Credentials| {
            profile.key_file_by_sha_1 || own.mechanism == Mechanism::ScramSha256
        };
        self.member_credentials.iter().filter(fits).cloned().collect()
    }
}

/// Who makes a request, and what they may do now.
#[derive(Clone)]
pub struct Who {
    restricted: bool,
    users: Vec<Arc<User>>,
    /// The localhost exception applies: there is no user yet who could log in.
    first: bool,
}

impl Who {
    /// A client of a server without access control, logged in or not.
    pub(crate) fn unrestricted(users: Vec<Arc<User>>) -> Self {
        Self { restricted: false, users, first: false }
    }

    /// A client of a server with access control.
    pub fn restricted(users: Vec<Arc<User>>, first: bool) -> Self {
        Self { restricted: true, users, first }
    }

    /// True if access control applies.
    pub(crate) fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// The authenticated users; on 4.4 and 5.0 there may be several.
    pub fn users(&self) -> &[Arc<User>] {
        &self.users
    }

    /// True if the client is authenticated or need not be.
    pub(crate) fn is_known(&self) -> bool {
        !self.restricted || self.first || !self.users.is_empty()
    }

    /// True if the action on the target is allowed.
    pub fn may(&self, target: Target<'_>, action: Action) -> bool {
        !self.restricted
            || self.users.iter().any(|user| user.privileges.allow(target, action))
            || self.first && first_privileges(target, action)
    }

    /// True if any action is allowed on the target.
    pub(crate) fn may_touch(&self, target: Target<'_>) -> bool {
        self.any_privileges(|privileges| privileges.touch(target))
    }

    /// True if any action is allowed within the database.
    pub(crate) fn may_touch_within(&self, db: &str) -> bool {
        self.any_privileges(|privileges| privileges.touch_within(db))
    }

    /// The user digest in the client's sessions.
    pub fn digest(&self) -> Digest {
        UserName::digest(self.users.first().map(|user| &user.name))
    }

    /// The names of the authenticated users.
    pub fn names(&self) -> Vec<UserName> {
        self.users.iter().map(|user| user.name.clone()).collect()
    }

    fn any_privileges(&self, allow: impl Fn(&Privileges) -> bool) -> bool {
        !self.restricted || self.users.iter().any(|user| allow(&user.privileges))
    }
}

/// The privileges of the localhost exception while there are no users: creating the first user, and initiating the
/// set.
fn first_privileges(target: Target<'_>, wanted: Action) -> bool {
    use action::action;
    match target {
        Target::Cluster => {
            [action("addShard"), action("replSetConfigure"), action("replSetGetStatus")]
                .contains(&wanted)
        }
        Target::Database("admin") => [action("createUser"), action("grantRole")].contains(&wanted),
        Target::Database("$external") => wanted == action("createUser"),
        _ => false,
    }
}

/// True if the localhost exception applies to this client.
fn is_first(node: &Node, remote: SocketAddr) -> Result<bool, StorageError> {
    if !remote.ip().to_canonical().is_loopback() || !node.parameters.localhost_auth_bypass() {
        return Ok(false);
    }
    match node.store() {
        Ok(store) => Ok(!users::any(&store.view(storage::ReadAt::Newest)?)?),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests;

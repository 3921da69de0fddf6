//! Who a client is, and what it may do.
//!
//! ```text
//!   saslStart, hello --> conversation --> login --> Who, per request --> may(target, action)
//!                            |                       |
//!                key file: __system            users: admin.system.users and system.roles, as applied
//! ```
//! A1 While access control is on, no command runs before its [`crate::commands::Auth`] was checked, and only those
//!    that need nothing run for nobody.
//! A2 What a request may do is decided by the documents of now, also on a connection that was opened long ago and
//!    for a read of the past.

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
    /// Commands are refused to those who may not run them.
    required: bool,
    mode: ClusterAuthMode,
    member_credentials: Vec<Credentials>,
    users: Users,
    /// Turns of those who log in.
    attempts: Arc<Semaphore>,
    /// TLS, where it is used.
    pub tls: Option<Arc<Tls>>,
}

/// mongod's rounds for the credentials of members and, by default, of users.
const ITERATIONS_SHA_256: u32 = 15_000;
const ITERATIONS_SHA_1: u32 = 10_000;
/// 28 bytes are what mongod takes for SCRAM-SHA-256, 16 for SCRAM-SHA-1.
const SALT_LEN_SHA_256: usize = 28;
const SALT_LEN_SHA_1: usize = 16;
/// Logins that are worked on at one time. Nobody knows yet who these clients are: however many there are, most threads
/// are left to those who have logged in. What a conversation keeps between its messages is bounded too, and there is
/// one for a connection.
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

    /// None: everything is open to everybody.
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

    /// Whether anything is refused to anybody.
    pub fn required(&self) -> bool {
        self.required
    }

    /// How members prove themselves.
    pub fn mode(&self) -> ClusterAuthMode {
        self.mode
    }

    /// A turn to work on a login, in the order of asking.
    pub async fn turn(&self) -> OwnedSemaphorePermit {
        self.attempts.clone().acquire_owned().await.expect("it is never closed")
    }

    /// The user as it is now: a member by its key, others by their documents.
    pub fn find(&self, node: &Node, name: &UserName) -> Result<Option<Arc<User>>, Failure> {
        let profile = node.profile();
        if *name == UserName::system() {
            let credentials = self.credentials_of_members(profile);
            let known = !credentials.is_empty();
            return Ok(known.then(|| self.member(profile)));
        }
        // What lives in `local` is not replicated: nobody but members is kept there.
        if name.db == "local" {
            return Ok(None);
        }
        Ok(self.users.find(node.store()?, profile, name)?)
    }

    /// A member of the set.
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

/// Who makes a request, and what is open to them at this moment.
#[derive(Clone)]
pub struct Who {
    restricted: bool,
    users: Vec<Arc<User>>,
    /// The localhost exception: there is nobody yet who could log in.
    first: bool,
}

impl Who {
    /// Somebody on a server without access control, logged in or not.
    pub fn unrestricted(users: Vec<Arc<User>>) -> Self {
        Self { restricted: false, users, first: false }
    }

    /// Somebody on a server with access control.
    pub fn restricted(users: Vec<Arc<User>>, first: bool) -> Self {
        Self { restricted: true, users, first }
    }

    /// Whether anything could be refused.
    pub fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// Those who are logged in; with 4.4 and 5.0 there may be several.
    pub fn users(&self) -> &[Arc<User>] {
        &self.users
    }

    /// Somebody, or nobody where that is as good.
    pub fn is_known(&self) -> bool {
        !self.restricted || self.first || !self.users.is_empty()
    }

    /// True if the action on the target is allowed.
    pub fn may(&self, target: Target<'_>, action: Action) -> bool {
        !self.restricted
            || self.users.iter().any(|user| user.privileges.allow(target, action))
            || self.first && first_privileges(target, action)
    }

    /// True if anything at all is allowed on the target.
    pub fn may_touch(&self, target: Target<'_>) -> bool {
        self.any_privileges(|privileges| privileges.touch(target))
    }

    /// True if anything at all is allowed within the database.
    pub fn may_touch_within(&self, db: &str) -> bool {
        self.any_privileges(|privileges| privileges.touch_within(db))
    }

    /// Whose its sessions are.
    pub fn digest(&self) -> Digest {
        UserName::digest(self.users.first().map(|user| &user.name))
    }

    /// The names of those who are logged in.
    pub fn names(&self) -> Vec<UserName> {
        self.users.iter().map(|user| user.name.clone()).collect()
    }

    fn any_privileges(&self, allow: impl Fn(&Privileges) -> bool) -> bool {
        !self.restricted || self.users.iter().any(|user| allow(&user.privileges))
    }
}

/// What somebody on the same machine may do while there are no users: make the first, and the set.
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

/// Whether the localhost exception is for this client.
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

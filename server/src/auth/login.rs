//! The login of one connection: the current conversation and the authenticated users.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use protocol::scram::{
    Mechanism,
    conversation::{Begun, Conversation, Step},
};
use rand::distr::{Alphanumeric, SampleString};

use super::{
    Who,
    action::action,
    is_first,
    privilege::Target,
    user::{User, UserName},
};
use crate::{
    context::{Client, Node},
    error::Failure,
};

/// The authentication state of a connection.
#[derive(Default)]
pub struct Login(Mutex<State>);

#[derive(Default)]
struct State {
    talk: Option<Talk>,
    users: Vec<Arc<User>>,
}

/// A conversation and its user.
struct Talk {
    conversation: Conversation,
    name: UserName,
    speculative: bool,
}

/// The first message of a login.
pub struct First<'a> {
    /// The user's database.
    pub db: &'a str,
    /// The mechanism name.
    pub mechanism: &'a str,
    /// The message.
    pub payload: &'a [u8],
    /// Whether the client skips the empty message at the end.
    pub skip_empty: bool,
    /// Whether it is part of a hello.
    pub speculative: bool,
}

/// A message to the client.
#[derive(Debug)]
pub struct Sent {
    /// The message.
    pub payload: Vec<u8>,
    /// The conversation is complete, and the client is authenticated.
    pub done: bool,
}

/// Length of mongod's part of the nonce.
const NONCE_LEN: usize = 32;

/// The id of every conversation: a connection has one at a time.
pub(crate) const CONVERSATION_ID: i32 = 1;

impl Login {
    /// Starts a conversation. An unfinished one is abandoned.
    pub fn begin(&self, client: &Client, first: &First<'_>) -> Result<Sent, Failure> {
        self.0.lock().talk = None;
        let Some(mechanism) = Mechanism::from_name(first.mechanism) else {
            let failure = Failure::MechanismUnavailable(first.mechanism.to_owned());
            note_failure(
                client,
                first.mechanism,
                &UserName::new("", first.db),
                first.speculative,
                &failure.to_string(),
            );
            return Err(failure);
        };
        let begun = Begun::read(mechanism, first.skip_empty, first.payload).map_err(|error| {
            let nobody = UserName::new("", first.db);
            refuse(client, mechanism, &nobody, first.speculative, &error.to_string())
        })?;
        let name = UserName::new(begun.user(), first.db);
        let refused = |why: &str| refuse(client, mechanism, &name, first.speculative, why);
        let found = client.node.auth.find(&client.node, &name)?;
        let user = found.ok_or_else(|| refused("UserNotFound: Could not find user"))?;
        let nonce = Alphanumeric.sample_string(&mut rand::rng(), NONCE_LEN);
        match begun.challenge(&user.credentials, &nonce) {
            Some(Step::Continue(payload, conversation)) => {
                let speculative = first.speculative;
                self.0.lock().talk = Some(Talk { conversation, name, speculative });
                Ok(Sent { payload, done: false })
            }
            Some(Step::Done(_)) | None => {
                Err(refused("the user has no credentials for this mechanism"))
            }
        }
    }

    /// Continues the conversation.
    pub fn go_on(
        &self,
        client: &Client,
        id: i32,
        db: &str,
        payload: &[u8],
    ) -> Result<Sent, Failure> {
        let Some(Talk { conversation, name, speculative }) = self.0.lock().talk.take() else {
            return Err(Failure::sasl("No SASL session state found"));
        };
        let mechanism = conversation.mechanism();
        if id != CONVERSATION_ID {
            note_failure(
                client,
                mechanism.name(),
                &name,
                speculative,
                "Mismatched conversation id",
            );
            return Err(Failure::sasl("sasl: Mismatched conversation id"));
        }
        let refused = |why: &str| refuse(client, mechanism, &name, speculative, why);
        if db != name.db {
            return Err(refused("Attempt to switch database target during SASL authentication."));
        }
        match conversation.step(payload) {
            Err(error) => Err(refused(&error.to_string())),
            Ok(Step::Continue(payload, conversation)) => {
                self.0.lock().talk = Some(Talk { conversation, name, speculative });
                Ok(Sent { payload, done: false })
            }
            Ok(Step::Done(payload)) => {
                self.admit(client, mechanism.name(), &name, speculative)?;
                Ok(Sent { payload, done: true })
            }
        }
    }

    /// Authenticates by the client's certificate: a member, or a user of `$external`. Returns the name.
    pub fn by_certificate(
        &self,
        client: &Client,
        mechanism: &str,
        db: &str,
        user: Option<&str>,
        speculative: bool,
    ) -> Result<String, Failure> {
        self.0.lock().talk = None;
        let name = UserName::new(user.unwrap_or_default(), db);
        let refused = |why: &str| {
            note_failure(client, mechanism, &name, speculative, why);
            Failure::authentication_failed()
        };
        if mechanism != "MONGODB-X509" {
            let failure = Failure::MechanismUnavailable(mechanism.to_owned());
            let masked = refused(&failure.to_string());
            let tells = !client.node.profile().login_comes_first;
            return Err(if tells { failure } else { masked });
        }
        let node = &client.node;
        let (Some(subject), Some(tls)) = (&client.subject, &node.auth.tls) else {
            return Err(refused("No verified subject name available from client"));
        };
        if db != "$external" {
            let why = "X.509 authentication must always use the $external database.";
            return Err(refused(why));
        }
        if user.is_some_and(|user| user != subject.as_str()) {
            let why = "There is no x.509 client certificate matching the user.";
            return Err(refused(why));
        }
        let name = UserName::new(subject.as_str(), db);
        if !subject.is_member_beside(&tls.own_subject()) {
            self.admit(client, mechanism, &name, speculative)?;
        } else if node.auth.mode().accepts_certificates() {
            self.enter(client, node.auth.member(node.profile())).map_err(refused)?;
            note_success(client, mechanism, &UserName::system(), speculative);
        } else {
            return Err(refused(
                "The provided certificate can only be used for cluster authentication, not client \
                 authentication. The current configuration does not allow x.509 cluster \
                 authentication, check the --clusterAuthMode flag",
            ));
        }
        Ok(subject.as_str().to_owned())
    }

    /// Completes the authentication of a user who has proved their identity.
    pub(crate) fn admit(
        &self,
        client: &Client,
        mechanism: &str,
        name: &UserName,
        speculative: bool,
    ) -> Result<(), Failure> {
        let refused = |why: &str| {
            note_failure(client, mechanism, name, speculative, why);
            Failure::authentication_failed()
        };
        // The user may have been dropped meanwhile.
        let user = client.node.auth.find(&client.node, name)?;
        let user = user.ok_or_else(|| refused("UserNotFound: Could not find user"))?;
        self.enter(client, user).map_err(refused)?;
        note_success(client, mechanism, name, speculative);
        Ok(())
    }

    /// Adds an authenticated user; the error is the reason why that is not allowed.
    pub fn enter(&self, client: &Client, user: Arc<User>) -> Result<(), &'static str> {
        if !user.welcome_from(client.remote, client.local) {
            return Err("AuthenticationRestrictionUnmet: Restriction not met for user");
        }
        let is_member = user.name == UserName::system();
        {
            let mut state = self.0.lock();
            let others = state.users.iter().any(|other| other.name != user.name);
            if others && client.node.profile().one_user_a_connection {
                return Err("Each client connection may only be authenticated once");
            }
            state.users.retain(|other| other.name.db != user.name.db);
            state.users.push(user);
        }
        if is_member {
            client.member_is_known();
        }
        Ok(())
    }

    /// Logs out the users of a database and abandons the conversation; a member is logged out with `local`.
    pub fn leave(&self, db: &str) {
        let mut state = self.0.lock();
        state.talk = None;
        state.users.retain(|user| user.name.db != db);
    }

    /// The users as of their login; documents are not read.
    pub fn users(&self) -> Vec<Arc<User>> {
        self.0.lock().users.clone()
    }

    /// True if the peer is a member of the set.
    pub(crate) fn is_member(&self) -> bool {
        self.0.lock().users.iter().any(|user| user.name == UserName::system())
    }

    /// True if the client may advance the cluster time, so that it needs no signature.
    pub(crate) fn may_advance_cluster_time(&self, node: &Node) -> bool {
        let advance = action("advanceClusterTime");
        !node.auth.required()
            || self.users().iter().any(|user| user.privileges.allow(Target::Cluster, advance))
    }

    /// The current users of a request: dropped ones are removed, changed ones are updated.
    pub fn who(&self, client: &Client) -> Result<Who, Failure> {
        let node = &client.node;
        let known = self.users();
        let mut users = Vec::with_capacity(known.len());
        for user in &known {
            match refreshed(client, user)? {
                Some(now) => users.push(now),
                None => {
                    tracing::info!(target: "ACCESS", id = 20245, ctx = client.name(), user = %user.name,
                        "Removed deleted user from session cache of user information");
                    self.0.lock().users.retain(|other| other.name != user.name);
                }
            }
        }
        if !node.auth.required() {
            return Ok(Who::unrestricted(users));
        }
        let first = users.is_empty() && is_first(node, client.remote)?;
        Ok(Who::restricted(users, first))
    }
}

fn refreshed(client: &Client, user: &Arc<User>) -> Result<Option<Arc<User>>, Failure> {
    if user.name == UserName::system() {
        return Ok(Some(user.clone()));
    }
    let now = client.node.auth.find(&client.node, &user.name)?;
    let same = |now: &Arc<User>| now.id == user.id && now.welcome_from(client.remote, client.local);
    Ok(now.filter(same))
}

/// Refuses a login. The log has the reason; the client only learns that it failed.
fn refuse(
    client: &Client,
    mechanism: Mechanism,
    name: &UserName,
    speculative: bool,
    why: &str,
) -> Failure {
    note_failure(client, mechanism.name(), name, speculative, why);
    Failure::authentication_failed()
}

/// Logs a successful login.
fn note_success(client: &Client, mechanism: &str, name: &UserName, speculative: bool) {
    tracing::info!(target: "ACCESS", id = 5286306, ctx = client.name(), client = %client.remote,
        isSpeculative = speculative, isClusterMember = *name == UserName::system(), mechanism,
        user = name.user, db = name.db, result = 0, "Successfully authenticated");
}

/// Logs a failed login.
pub(crate) fn note_failure(
    client: &Client,
    mechanism: &str,
    name: &UserName,
    speculative: bool,
    why: &str,
) {
    let remote: SocketAddr = client.remote;
    tracing::info!(target: "ACCESS", id = 5286307, ctx = client.name(), client = %remote,
        isSpeculative = speculative, isClusterMember = *name == UserName::system(), mechanism,
        user = name.user, db = name.db, error = why, "Failed to authenticate");
}

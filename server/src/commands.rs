//! The table of all commands.
//!
//! Dispatch, listCommands, the counters of serverStatus and COMMANDS.md use it. Each command has its own file; those
//! that only a primary runs are together in [`refused`].

mod aggregate;
mod authenticate;
mod available_query_options;
mod build_info;
mod checkpoint;
mod coll_stats;
mod compact;
mod conn_pool_stats;
mod connection_status;
mod connections;
mod count;
mod current_op;
mod db_hash;
mod db_stats;
mod distinct;
mod explain;
mod features;
mod filemd5;
mod find;
mod fsync;
mod get_cluster_parameter;
mod get_cmd_line_opts;
mod get_default_rw_concern;
mod get_log;
mod get_more;
mod get_parameter;
mod hello;
mod history_window;
mod host_info;
mod is_self;
mod kill_cursors;
mod list_catalog;
mod list_collections;
mod list_commands;
mod list_databases;
mod list_indexes;
mod lock_info;
mod log_rotate;
mod logout;
mod map_reduce;
mod metadata;
mod ping;
mod plan_cache;
mod profile;
mod refused;
mod release_memory;
mod repl_set;
mod resize_oplog;
mod roles_info;
mod rotate_certificates;
mod sasl;
mod server_status;
mod sessions;
mod set_parameter;
mod sharding;
mod shutdown;
mod sizes;
mod top;
mod traffic;
mod users_info;
mod validate;
mod validate_db_metadata;
mod variables;
mod whats_my_uri;

pub(crate) use build_info::build_document;

use protocol::{Profile, Release};
use std::{collections::HashMap, future::Future, pin::Pin, sync::LazyLock};

use crate::{
    auth::{
        action::{Action, action},
        privilege::Target,
        requirement,
    },
    context::{Call, Outcome},
    error::Failure,
};

/// One command.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// A description in one sentence.
    pub help: &'static str,
    /// The privileges that a client needs.
    pub auth: Auth,
    /// In which member states it is answered.
    pub on: On,
    /// It runs only on the database `admin`.
    pub admin_only: bool,
    /// The fields it accepts.
    pub fields: Fields,
    /// Whether it is part of the stable API.
    pub api: Api,
    /// The first release that has it.
    pub since: Release,
    /// The last release that has it.
    pub until: Release,
    /// It accepts read and write concerns.
    pub takes_concerns: bool,
    /// It accepts the read concern `local`, and a snapshot at an explicit timestamp, which mongod does not.
    pub newest_only: bool,
    /// OP_QUERY can carry it in every release.
    pub by_op_query: bool,
    /// Its duration is not a sign of slowness, because it waits on purpose.
    pub waits_on_purpose: bool,
    /// Its class in opcounters.
    pub class: Option<OpClass>,
    /// The handler.
    pub run: Run,
}

/// The privileges that a command requires.
#[derive(Clone, Copy)]
pub enum Auth {
    /// None: it runs before authentication.
    None,
    /// Authentication since 8.0, nothing before.
    NewerUser,
    /// An authenticated user; the handler may check more.
    User,
    /// This action on the cluster.
    Cluster(Action),
    /// This action on the database.
    Database(Action),
    /// This action on the collection that the command names first.
    Collection(Action),
    /// Depends on the body: a description and the check.
    Body(&'static str, fn(&Call) -> Result<(), Failure>),
}

/// The client must be a member of the set.
pub(crate) const MEMBER: Auth = Auth::Cluster(action("internal"));

impl Auth {
    /// True if it runs before authentication.
    pub fn is_open(self, profile: &Profile) -> bool {
        match self {
            Self::None => true,
            Self::NewerUser => !profile.login_comes_first,
            _ => false,
        }
    }

    /// Fails if the client is not authorized.
    pub fn check(self, call: &Call) -> Result<(), Failure> {
        if !call.who.is_restricted() {
            return Ok(());
        }
        match self {
            Self::None | Self::NewerUser | Self::User => Ok(()),
            Self::Cluster(action) => call.require(Target::Cluster, action),
            Self::Database(action) => call.require(Target::Database(&call.db), action),
            Self::Collection(action) => {
                let coll = requirement::collection(call)?;
                call.require(Target::Collection(&call.db, &coll), action)
            }
            Self::Body(_, check) => check(call),
        }
    }
}

/// In which member states a command is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// In every state.
    Always,
    /// As primary or secondary, whatever the read preference.
    Serving,
    /// As primary, or as secondary if the client allows it.
    Readable,
    /// Only as primary, so we refuse it.
    Primary,
}

/// The fields that a command accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// Any: unknown fields are ignored.
    Any,
    /// These, and the generic fields.
    Only(&'static [&'static str]),
}

/// Whether a command is part of the stable API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// The command is not part of it.
    None,
    /// The command is part of version 1.
    V1,
}

/// The classes of opcounters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "MongoDB documents them")]
pub enum OpClass {
    Insert,
    Query,
    Update,
    Delete,
    GetMore,
    Command,
}

impl OpClass {
    /// Number of classes.
    pub(crate) const COUNT: usize = 6;

    /// Its index in an array of [`Self::COUNT`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The future of an asynchronous handler.
pub type Waiting = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A handler.
#[derive(Clone, Copy)]
pub enum Run {
    /// A synchronous handler, which answers at once.
    Now(fn(&Call) -> Outcome),
    /// An asynchronous handler.
    Waiting(fn(Call) -> Waiting),
}

impl Command {
    /// The defaults: for everybody, in every state, any fields.
    const DEFAULT: Self = Self {
        name: "",
        aliases: &[],
        help: "",
        auth: Auth::User,
        on: On::Always,
        admin_only: false,
        fields: Fields::Any,
        api: Api::None,
        since: Release::OLDEST,
        until: Release::NEWEST,
        takes_concerns: false,
        newest_only: false,
        by_op_query: false,
        waits_on_purpose: false,
        class: Some(OpClass::Command),
        run: Run::Now(refused::unreachable),
    };

    /// The defaults of commands that read documents.
    const READ: Self = Self {
        auth: Auth::Collection(action("find")),
        on: On::Readable,
        api: Api::V1,
        takes_concerns: true,
        ..Self::DEFAULT
    };

    /// True if servers of this release have it.
    pub fn is_in(&self, release: Release) -> bool {
        (self.since..=self.until).contains(&release)
    }

    /// Its latency class: reads, writes, commands.
    pub(crate) fn latency_class(&self) -> usize {
        match (self.on, self.class) {
            (On::Primary, _) => 1,
            (_, Some(OpClass::Query | OpClass::GetMore)) => 0,
            _ => 2,
        }
    }
}

/// The table.
pub fn all() -> &'static [Command] {
    &COMMANDS
}

/// The command with this name or alias, and its index in the table.
pub fn find(name: &str) -> Option<(usize, &'static Command)> {
    static BY_NAME: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(|| {
        let names = |command: &Command| -> Vec<&'static str> {
            std::iter::once(command.name).chain(command.aliases.iter().copied()).collect()
        };
        COMMANDS
            .iter()
            .enumerate()
            .flat_map(|(index, command)| names(command).into_iter().map(move |name| (name, index)))
            .collect()
    });
    let index = *BY_NAME.get(name)?;
    Some((index, COMMANDS.get(index)?))
}

static COMMANDS: LazyLock<Vec<Command>> = LazyLock::new(|| {
    let own = [
        aggregate::COMMAND,
        authenticate::COMMAND,
        available_query_options::COMMAND,
        build_info::COMMAND,
        checkpoint::COMMAND,
        coll_stats::COLL_STATS,
        coll_stats::DATA_SIZE,
        conn_pool_stats::COMMAND,
        connection_status::COMMAND,
        count::COMMAND,
        current_op::CURRENT_OP,
        current_op::KILL_OP,
        db_hash::COMMAND,
        db_stats::COMMAND,
        distinct::COMMAND,
        explain::COMMAND,
        find::COMMAND,
        get_more::COMMAND,
        kill_cursors::COMMAND,
        list_collections::COMMAND,
        list_databases::COMMAND,
        list_indexes::COMMAND,
        features::COMMAND,
        fsync::COMMAND,
        get_cmd_line_opts::COMMAND,
        get_default_rw_concern::COMMAND,
        get_log::COMMAND,
        get_parameter::COMMAND,
        hello::HELLO,
        hello::IS_MASTER,
        host_info::COMMAND,
        is_self::COMMAND,
        list_commands::COMMAND,
        lock_info::COMMAND,
        log_rotate::COMMAND,
        logout::COMMAND,
        ping::COMMAND,
        compact::AUTO_COMPACT,
        compact::COMPACT,
        compact::RE_INDEX,
        connections::CONN_POOL_SYNC,
        connections::DROP_CONNECTIONS,
        filemd5::COMMAND,
        fsync::UNLOCK,
        get_cluster_parameter::COMMAND,
        map_reduce::COMMAND,
        plan_cache::CLEAR,
        plan_cache::CLEAR_FILTERS,
        plan_cache::LIST_FILTERS,
        plan_cache::SET_FILTER,
        release_memory::COMMAND,
        traffic::START,
        traffic::STATUS,
        traffic::STOP,
        users_info::INVALIDATE,
        validate_db_metadata::COMMAND,
        profile::COMMAND,
        sasl::SASL_CONTINUE,
        sasl::SASL_START,
        server_status::COMMAND,
        sessions::END_SESSIONS,
        sessions::KILL_ALL_SESSIONS,
        sessions::KILL_ALL_SESSIONS_BY_PATTERN,
        sessions::KILL_SESSIONS,
        sessions::REFRESH_SESSIONS,
        sessions::START_SESSION,
        set_parameter::COMMAND,
        shutdown::COMMAND,
        roles_info::COMMAND,
        resize_oplog::COMMAND,
        rotate_certificates::COMMAND,
        users_info::COMMAND,
        top::COMMAND,
        validate::COMMAND,
        whats_my_uri::COMMAND,
    ];
    let mut table: Vec<Command> = own
        .into_iter()
        .chain(repl_set::commands())
        .chain(sharding::commands())
        .chain(refused::commands())
        .collect();
    table.sort_by_key(|command| command.name);
    table
});

#[cfg(test)]
mod tests;

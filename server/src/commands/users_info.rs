//! usersInfo: users from their documents, without what would help to guess a password.

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, Namespace, RawDoc};
use query::matcher::{Matcher, ParseContext};
use std::ops::Bound;
use storage::{Direction, ReadAt, View};

use super::{Auth, Command, On, Run, connection_status::privileges_shown};
use crate::{
    auth::{
        action::action,
        builtin,
        privilege::Target,
        user::{User, UserName},
        users::{self, Roles, USERS},
    },
    context::{Call, Outcome, Reply},
    error::Failure,
    read::blocking,
};

pub(super) const COMMAND: Command = Command {
    name: "usersInfo",
    help: "Lists users.",
    auth: Auth::Body("`viewUser` on the database of each user but oneself", check),
    on: On::Readable,
    run: Run::Waiting(|call| blocking::command(call, run)),
    ..Command::DEFAULT
};

pub(super) const INVALIDATE: Command = Command {
    name: "invalidateUserCache",
    help: "Does nothing: users are looked at anew when their documents change.",
    auth: Auth::Cluster(action("invalidateUserCache")),
    run: Run::Now(|call| {
        if call.profile().user_cache_on_admin_only && call.db != "admin" {
            return Err(Failure::AdminOnly("invalidateUserCache"));
        }
        Fields::idl("invalidateUserCache", &call.body).only(&["invalidateUserCache"])?;
        Ok(Reply::empty())
    }),
    ..Command::DEFAULT
};

/// The requested users.
enum Whom {
    /// All users of the command's database.
    Here,
    /// All users of all databases.
    Everywhere,
    Named(Vec<UserName>),
}

impl Whom {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let bad = |text: &str| Err(Failure::said(ErrorCode::BadValue, text));
        match call.body.get("usersInfo") {
            Ok(Some(RawBsonRef::Int32(1) | RawBsonRef::Int64(1))) => Ok(Self::Here),
            Ok(Some(RawBsonRef::Double(1.0))) => Ok(Self::Here),
            Ok(Some(RawBsonRef::Document(doc)))
                if doc.get_bool("forAllDBs").unwrap_or_default() =>
            {
                Ok(Self::Everywhere)
            }
            Ok(Some(RawBsonRef::Array(list))) => {
                let names = list.into_iter().flatten().map(|name| Self::name(call, name));
                names.collect::<Result<_, _>>().map(Self::Named)
            }
            Ok(Some(one)) => Self::name(call, one).map(|name| Self::Named(vec![name])),
            _ => bad("UserName must be either a string or an object"),
        }
    }

    fn name(call: &Call, value: RawBsonRef<'_>) -> Result<UserName, Failure> {
        let bad = |text: String| Failure::said(ErrorCode::BadValue, text);
        match value {
            RawBsonRef::String(user) => Ok(UserName::new(user, &call.db)),
            RawBsonRef::Document(doc) => {
                let field = |name: &str| {
                    let missing = || bad(format!("UserName must contain a field named: {name}"));
                    doc.get_str(name).map_err(|_| missing())
                };
                Ok(UserName::new(field("user")?, field("db")?))
            }
            _ => Err(bad("UserName must be either a string or an object".to_owned())),
        }
    }
}

fn check(call: &Call) -> Result<(), Failure> {
    match Whom::parse(call)? {
        Whom::Here => call.require(Target::Database(&call.db), action("viewUser")),
        Whom::Everywhere => call.require(Target::Cluster, action("viewUser")),
        Whom::Named(names) => {
            let own = call.who.names();
            for name in names.iter().filter(|name| !own.contains(name)) {
                call.require(Target::Database(&name.db), action("viewUser"))?;
            }
            Ok(())
        }
    }
}

/// What is shown of a user.
struct Shows {
    credentials: bool,
    custom_data: bool,
    privileges: bool,
    restrictions: bool,
}

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("usersInfo", &call.body);
    let flag = |name, default| -> Result<bool, Failure> {
        Ok(fields.optional(name)?.map_or(Ok(default), |flag| flag.safe_bool())?)
    };
    let shows = Shows {
        credentials: flag("showCredentials", false)?,
        custom_data: flag("showCustomData", true)?,
        privileges: flag("showPrivileges", false)?,
        restrictions: flag("showAuthenticationRestrictions", false)?,
    };
    let filter = fields.optional("filter")?.map(|filter| filter.document()).transpose()?;
    let filter = filter.map(|doc| Matcher::parse(doc, &ParseContext::default())).transpose()?;
    let whom = Whom::parse(call)?;
    if (shows.privileges || shows.restrictions) && !matches!(whom, Whom::Named(_)) {
        let text = "Privilege or restriction details require exact-match usersInfo queries";
        return Err(Failure::said(ErrorCode::IllegalOperation, text));
    }
    let view = call.node().store()?.view(ReadAt::Newest)?;
    let docs = match &whom {
        Whom::Named(names) => {
            let found = names.iter().map(|name| users::document(&view, USERS, &name.id()));
            found.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?
        }
        Whom::Here => all(&view, Some(&call.db))?,
        Whom::Everywhere => all(&view, None)?,
    };
    let mut listed = RawArrayBuf::new();
    for doc in docs {
        let shown = shown(call, &view, &doc, &shows)?;
        if filter.as_ref().is_none_or(|filter| filter.matches(&shown)) {
            listed.push(shown);
        }
    }
    Ok(rawdoc! { "users": listed }.into())
}

fn all(view: &View, db: Option<&str>) -> Result<Vec<RawDoc>, Failure> {
    let ns = Namespace::new("admin", USERS);
    let Some(collection) = view.catalog().collection(&ns) else { return Ok(Vec::new()) };
    let scan = view.scan(&collection, Bound::Unbounded, Direction::Forward);
    let docs = scan.map(|record| record.map(|(_, doc)| doc)).collect::<Result<Vec<_>, _>>()?;
    let here = |doc: &RawDoc| db.is_none() || doc.get_str("db").ok() == db;
    Ok(docs.into_iter().filter(here).collect())
}

fn shown(
    call: &Call,
    view: &View,
    doc: &RawDocument,
    shows: &Shows,
) -> Result<RawDocumentBuf, Failure> {
    let mut out = RawDocumentBuf::new();
    for (name, value) in doc.iter().flatten() {
        let visible = match name.as_str() {
            "credentials" => shows.credentials,
            "customData" => shows.custom_data,
            "authenticationRestrictions" => shows.restrictions,
            _ => true,
        };
        if visible {
            out.append(name, value);
        }
    }
    let mechanisms = doc.get_document("credentials").ok();
    let mechanisms = mechanisms.into_iter().flat_map(|all| all.iter().flatten());
    let mechanisms = mechanisms.map(|(name, _)| name.as_str().to_owned());
    let mut mechanisms: Vec<_> = mechanisms.filter(|name| name != "external").collect();
    mechanisms.sort_unstable();
    if mechanisms.is_empty() {
        mechanisms.push("external".to_owned());
    }
    out.append(cstr!("mechanisms"), mechanisms.into_iter().collect::<RawArrayBuf>());
    if shows.privileges || shows.restrictions {
        let name = UserName::new(
            doc.get_str("user").unwrap_or_default(),
            doc.get_str("db").unwrap_or_default(),
        );
        let builtin = builtin::of(call.profile());
        let user = User::resolve(name, doc, builtin, &mut Roles::of(view))?;
        let roles: RawArrayBuf = user.all_roles.iter().map(|role| role.to_raw()).collect();
        out.append(cstr!("inheritedRoles"), roles);
        out.append(cstr!("inheritedPrivileges"), privileges_shown(&user.privileges));
        out.append(cstr!("inheritedAuthenticationRestrictions"), user.restrictions_shown());
    }
    Ok(out)
}

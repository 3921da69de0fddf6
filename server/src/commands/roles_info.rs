//! rolesInfo: built-in and user-defined roles, with everything that they inherit.

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{ErrorCode, Fields, Namespace, RawDoc};
use std::ops::Bound;
use storage::{Direction, ReadAt, View};

use super::{Auth, Command, On, Run, connection_status::privileges_shown};
use crate::{
    auth::{
        action::action,
        builtin::{self, BuiltinRoles},
        privilege::Target,
        user::{self, RoleName},
        users::{self, ROLES, Roles},
    },
    context::{Call, Outcome},
    error::Failure,
    read::blocking,
};

pub(super) const COMMAND: Command = Command {
    name: "rolesInfo",
    help: "Lists roles.",
    auth: Auth::Body("`viewRole` on the database of each role but one's own", check),
    on: On::Readable,
    run: Run::Waiting(|call| blocking::command(call, run)),
    ..Command::DEFAULT
};

/// The roles requested by name; `None` for all of the database.
fn asked(call: &Call) -> Result<Option<Vec<RoleName>>, Failure> {
    match call.body.get("rolesInfo") {
        Ok(Some(RawBsonRef::Int32(1) | RawBsonRef::Int64(1))) => Ok(None),
        Ok(Some(RawBsonRef::Double(1.0))) => Ok(None),
        Ok(Some(RawBsonRef::Array(list))) => {
            let names = list.into_iter().flatten().map(|name| role_name(call, name));
            names.collect::<Result<Vec<_>, _>>().map(Some)
        }
        Ok(Some(one)) => role_name(call, one).map(|name| Some(vec![name])),
        _ => Ok(None),
    }
}

fn role_name(call: &Call, value: RawBsonRef<'_>) -> Result<RoleName, Failure> {
    let bad = |text: String| Failure::said(ErrorCode::BadValue, text);
    match value {
        RawBsonRef::String(role) => Ok(RoleName::new(role, &call.db)),
        RawBsonRef::Document(doc) => {
            let field = |name: &str| {
                let missing = || bad(format!("RoleName must contain a field named: {name}"));
                doc.get_str(name).map_err(|_| missing())
            };
            Ok(RoleName::new(field("role")?, field("db")?))
        }
        _ => Err(bad("RoleName must be either a string or an object".to_owned())),
    }
}

fn check(call: &Call) -> Result<(), Failure> {
    let Some(names) = asked(call)? else {
        return call.require(Target::Database(&call.db), action("viewRole"));
    };
    let own = |name: &RoleName| call.who.users().iter().any(|user| user.all_roles.contains(name));
    for name in names.iter().filter(|name| !own(name)) {
        call.require(Target::Database(&name.db), action("viewRole"))?;
    }
    Ok(())
}

/// What is shown of a role.
struct Shows {
    /// 4.4 does not show the `_id`.
    id: bool,
    privileges: bool,
    restrictions: bool,
}

fn run(call: &Call) -> Outcome {
    let fields = Fields::idl("rolesInfo", &call.body);
    let flag = |name| -> Result<bool, Failure> {
        Ok(fields.optional(name)?.map_or(Ok(false), |flag| flag.safe_bool())?)
    };
    let as_fragment = match fields.optional("showPrivileges")?.map(|value| value.raw()) {
        Some(RawBsonRef::String("asUserFragment")) => true,
        Some(RawBsonRef::String(_)) => {
            let text = "Failed to parse 'showPrivileges'. 'showPrivileges' should either be a \
                        boolean or the string 'asUserFragment'";
            return Err(Failure::said(ErrorCode::BadValue, text));
        }
        _ => false,
    };
    let shows = Shows {
        id: call.profile().roles_show_id,
        privileges: !as_fragment && flag("showPrivileges")?,
        restrictions: flag("showAuthenticationRestrictions")?,
    };
    let builtin = builtin::of(call.profile());
    let view = call.node().store()?.view(ReadAt::Newest)?;
    let names = asked(call)?;
    if as_fragment {
        return fragment(&view, builtin, &names.unwrap_or_default());
    }
    let mut listed = RawArrayBuf::new();
    match names {
        Some(names) => {
            for name in names {
                if builtin.privileges(&name.role, &name.db).is_some() {
                    listed.push(built_in(builtin, &name, &shows));
                } else if let Some(doc) = users::document(&view, ROLES, &name.id())? {
                    listed.push(made(&view, builtin, &doc, &shows)?);
                }
            }
        }
        None => {
            if flag("showBuiltinRoles")? {
                for role in builtin.names(&call.db) {
                    listed.push(built_in(builtin, &RoleName::new(role, &call.db), &shows));
                }
            }
            for doc in all(&view, &call.db)? {
                listed.push(made(&view, builtin, &doc, &shows)?);
            }
        }
    }
    Ok(rawdoc! { "roles": listed }.into())
}

fn all(view: &View, db: &str) -> Result<Vec<RawDoc>, Failure> {
    let ns = Namespace::new("admin", ROLES);
    let Some(collection) = view.catalog().collection(&ns) else { return Ok(Vec::new()) };
    let scan = view.scan(&collection, Bound::Unbounded, Direction::Forward);
    let docs = scan.map(|record| record.map(|(_, doc)| doc)).collect::<Result<Vec<_>, _>>()?;
    Ok(docs.into_iter().filter(|doc| doc.get_str("db").ok() == Some(db)).collect())
}

fn built_in(builtin: &BuiltinRoles, name: &RoleName, shows: &Shows) -> RawDocumentBuf {
    let mut out = rawdoc! {
        "db": name.db.as_str(), "role": name.role.as_str(),
        "roles": RawArrayBuf::new(), "inheritedRoles": RawArrayBuf::new(),
    };
    if shows.privileges {
        let privileges = builtin.privileges(&name.role, &name.db).unwrap_or_default();
        let shown = privileges_shown(&privileges);
        out.append(cstr!("privileges"), shown.clone());
        out.append(cstr!("inheritedPrivileges"), shown);
    }
    if shows.restrictions {
        out.append(cstr!("authenticationRestrictions"), RawArrayBuf::new());
        out.append(cstr!("inheritedAuthenticationRestrictions"), RawArrayBuf::new());
    }
    out.append(cstr!("isBuiltin"), true);
    out
}

/// A user-defined role.
fn made(
    view: &View,
    builtin: &BuiltinRoles,
    doc: &RawDocument,
    shows: &Shows,
) -> Result<RawDocumentBuf, Failure> {
    let own = doc.get("authenticationRestrictions").ok().flatten();
    let mut out = RawDocumentBuf::new();
    for (name, value) in doc.iter().flatten() {
        match name.as_str() {
            "privileges" if !shows.privileges => {}
            "authenticationRestrictions" => {}
            "_id" if !shows.id => {}
            _ => out.append(name, value),
        }
    }
    let inherited = user::resolve(&user::role_names(doc), builtin, &mut Roles::of(view))?;
    let roles: RawArrayBuf = inherited.roles.iter().map(RoleName::to_raw).collect();
    if shows.restrictions
        && let Some(own) = own
    {
        out.append(cstr!("authenticationRestrictions"), one(own));
    }
    out.append(cstr!("inheritedRoles"), roles);
    if shows.privileges {
        let mut privileges = user::privileges_of(doc);
        privileges.extend(&inherited.privileges);
        out.append(cstr!("inheritedPrivileges"), privileges_shown(&privileges));
    }
    if shows.restrictions {
        let mut all = RawArrayBuf::new();
        if let Some(own) = own {
            all.push(own);
        }
        let further = inherited.restrictions.iter().filter_map(|each| each.to_raw());
        further.for_each(|each| all.push(each));
        out.append(cstr!("inheritedAuthenticationRestrictions"), all);
    }
    out.append(cstr!("isBuiltin"), false);
    Ok(out)
}

fn one(value: RawBsonRef<'_>) -> RawArrayBuf {
    let mut list = RawArrayBuf::new();
    list.push(value);
    list
}

/// The combined roles, in the form of a user who has them.
fn fragment(view: &View, builtin: &BuiltinRoles, names: &[RoleName]) -> Outcome {
    let resolved = user::resolve(names, builtin, &mut Roles::of(view))?;
    let roles = |names: &[RoleName]| names.iter().map(RoleName::to_raw).collect::<RawArrayBuf>();
    Ok(rawdoc! { "userFragment": {
        "roles": roles(names),
        "inheritedRoles": roles(&resolved.roles),
        "inheritedPrivileges": privileges_shown(&resolved.privileges),
    } }
    .into())
}

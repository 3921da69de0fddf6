//! A cache of users, built from their documents.
//!
//! A cached user is valid as long as its documents are unchanged, byte for byte. This is checked when something was
//! applied since the last check. So any change of the documents (an applied entry, a rollback, an initial sync)
//! affects the next request of every open connection, without an explicit invalidation.

use std::{collections::HashMap, sync::Arc};

use bson::RawBsonRef;
use parking_lot::Mutex;
use protocol::{Namespace, OpTime, RawDoc};
use storage::{ReadAt, StorageError, Store, View};

use super::{
    builtin::{self, BuiltinRoles},
    user::{RoleDocuments, RoleName, User, UserName},
};
use protocol::Profile;

/// `admin.system.users`.
pub(crate) const USERS: &str = "system.users";
/// `admin.system.roles`.
pub(crate) const ROLES: &str = "system.roles";

/// Maximum number of entries; above it the cache is emptied, so that many logins cannot fill the memory.
const ENTRIES_MAX: usize = 10_000;

/// Users by name.
#[derive(Default)]
pub struct Users(Mutex<HashMap<UserName, Entry>>);

struct Entry {
    looked_at: OpTime,
    known: Arc<Known>,
}

struct Known {
    fcv: &'static str,
    sources: Vec<Source>,
    user: Arc<User>,
}

/// A document that a user was built from, or its absence.
struct Source {
    coll: &'static str,
    id: String,
    doc: Option<RawDoc>,
}

impl Users {
    /// The current user; `None` if there is none.
    pub fn find(
        &self,
        store: &Store,
        profile: &Profile,
        name: &UserName,
    ) -> Result<Option<Arc<User>>, StorageError> {
        let known = {
            let entries = self.0.lock();
            match entries.get(name).filter(|entry| entry.known.fcv == profile.fcv) {
                Some(entry) if entry.looked_at == store.watermarks().applied().op_time => {
                    return Ok(Some(entry.known.user.clone()));
                }
                other => other.map(|entry| entry.known.clone()),
            }
        };
        let view = store.view(ReadAt::Newest)?;
        let known = match known {
            Some(known) if known.still_true(&view)? => Some(known),
            _ => load(&view, profile, name)?.map(Arc::new),
        };
        let mut entries = self.0.lock();
        let Some(known) = known else {
            entries.remove(name);
            return Ok(None);
        };
        if entries.len() >= ENTRIES_MAX {
            entries.clear();
        }
        let user = known.user.clone();
        entries.insert(name.clone(), Entry { looked_at: view.position().op_time, known });
        Ok(Some(user))
    }
}

impl Known {
    fn still_true(&self, view: &View) -> Result<bool, StorageError> {
        for source in &self.sources {
            if document(view, source.coll, &source.id)? != source.doc {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn load(view: &View, profile: &Profile, name: &UserName) -> Result<Option<Known>, StorageError> {
    let id = name.id();
    let Some(doc) = document(view, USERS, &id)? else { return Ok(None) };
    let mut roles = Roles { view, seen: vec![Source { coll: USERS, id, doc: Some(doc.clone()) }] };
    let builtin: &BuiltinRoles = builtin::of(profile);
    let user = User::resolve(name.clone(), &doc, builtin, &mut roles)?;
    Ok(Some(Known { fcv: profile.fcv, sources: roles.seen, user: Arc::new(user) }))
}

/// Reads role documents of a view and records which were read.
pub struct Roles<'v> {
    view: &'v View,
    seen: Vec<Source>,
}

impl<'v> Roles<'v> {
    /// The role documents of a view.
    pub fn of(view: &'v View) -> Self {
        Self { view, seen: Vec::new() }
    }
}

impl RoleDocuments for Roles<'_> {
    type Error = StorageError;

    fn role(&mut self, name: &RoleName) -> Result<Option<RawDoc>, StorageError> {
        let id = name.id();
        let doc = document(self.view, ROLES, &id)?;
        self.seen.push(Source { coll: ROLES, id, doc: doc.clone() });
        Ok(doc)
    }
}

/// A document of `admin` by its `_id`.
pub fn document(view: &View, coll: &str, id: &str) -> Result<Option<RawDoc>, StorageError> {
    match view.catalog().collection(&Namespace::new("admin", coll)) {
        Some(collection) => view.get(&collection, RawBsonRef::String(id)),
        None => Ok(None),
    }
}

/// True if there is any user or role: then the localhost exception no longer applies.
pub fn any(view: &View) -> Result<bool, StorageError> {
    for coll in [USERS, ROLES] {
        if let Some(collection) = view.catalog().collection(&Namespace::new("admin", coll))
            && view.count(&collection)? > 0
        {
            return Ok(true);
        }
    }
    Ok(false)
}

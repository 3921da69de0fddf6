//! The collection that a command names, by name or by UUID.

use std::sync::Arc;

use bson::{RawBsonRef, spec::BinarySubtype};
use protocol::{ErrorCode, Namespace, Timestamp, fields::type_name};
use storage::{Collection, View};
use uuid::Uuid;

use crate::{context::Call, error::Failure, local, read::views};

/// The first field of a command.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Name(Namespace),
    Uuid { db: String, uuid: Uuid },
}

impl Target {
    pub(crate) fn parse(call: &Call) -> Result<Self, Failure> {
        match call.body.get(&call.name) {
            Ok(Some(RawBsonRef::String(coll))) => Ok(Self::Name(namespace(&call.db, coll)?)),
            Ok(Some(RawBsonRef::Binary(id))) if id.subtype == BinarySubtype::Uuid => {
                let uuid = Uuid::from_slice(id.bytes).map_err(|_| {
                    let text = "uuid must be a 16-byte binary field with UUID (4) subtype";
                    Failure::said(ErrorCode::InvalidUUID, text)
                })?;
                Ok(Self::Uuid { db: call.db.clone(), uuid })
            }
            Ok(Some(other)) => {
                let text = format!("Collection name has invalid type {}", type_name(&other));
                Err(Failure::said(ErrorCode::InvalidNamespace, text))
            }
            _ => Err(Failure::missing(format!("{0}.{0}", call.name))),
        }
    }

    /// The collection; `None` if there is none with that name. An unknown UUID is an error.
    pub(crate) fn collection(&self, view: &View) -> Result<Option<Arc<Collection>>, Failure> {
        match self {
            Self::Name(ns) => Ok(view.catalog().collection(ns)),
            Self::Uuid { db, uuid } => {
                let found = view.catalog().by_uuid(*uuid).filter(|coll| coll.ns().db() == db);
                found.map(Some).ok_or_else(|| {
                    let text = format!("Unable to resolve {uuid}");
                    Failure::said(ErrorCode::NamespaceNotFound, text)
                })
            }
        }
    }

    /// True if a transaction prepared up to `until` has written a document of it; for a view, any document at all.
    pub(crate) fn is_held(&self, view: &View, until: Timestamp) -> Result<bool, Failure> {
        match self {
            // No transaction writes to `local`.
            Self::Name(ns) if ns.db() == "local" => Ok(false),
            _ => match self.collection(view)? {
                Some(collection) => Ok(view.holds(Some(&collection), until)?),
                None => Ok(view.holds(None, until)? && views::exists(view, self.name()?)?),
            },
        }
    }

    /// The name, if one was given.
    pub(crate) fn name(&self) -> Result<&Namespace, Failure> {
        match self {
            Self::Name(ns) => Ok(ns),
            Self::Uuid { uuid, .. } => {
                let text = format!("Unable to resolve {uuid}");
                Err(Failure::said(ErrorCode::NamespaceNotFound, text))
            }
        }
    }

    pub(crate) fn is_oplog(&self) -> bool {
        matches!(self, Self::Name(ns) if is_oplog(ns))
    }
}

pub(crate) fn is_oplog(ns: &Namespace) -> bool {
    ns.db() == "local" && ns.coll() == local::OPLOG
}

/// A namespace from database and collection; fails if the name is invalid.
pub(crate) fn namespace(db: &str, coll: &str) -> Result<Namespace, Failure> {
    let wrong = coll.is_empty() || coll.starts_with('.') || coll.contains('\0');
    if wrong {
        let full = if coll.is_empty() { db.to_owned() } else { format!("{db}.{coll}") };
        let text = format!("Invalid namespace specified: {full}");
        return Err(Failure::said(ErrorCode::InvalidNamespace, text));
    }
    Ok(Namespace::new(db, coll))
}

//! The commands in oplog entries with `op: "c"`, as MongoDB 4.4 to 8.2 write them.
//!
//! The first field of `o` names the command; mostly its value is the collection.

use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, Uuid};

use super::{OplogEntryError, ReplOperation};
use crate::{
    FieldError, Timestamp,
    fields::{Fields, Value},
};

/// A command of the oplog with its arguments.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// A collection is created.
    Create {
        /// Name of the collection.
        coll: &'a str,
        /// The entry's `o`: `create` and then the options, including `idIndex`.
        options: &'a RawDocument,
        /// The specification of the `_id` index; absent for views and clustered collections.
        id_index: Option<&'a RawDocument>,
    },
    /// Options of a collection or of one of its indexes are changed.
    CollMod {
        /// Name of the collection.
        coll: &'a str,
        /// The entry's `o`: `collMod` and then the changes.
        changes: &'a RawDocument,
    },
    /// A collection is dropped.
    Drop {
        /// Name of the collection.
        coll: &'a str,
        /// How many documents it had.
        num_records: Option<i64>,
    },
    /// A database is dropped; earlier entries have dropped its collections.
    DropDatabase,
    /// A collection is renamed, within its database or into another one.
    RenameCollection(RenameCollection<'a>),
    /// An index is created and is ready at once.
    CreateIndexes {
        /// The collection's name.
        coll: &'a str,
        /// The index specification.
        spec: IndexSpec<'a>,
    },
    /// A two-phase index build starts.
    StartIndexBuild(IndexBuild<'a>),
    /// An index build is committed; its indexes are ready.
    CommitIndexBuild(IndexBuild<'a>),
    /// An index build is aborted.
    AbortIndexBuild {
        /// The build.
        build: IndexBuild<'a>,
        /// The error, `{ok, code, codeName, errmsg}`.
        cause: Option<&'a RawDocument>,
    },
    /// An index is dropped (`dropIndexes`, or `deleteIndexes` before 8.0).
    DropIndexes {
        /// The collection's name.
        coll: &'a str,
        /// The dropped index.
        index: IndexRef<'a>,
        /// The specification of the dropped index.
        old_spec: Option<&'a RawDocument>,
    },
    /// Several operations in one entry.
    ApplyOps(ApplyOps<'a>),
    /// A prepared transaction commits.
    CommitTransaction {
        /// The timestamp at which its effects become visible.
        commit_timestamp: Timestamp,
    },
    /// A transaction aborts.
    AbortTransaction,
    /// All documents of a capped collection are removed (before 8.0).
    EmptyCapped {
        /// Name of the collection.
        coll: &'a str,
    },
    /// A collection is converted to a capped one in place (4.4).
    ConvertToCapped {
        /// Name of the collection.
        coll: &'a str,
        /// The size limit of the capped collection.
        size: i64,
    },
    /// A consistency check; no data changes.
    DbCheck,
    /// A collection was imported as data files, which a secondary cannot follow.
    ImportCollection,
    /// Sharding metadata of a database is created (8.2).
    CreateDatabaseMetadata,
    /// Sharding metadata of a database is dropped (8.2).
    DropDatabaseMetadata,
    /// The promotion of the replica set to a sharded cluster starts (8.2).
    BeginPromotionToShardedCluster,
    /// The promotion to a sharded cluster is complete (8.2).
    CompletePromotionToShardedCluster,
}

/// The arguments of renameCollection.
#[derive(Clone, Debug)]
pub struct RenameCollection<'a> {
    /// Full namespace before the rename.
    pub from: &'a str,
    /// Full namespace after the rename.
    pub to: &'a str,
    /// The collection remains a temporary one.
    pub stay_temp: bool,
    /// What happens to a collection that already has the new name.
    pub drop_target: DropTarget,
}

/// What a rename does with a collection that already has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropTarget {
    /// There is no such collection.
    None,
    /// The collection with this UUID is dropped.
    Uuid(Uuid),
    /// Any collection with that name is dropped (hand-written entries).
    Any,
}

/// The arguments of startIndexBuild, commitIndexBuild and abortIndexBuild.
#[derive(Clone, Debug)]
pub struct IndexBuild<'a> {
    /// The collection's name.
    pub coll: &'a str,
    /// UUID of the build.
    pub build_uuid: Uuid,
    /// The index specifications.
    pub indexes: &'a RawArray,
}

/// How dropIndexes names an index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexRef<'a> {
    /// By name.
    Name(&'a str),
    /// By key pattern.
    Key(&'a RawDocument),
}

/// Where createIndexes stores the index specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexSpec<'a> {
    /// In the entry's `o`, after the command's name.
    Inline(&'a RawDocument),
    /// In the field `spec`.
    Nested(&'a RawDocument),
}

impl IndexSpec<'_> {
    /// The specification without the command's name.
    pub fn to_spec(self) -> Result<RawDocumentBuf, FieldError> {
        let (Self::Inline(doc) | Self::Nested(doc)) = self;
        let mut spec = RawDocumentBuf::new();
        for element in doc {
            let broken = |_| FieldError::Bson { path: "createIndexes".to_owned() };
            let (key, value) = element.map_err(broken)?;
            if key.as_str() != "createIndexes" {
                spec.append(key, value);
            }
        }
        Ok(spec)
    }
}

/// The arguments of applyOps.
#[derive(Clone, Debug)]
pub struct ApplyOps<'a> {
    /// The operations, not parsed.
    pub ops: &'a RawArray,
    /// The transaction is prepared and waits for commit or abort.
    pub prepare: bool,
    /// More entries of this transaction follow.
    pub partial_txn: bool,
    /// Number of operations in the whole transaction; given in its last entry if there are several.
    pub count: Option<i64>,
}

impl<'a> ApplyOps<'a> {
    /// Iterates over the operations; each is parsed when it is reached.
    pub fn iter(
        &self,
    ) -> impl Iterator<Item = Result<ReplOperation<'a>, OplogEntryError>> + use<'a> {
        self.ops.into_iter().map(|op| {
            let op = op.map_err(|_| FieldError::Bson { path: "applyOps".to_owned() })?;
            ReplOperation::parse(Value::new("applyOps", "ops", op).document()?)
        })
    }

    fn parse(fields: &Fields<'a>) -> Result<Self, FieldError> {
        let flag = |name| fields.optional(name)?.map_or(Ok(false), |value| value.safe_bool());
        Ok(Self {
            ops: fields.required("applyOps")?.array()?,
            prepare: flag("prepare")?,
            partial_txn: flag("partialTxn")?,
            count: fields.optional("count")?.map(|count| count.safe_i64()).transpose()?,
        })
    }
}

impl<'a> Command<'a> {
    /// Parses the command in an entry's `o`.
    pub fn parse(o: &'a RawDocument, o2: Option<&'a RawDocument>) -> Result<Self, OplogEntryError> {
        let first = o.iter().next().transpose();
        let first = first.map_err(|_| FieldError::Bson { path: "o".to_owned() })?;
        let (name, value) = first.ok_or_else(|| OplogEntryError::UnknownCommand(String::new()))?;
        let name = name.as_str();
        let fields = Fields::idl(name, o);
        let coll = || Value::new(name, name, value).str();
        Ok(match name {
            "create" => Self::Create {
                coll: coll()?,
                options: o,
                id_index: fields.optional("idIndex")?.map(|spec| spec.document()).transpose()?,
            },
            "collMod" => Self::CollMod { coll: coll()?, changes: o },
            "drop" => Self::Drop { coll: coll()?, num_records: num_records(o2)? },
            "dropDatabase" => Self::DropDatabase,
            "renameCollection" => Self::RenameCollection(RenameCollection::parse(&fields)?),
            "createIndexes" => Self::CreateIndexes { coll: coll()?, spec: index_spec(&fields)? },
            "startIndexBuild" => Self::StartIndexBuild(IndexBuild::parse(name, &fields)?),
            "commitIndexBuild" => Self::CommitIndexBuild(IndexBuild::parse(name, &fields)?),
            "abortIndexBuild" => Self::AbortIndexBuild {
                build: IndexBuild::parse(name, &fields)?,
                cause: fields.optional("cause")?.map(|cause| cause.document()).transpose()?,
            },
            "dropIndexes" | "deleteIndexes" | "dropIndex" | "deleteIndex" => {
                Self::DropIndexes { coll: coll()?, index: index_ref(&fields)?, old_spec: o2 }
            }
            "applyOps" => Self::ApplyOps(ApplyOps::parse(&fields)?),
            "commitTransaction" => Self::CommitTransaction {
                commit_timestamp: fields.required("commitTimestamp")?.timestamp()?,
            },
            "abortTransaction" => Self::AbortTransaction,
            _ => Self::parse_rare(name, value, &fields)?,
        })
    }

    fn parse_rare(
        name: &'a str,
        value: RawBsonRef<'a>,
        fields: &Fields<'a>,
    ) -> Result<Self, OplogEntryError> {
        let coll = || Value::new(name, name, value).str();
        Ok(match name {
            "emptycapped" => Self::EmptyCapped { coll: coll()? },
            "convertToCapped" => {
                Self::ConvertToCapped { coll: coll()?, size: fields.required("size")?.safe_i64()? }
            }
            "dbCheck" => Self::DbCheck,
            "importCollection" => Self::ImportCollection,
            "createDatabaseMetadata" => Self::CreateDatabaseMetadata,
            "dropDatabaseMetadata" => Self::DropDatabaseMetadata,
            "beginPromotionToShardedCluster" => Self::BeginPromotionToShardedCluster,
            "completePromotionToShardedCluster" => Self::CompletePromotionToShardedCluster,
            other => return Err(OplogEntryError::UnknownCommand(other.to_owned())),
        })
    }
}

impl<'a> RenameCollection<'a> {
    fn parse(fields: &Fields<'a>) -> Result<Self, FieldError> {
        let stay_temp = fields.optional("stayTemp")?;
        let drop_target = match fields.optional("dropTarget")? {
            None => DropTarget::None,
            Some(value) => match value.raw() {
                RawBsonRef::Binary(_) => DropTarget::Uuid(value.uuid()?),
                _ if value.safe_bool()? => DropTarget::Any,
                _ => DropTarget::None,
            },
        };
        Ok(Self {
            from: fields.required("renameCollection")?.str()?,
            to: fields.required("to")?.str()?,
            stay_temp: stay_temp.map_or(Ok(false), |value| value.safe_bool())?,
            drop_target,
        })
    }
}

impl<'a> IndexBuild<'a> {
    fn parse(name: &'a str, fields: &Fields<'a>) -> Result<Self, FieldError> {
        Ok(Self {
            coll: fields.required(name)?.str()?,
            build_uuid: fields.required("indexBuildUUID")?.uuid()?,
            indexes: fields.required("indexes")?.array()?,
        })
    }
}

fn index_spec<'a>(fields: &Fields<'a>) -> Result<IndexSpec<'a>, FieldError> {
    match fields.optional("spec")? {
        Some(spec) => Ok(IndexSpec::Nested(spec.document()?)),
        None => Ok(IndexSpec::Inline(fields.doc())),
    }
}

fn index_ref<'a>(fields: &Fields<'a>) -> Result<IndexRef<'a>, FieldError> {
    let index = fields.required("index")?;
    match index.raw() {
        RawBsonRef::Document(key) => Ok(IndexRef::Key(key)),
        _ => Ok(IndexRef::Name(index.str()?)),
    }
}

fn num_records(o2: Option<&RawDocument>) -> Result<Option<i64>, FieldError> {
    let Some(o2) = o2 else { return Ok(None) };
    Fields::idl("o2", o2).optional("numRecords")?.map(|number| number.safe_i64()).transpose()
}

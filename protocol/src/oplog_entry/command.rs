//! The commands that an entry with `op: "c"` may hold, of MongoDB 4.4 to 8.2.
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
    /// A collection begins.
    Create {
        /// Its name.
        coll: &'a str,
        /// The entry's `o`: `create` and then the options, `idIndex` among them.
        options: &'a RawDocument,
        /// The specification of the `_id` index; absent for views and clustered collections.
        id_index: Option<&'a RawDocument>,
    },
    /// Options of a collection or of one of its indexes change.
    CollMod {
        /// Its name.
        coll: &'a str,
        /// The entry's `o`: `collMod` and then the changes.
        changes: &'a RawDocument,
    },
    /// A collection ends.
    Drop {
        /// Its name.
        coll: &'a str,
        /// How many documents it had.
        num_records: Option<i64>,
    },
    /// A database ends; its collections went before.
    DropDatabase,
    /// A collection gets another name, within its database or into another one.
    RenameCollection(RenameCollection<'a>),
    /// An index begins and is ready at once.
    CreateIndexes {
        /// The collection's name.
        coll: &'a str,
        /// Where the specification lies.
        spec: IndexSpec<'a>,
    },
    /// Indexes begin to be built.
    StartIndexBuild(IndexBuild<'a>),
    /// Indexes are ready.
    CommitIndexBuild(IndexBuild<'a>),
    /// Indexes will not be built.
    AbortIndexBuild {
        /// Which.
        build: IndexBuild<'a>,
        /// `{ok, code, codeName, errmsg}`.
        cause: Option<&'a RawDocument>,
    },
    /// An index ends (`dropIndexes`, `deleteIndexes` before 8.0).
    DropIndexes {
        /// The collection's name.
        coll: &'a str,
        /// Which one.
        index: IndexRef<'a>,
        /// The specification it had.
        old_spec: Option<&'a RawDocument>,
    },
    /// Operations in one entry.
    ApplyOps(ApplyOps<'a>),
    /// A prepared transaction commits.
    CommitTransaction {
        /// When its effects become visible.
        commit_timestamp: Timestamp,
    },
    /// A transaction aborts.
    AbortTransaction,
    /// A capped collection loses its documents (before 8.0).
    EmptyCapped {
        /// Its name.
        coll: &'a str,
    },
    /// A collection becomes capped in place (4.4).
    ConvertToCapped {
        /// Its name.
        coll: &'a str,
        /// The size it gets.
        size: i64,
    },
    /// A consistency check; no data changes.
    DbCheck,
    /// A collection was brought in as files, which a secondary cannot follow.
    ImportCollection,
    /// Sharding metadata of a database begins (8.2).
    CreateDatabaseMetadata,
    /// Sharding metadata of a database ends (8.2).
    DropDatabaseMetadata,
    /// The replica set begins to become a sharded cluster (8.2).
    BeginPromotionToShardedCluster,
    /// The replica set has become a sharded cluster (8.2).
    CompletePromotionToShardedCluster,
}

/// The arguments of renameCollection.
#[derive(Clone, Debug)]
pub struct RenameCollection<'a> {
    /// Full namespace before.
    pub from: &'a str,
    /// Full namespace after.
    pub to: &'a str,
    /// Stays a temporary collection.
    pub stay_temp: bool,
    /// What happens to a collection that has the name.
    pub drop_target: DropTarget,
}

/// What a rename does with a collection that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropTarget {
    /// There is none.
    None,
    /// The collection with this UUID is dropped.
    Uuid(Uuid),
    /// Whatever has the name is dropped (hand-written entries).
    Any,
}

/// The arguments of the three steps of an index build.
#[derive(Clone, Debug)]
pub struct IndexBuild<'a> {
    /// The collection's name.
    pub coll: &'a str,
    /// The build.
    pub build_uuid: Uuid,
    /// The specifications.
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

/// Where createIndexes keeps its specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexSpec<'a> {
    /// Beside the command's name, in the entry's `o`.
    Inline(&'a RawDocument),
    /// Under `spec`.
    Nested(&'a RawDocument),
}

impl IndexSpec<'_> {
    /// The specification alone.
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
    /// The operations, unparsed.
    pub ops: &'a RawArray,
    /// The transaction is prepared and waits for commit or abort.
    pub prepare: bool,
    /// More entries of this transaction follow.
    pub partial_txn: bool,
    /// How many operations the whole transaction has; in its last entry, if there are several.
    pub count: Option<i64>,
}

impl<'a> ApplyOps<'a> {
    /// The operations, each parsed when it is asked for.
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

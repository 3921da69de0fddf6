//! The metadata that replication attaches to commands and replies: `$replData`, `$oplogQueryData`, `$clusterTime` and
//! `operationTime`.
//!
//! A reply has the first two only if the request asked with `$replData: 1` or `$oplogQueryData: 1`. Fields are
//! written in mongod's order and with mongod's types; a field that only some releases write is an `Option`.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr, oid::ObjectId, rawdoc};

use crate::{
    FieldError, OpTime, OpTimeAndWall, Timestamp,
    fields::{Fields, Value},
};

/// `$replData`: the sender's replication state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplSetMetadata {
    /// The sender's term.
    pub term: i64,
    /// The commit point as the sender knows it, with the wall clock time of that entry.
    pub last_op_committed: OpTimeAndWall,
    /// The newest position visible to majority reads on the sender.
    pub last_op_visible: OpTime,
    /// Version of the sender's config.
    pub config_version: i64,
    /// Term of the sender's config.
    pub config_term: i64,
    /// Id of the replica set; all zeros without a config.
    pub replica_set_id: ObjectId,
    /// Index of the primary; only 4.4 writes it.
    pub primary_index: Option<i32>,
    /// Index of the sender's sync source, -1 if it has none.
    pub sync_source_index: i32,
    /// The sender is primary.
    pub is_primary: bool,
}

impl ReplSetMetadata {
    const NAME: &str = "$replData";

    /// Parses it from a request or reply; `None` if it is absent or is only a request for it.
    pub fn from_message(message: &RawDocument) -> Result<Option<Self>, FieldError> {
        object(message, Self::NAME)?.map(|fields| Self::parse(&fields)).transpose()
    }

    /// Parses the document under `$replData`.
    pub fn from_document(doc: &RawDocument) -> Result<Self, FieldError> {
        Self::parse(&Fields::extract(doc))
    }

    fn parse(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let config_term = fields.optional("configTerm")?;
        let index = fields.optional("primaryIndex")?;
        Ok(Self {
            term: fields.required("term")?.safe_i64()?,
            last_op_committed: committed(fields)?,
            last_op_visible: fields.required("lastOpVisible")?.op_time()?,
            config_version: fields.required("configVersion")?.safe_i64()?,
            config_term: config_term.map_or(Ok(-1), |term| term.safe_i64())?,
            replica_set_id: match fields.optional("replicaSetId")? {
                Some(id) => id.object_id()?,
                None => ObjectId::from_bytes([0; 12]),
            },
            primary_index: index.map(|index| index.safe_i32()).transpose()?,
            sync_source_index: fields.required("syncSourceIndex")?.safe_i32()?,
            is_primary: fields.optional("isPrimary")?.map_or(Ok(false), |v| v.safe_bool())?,
        })
    }

    /// Appends `$replData` to a reply or request.
    pub fn append_to(&self, message: &mut RawDocumentBuf) {
        let mut doc = RawDocumentBuf::new();
        doc.append(cstr!("term"), self.term);
        append_committed(&mut doc, self.last_op_committed);
        doc.append(cstr!("lastOpVisible"), self.last_op_visible.to_raw());
        doc.append(cstr!("configVersion"), self.config_version);
        doc.append(cstr!("configTerm"), self.config_term);
        doc.append(cstr!("replicaSetId"), self.replica_set_id);
        if let Some(index) = self.primary_index {
            doc.append(cstr!("primaryIndex"), index);
        }
        doc.append(cstr!("syncSourceIndex"), self.sync_source_index);
        doc.append(cstr!("isPrimary"), self.is_primary);
        message.append(cstr!("$replData"), doc);
    }
}

/// `$oplogQueryData`: a sync source's state, sent with every oplog batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OplogQueryMetadata {
    /// The commit point as the source knows it, with the wall clock time of that entry.
    pub last_op_committed: OpTimeAndWall,
    /// The newest entry that the source has applied.
    pub last_op_applied: OpTime,
    /// The newest entry in the source's oplog; written by 8.0 and later.
    pub last_op_written: Option<OpTime>,
    /// The source's rollback id.
    pub rbid: i32,
    /// Index of the primary as the source sees it, -1 if there is none.
    pub primary_index: i32,
    /// Index of the source's own sync source, -1 if it has none.
    pub sync_source_index: i32,
    /// Address of the source's own sync source, `:27017` if it has none; some 5.0 releases leave it out.
    pub sync_source_host: Option<String>,
}

impl OplogQueryMetadata {
    const NAME: &str = "$oplogQueryData";

    /// Parses it from a reply; `None` if it is absent.
    pub fn from_message(message: &RawDocument) -> Result<Option<Self>, FieldError> {
        object(message, Self::NAME)?.map(|fields| Self::parse(&fields)).transpose()
    }

    /// The newest entry in the source's oplog.
    pub fn written(&self) -> OpTime {
        self.last_op_written.unwrap_or(self.last_op_applied)
    }

    fn parse(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let host = fields.optional("syncSourceHost")?;
        let written = fields.optional("lastOpWritten")?;
        Ok(Self {
            last_op_committed: committed(fields)?,
            last_op_applied: fields.required("lastOpApplied")?.op_time()?,
            last_op_written: written.map(|value| value.op_time()).transpose()?,
            rbid: fields.required("rbid")?.safe_i32()?,
            primary_index: fields.required("primaryIndex")?.safe_i32()?,
            sync_source_index: fields.required("syncSourceIndex")?.safe_i32()?,
            sync_source_host: host.map(|host| host.str().map(str::to_owned)).transpose()?,
        })
    }

    /// Appends `$oplogQueryData` to a reply.
    pub fn append_to(&self, message: &mut RawDocumentBuf) {
        let mut doc = RawDocumentBuf::new();
        append_committed(&mut doc, self.last_op_committed);
        doc.append(cstr!("lastOpApplied"), self.last_op_applied.to_raw());
        if let Some(written) = self.last_op_written {
            doc.append(cstr!("lastOpWritten"), written.to_raw());
        }
        doc.append(cstr!("rbid"), self.rbid);
        doc.append(cstr!("primaryIndex"), self.primary_index);
        doc.append(cstr!("syncSourceIndex"), self.sync_source_index);
        if let Some(host) = &self.sync_source_host {
            doc.append(cstr!("syncSourceHost"), host.as_str());
        }
        message.append(cstr!("$oplogQueryData"), doc);
    }
}

/// `$clusterTime`: the cluster's logical clock, which every message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTime {
    /// The logical time.
    pub time: Timestamp,
    /// Absent between members since 8.0; all zeros without authentication.
    pub signature: Option<Signature>,
}

/// Proves that a member of the cluster issued the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// HMAC-SHA1 of the time.
    pub hash: [u8; 20],
    /// Id of the key in `admin.system.keys`.
    pub key_id: i64,
}

impl Signature {
    /// The signature that a node without authentication writes.
    pub const DUMMY: Self = Self { hash: [0; 20], key_id: 0 };
}

impl ClusterTime {
    const NAME: &str = "$clusterTime";

    /// Parses it from a message; `None` if it is absent.
    pub fn from_message(message: &RawDocument) -> Result<Option<Self>, FieldError> {
        object(message, Self::NAME)?.map(|fields| Self::parse(&fields)).transpose()
    }

    fn parse(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let time = fields.required("clusterTime")?.timestamp()?;
        let signature = match fields.optional("signature")? {
            None => None,
            Some(value) => {
                let fields = value.fields()?;
                let hash = hash(&fields.required("hash")?)?;
                Some(Signature { hash, key_id: fields.required("keyId")?.safe_i64()? })
            }
        };
        Ok(Self { time, signature })
    }

    /// Appends `$clusterTime` to a message.
    pub fn append_to(&self, message: &mut RawDocumentBuf) {
        let mut doc = rawdoc! { "clusterTime": bson::Timestamp::from(self.time) };
        if let Some(signature) = &self.signature {
            let hash = bson::Binary {
                subtype: bson::spec::BinarySubtype::Generic,
                bytes: signature.hash.to_vec(),
            };
            let signature = rawdoc! { "hash": hash, "keyId": signature.key_id };
            doc.append(cstr!("signature"), signature);
        }
        message.append(cstr!("$clusterTime"), doc);
    }
}

/// `operationTime`: the newest position of the node when it replied.
pub fn operation_time(reply: &RawDocument) -> Option<Timestamp> {
    reply.get_timestamp("operationTime").ok().map(Timestamp::from)
}

/// Appends `operationTime` to a reply.
pub fn append_operation_time(reply: &mut RawDocumentBuf, time: Timestamp) {
    reply.append(cstr!("operationTime"), bson::Timestamp::from(time));
}

/// The fields of a metadata document; `None` if it is absent or only a request for it.
fn object<'a>(
    message: &'a RawDocument,
    name: &'static str,
) -> Result<Option<Fields<'a>>, FieldError> {
    match message.get(name) {
        Err(_) => Err(FieldError::Bson { path: name.to_owned() }),
        Ok(Some(RawBsonRef::Document(doc))) => Ok(Some(Fields::extract(doc))),
        Ok(_) => Ok(None),
    }
}

fn committed(fields: &Fields<'_>) -> Result<OpTimeAndWall, FieldError> {
    Ok(OpTimeAndWall {
        op_time: fields.required("lastOpCommitted")?.op_time()?,
        wall: fields.required("lastCommittedWall")?.date()?,
    })
}

fn append_committed(doc: &mut RawDocumentBuf, committed: OpTimeAndWall) {
    doc.append(cstr!("lastOpCommitted"), committed.op_time.to_raw());
    doc.append(cstr!("lastCommittedWall"), committed.wall);
}

fn hash(value: &Value<'_>) -> Result<[u8; 20], FieldError> {
    let bytes = match value.raw() {
        RawBsonRef::Binary(binary) => <[u8; 20]>::try_from(binary.bytes).ok(),
        _ => None,
    };
    bytes.ok_or_else(|| FieldError::ExtractType {
        name: "hash".to_owned(),
        expected: "binData",
        found: crate::fields::type_name(&value.raw()),
    })
}

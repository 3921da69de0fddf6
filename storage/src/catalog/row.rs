//! A collection as a row of the catalog's table.
//!
//! `{ns, table, idTable?, options, idIndex?, indexes: [{spec, table, side, build?: UUID, multikey?: [[n]], terms?:
//! true}]}`
//!
//! `terms` marks text indexes that have keys: before format 3 they had none.

use bson::{
    Binary, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc,
    spec::BinarySubtype,
};
use protocol::{Namespace, RawDoc};
use std::sync::Arc;
use uuid::Uuid;

use super::{Collection, Index, IndexState, Parts};
use crate::{IndexKind, StorageError, layout::TableId, mvcc::Version};

impl Collection {
    /// Encodes the row that [`Self::from_row`] reads.
    pub(crate) fn to_row(&self) -> RawDocumentBuf {
        let mut row = rawdoc! { "ns": self.ns.as_str(), "table": i64::from(self.table.0) };
        if let Some(table) = self.id_table {
            row.append(cstr!("idTable"), i64::from(table.0));
        }
        row.append(cstr!("options"), &*self.options);
        if let Some(spec) = self.id_index() {
            row.append(cstr!("idIndex"), spec);
        }
        let mut indexes = RawArrayBuf::new();
        for index in &self.indexes {
            indexes.push(index.to_row());
        }
        row.append(cstr!("indexes"), indexes);
        row
    }

    /// Reads a row of the catalog.
    pub(crate) fn from_row(key: &[u8], version: &Version) -> Result<Self, StorageError> {
        let broken = |why: &str| StorageError::corrupt("the catalog", why.to_owned());
        let uuid = Uuid::from_slice(key).map_err(|_| broken("a key is not a UUID"))?;
        let row = RawDocument::from_bytes(version.payload())
            .map_err(|e| broken(&format!("the row of {uuid}: {e}")))?;
        let parts = parse(uuid, row).ok_or_else(|| broken(&format!("the row of {uuid}")))?;
        Ok(Self::new(Parts { start: version.start(), ..parts }))
    }
}

fn parse(uuid: Uuid, row: &RawDocument) -> Option<Parts> {
    let indexes = row
        .get_array("indexes")
        .ok()?
        .into_iter()
        .map(|entry| Index::from_row(entry.ok()?.as_document()?).map(Arc::new))
        .collect::<Option<_>>()?;
    Some(Parts {
        uuid,
        ns: Namespace::parse(row.get_str("ns").ok()?)?,
        options: row.get_document("options").ok()?.into(),
        id_index: row.get_document("idIndex").ok().map(RawDoc::from),
        table: table(row, "table")?,
        id_table: table(row, "idTable"),
        indexes,
        start: protocol::Timestamp::NULL,
    })
}

fn table(row: &RawDocument, name: &str) -> Option<TableId> {
    u32::try_from(row.get_i64(name).ok()?).ok().map(TableId)
}

impl Index {
    fn to_row(&self) -> RawDocumentBuf {
        let mut row = rawdoc! { "table": i64::from(self.table.0), "side": i64::from(self.side.0) };
        row.append(cstr!("spec"), &*self.spec);
        if let IndexState::Building { build_uuid } = self.state {
            let bytes = build_uuid.as_bytes().to_vec();
            row.append(cstr!("build"), Binary { subtype: BinarySubtype::Uuid, bytes });
        }
        if self.kind() == IndexKind::Text {
            row.append(cstr!("terms"), true);
        }
        if self.is_multikey() {
            let mut fields = RawArrayBuf::new();
            for paths in &self.multikey {
                let mut field = RawArrayBuf::new();
                for at in paths {
                    field.push(i32::try_from(*at).unwrap_or(i32::MAX));
                }
                fields.push(field);
            }
            row.append(cstr!("multikey"), fields);
        }
        row
    }

    fn from_row(row: &RawDocument) -> Option<Self> {
        let state = match row.get("build").ok()? {
            None => IndexState::Ready,
            Some(RawBsonRef::Binary(build)) => {
                IndexState::Building { build_uuid: Uuid::from_slice(build.bytes).ok()? }
            }
            Some(_) => return None,
        };
        let mut multikey = Vec::new();
        if let Ok(fields) = row.get_array("multikey") {
            for field in fields {
                let paths = field.ok()?.as_array()?.into_iter();
                multikey.push(
                    paths
                        .map(|at| u32::try_from(at.ok()?.as_i32()?).ok())
                        .collect::<Option<Vec<u32>>>()?,
                );
            }
        }
        let spec = RawDoc::from(row.get_document("spec").ok()?);
        let index = Self::new(spec, table(row, "table")?, table(row, "side")?, state, multikey);
        let filled = index.kind() != IndexKind::Text || row.get_bool("terms").unwrap_or(false);
        Some(if filled { index } else { index.without_keys() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format 2 stored text indexes without keys.
    #[test]
    fn a_text_index_without_keys_stays_without() {
        let spec = rawdoc! {
            "v": 2, "name": "t", "key": { "_fts": "text", "_ftsx": 1 }, "weights": { "a": 1 },
            "default_language": "english", "language_override": "language", "textIndexVersion": 3,
        };
        let index =
            Index::new(spec.into(), TableId(20), TableId(21), IndexState::Ready, Vec::new());
        assert!(index.usable());
        let row = index.to_row();
        assert!(Index::from_row(&row).unwrap().usable());
        let mut old = RawDocumentBuf::new();
        for (name, value) in row.iter().flatten().filter(|(name, _)| name.as_str() != "terms") {
            old.append(name, value);
        }
        let old = Index::from_row(&old).unwrap();
        assert!(!old.usable());
        let changed = old.changed(IndexState::Ready, vec![vec![0]]);
        assert!(!changed.usable());
        assert!(!Index::from_row(&changed.to_row()).unwrap().usable());
    }
}

//! Commands that change the catalog.

use std::{fmt::Display, sync::Arc};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use protocol::{
    Namespace, OpTime, OplogEntry, Timestamp,
    oplog_entry::{
        Command, DropTarget, IndexBuild, IndexRef, OpKind, RenameCollection, ReplOperation,
    },
};
use storage::{Apply, Collection, IndexState};
use uuid::Uuid;

use super::{
    Applier, ApplyError, Mode,
    capped::fcv_begins_with,
    options::{self, documents},
    uuid_of,
};

/// A command with what is needed to apply it.
struct Ddl<'a> {
    op: &'a ReplOperation<'a>,
    entry: OpTime,
    ts: Timestamp,
}

impl Ddl<'_> {
    fn bad(&self, why: impl Display) -> ApplyError {
        ApplyError::entry(self.entry, why)
    }

    fn uuid(&self) -> Result<Uuid, ApplyError> {
        uuid_of(self.op).ok_or_else(|| self.bad("it has no field 'ui'"))
    }

    fn specs<'b>(&self, build: &IndexBuild<'b>) -> Result<Vec<&'b RawDocument>, ApplyError> {
        documents(build.indexes).collect::<Result<_, _>>().map_err(|e| self.bad(e))
    }
}

impl Applier {
    /// Applies `command`, which `op` contains; it is part of `entry` and takes effect at `ts`.
    pub(super) fn ddl(
        &self,
        batch: &mut Apply,
        entry: &OplogEntry<'_>,
        op: &ReplOperation<'_>,
        command: &Command<'_>,
        ts: Timestamp,
    ) -> Result<(), ApplyError> {
        let ddl = Ddl { op, entry: entry.op_time, ts };
        match command {
            Command::Create { coll, options, id_index } => {
                self.create(batch, &ddl, coll, options, *id_index)
            }
            Command::DropDatabase => drop_database(batch, &ddl),
            Command::RenameCollection(rename) => self.rename(batch, &ddl, rename),
            // dbCheck compares hashes between nodes; it changes no data.
            Command::DbCheck => Ok(()),
            Command::Drop { .. }
            | Command::CollMod { .. }
            | Command::CreateIndexes { .. }
            | Command::DropIndexes { .. }
            | Command::StartIndexBuild(_)
            | Command::CommitIndexBuild(_)
            | Command::AbortIndexBuild { .. }
            | Command::EmptyCapped { .. } => match self.collection_of(batch, op, entry.op_time)? {
                Some(coll) => self.ddl_on(batch, &ddl, &coll, command),
                None => Ok(()),
            },
            Command::ConvertToCapped { .. }
            | Command::ImportCollection
            | Command::CreateDatabaseMetadata
            | Command::DropDatabaseMetadata
            | Command::BeginPromotionToShardedCluster
            | Command::CompletePromotionToShardedCluster
            | Command::ApplyOps(_)
            | Command::CommitTransaction { .. }
            | Command::AbortTransaction => {
                Err(ddl.bad(format_args!("this node cannot follow the command {command:?} here")))
            }
        }
    }

    /// Commands on an existing collection.
    fn ddl_on(
        &self,
        batch: &mut Apply,
        ddl: &Ddl<'_>,
        coll: &Arc<Collection>,
        command: &Command<'_>,
    ) -> Result<(), ApplyError> {
        match command {
            Command::Drop { .. } => {
                batch.drop_collection(ddl.ts, coll.uuid())?;
            }
            Command::EmptyCapped { .. } => {
                batch.truncate(ddl.ts, coll)?;
            }
            Command::CollMod { changes, .. } => self.coll_mod(batch, ddl, coll, changes)?,
            _ if !self.build_indexes => {}
            Command::CreateIndexes { spec, .. } => {
                let spec = spec.to_spec().map_err(|e| ddl.bad(e))?;
                create_index(batch, ddl, coll, &spec, IndexState::Ready)?;
            }
            Command::StartIndexBuild(build) => {
                let build_uuid = build_uuid(build);
                for spec in ddl.specs(build)? {
                    create_index(batch, ddl, coll, spec, IndexState::Building { build_uuid })?;
                }
            }
            Command::CommitIndexBuild(build) => commit_index_build(batch, ddl, coll, build)?,
            Command::AbortIndexBuild { build, .. } => {
                for spec in ddl.specs(build)? {
                    batch.drop_index(ddl.ts, coll.uuid(), name_of(ddl, spec)?)?;
                }
            }
            Command::DropIndexes { index, .. } => self.drop_index(batch, ddl, coll, index)?,
            _ => {}
        }
        Ok(())
    }

    fn create(
        &self,
        batch: &mut Apply,
        ddl: &Ddl<'_>,
        name: &str,
        create: &RawDocument,
        id_index: Option<&RawDocument>,
    ) -> Result<(), ApplyError> {
        let ns = Namespace::new(ddl.op.db(), name);
        let uuid = ddl.uuid()?;
        if let Some(there) = batch.collection(uuid) {
            // The collection was cloned, perhaps already under the name that a later entry gives it.
            tracing::debug!(%ns, now = %there.ns(), "the collection to create already exists");
            return Ok(());
        }
        if let Some(other) = batch.collection_by_name(&ns) {
            move_aside(batch, other.uuid(), &ns, ddl.ts)?;
        }
        let collection_options = options::of_create(create).map_err(|e| ddl.bad(e))?;
        batch.create(ddl.ts, &ns, uuid, &collection_options, id_index)?;
        Ok(())
    }

    fn rename(
        &self,
        batch: &mut Apply,
        ddl: &Ddl<'_>,
        rename: &RenameCollection<'_>,
    ) -> Result<(), ApplyError> {
        let to = Namespace::parse(rename.to).ok_or_else(|| ddl.bad("'to' is no namespace"))?;
        let source = ddl.uuid()?;
        if let DropTarget::Uuid(target) = rename.drop_target {
            let target = Uuid::from_bytes(target.bytes());
            if target != source && batch.collection(target).is_some() {
                batch.drop_collection(ddl.ts, target)?;
            }
        }
        let Some(coll) = self.collection_of(batch, ddl.op, ddl.entry)? else { return Ok(()) };
        if let Some(other) = batch.collection_by_name(&to)
            && other.uuid() != source
        {
            if rename.drop_target == DropTarget::Any {
                batch.drop_collection(ddl.ts, other.uuid())?;
            } else {
                move_aside(batch, other.uuid(), &to, ddl.ts)?;
            }
        }
        batch.rename(ddl.ts, source, &to)?;
        if !rename.stay_temp && coll.options().get("temp").is_ok_and(|temp| temp.is_some()) {
            let kept = options::not_temp(coll.options()).map_err(|e| ddl.bad(e))?;
            batch.set_options(ddl.ts, source, &kept)?;
        }
        Ok(())
    }

    fn coll_mod(
        &self,
        batch: &mut Apply,
        ddl: &Ddl<'_>,
        coll: &Collection,
        changes: &RawDocument,
    ) -> Result<(), ApplyError> {
        let mut after = options::after_coll_mod(coll.options(), changes).map_err(|e| ddl.bad(e))?;
        // On 5.0, a collMod that does not mention `recordPreImages` sets it to false.
        let told = changes.get("recordPreImages").is_ok_and(|told| told.is_some());
        let kept = after.get("recordPreImages").is_ok_and(|kept| kept.is_some());
        if kept && !told && fcv_begins_with(batch, "5.")? {
            let off = rawdoc! { "recordPreImages": false };
            after = options::after_coll_mod(&after, &off).map_err(|e| ddl.bad(e))?;
        }
        if after.as_bytes() != coll.options().as_bytes() {
            batch.set_options(ddl.ts, coll.uuid(), &after)?;
        }
        let Ok(index) = changes.get_document("index") else { return Ok(()) };
        if !self.build_indexes {
            return Ok(());
        }
        let name = name_of(ddl, index)?;
        match coll.index(name) {
            Some(old) => {
                let spec: RawDocumentBuf =
                    options::index_after_coll_mod(old.spec(), index).map_err(|e| ddl.bad(e))?;
                Ok(batch.replace_index_spec(ddl.ts, coll.uuid(), name, &spec)?)
            }
            None => self.no_index(ddl, name),
        }
    }

    fn drop_index(
        &self,
        batch: &mut Apply,
        ddl: &Ddl<'_>,
        coll: &Collection,
        index: &IndexRef<'_>,
    ) -> Result<(), ApplyError> {
        let name = match index {
            IndexRef::Name(name) => (*name).to_owned(),
            IndexRef::Key(key) => coll
                .indexes()
                .iter()
                .find(|index| {
                    index.key_pattern().is_some_and(|pattern| pattern.as_bytes() == key.as_bytes())
                })
                .map(|index| index.name().to_owned())
                .ok_or_else(|| ddl.bad("it names an index by a key that is not here"))?,
        };
        if batch.drop_index(ddl.ts, coll.uuid(), &name)? {
            Ok(())
        } else {
            self.no_index(ddl, &name)
        }
    }

    fn no_index(&self, ddl: &Ddl<'_>, name: &str) -> Result<(), ApplyError> {
        match self.mode {
            Mode::InitialSync => Ok(()),
            Mode::Steady => {
                Err(ddl.bad(format_args!("it names index '{name}', which is not here")))
            }
        }
    }

    /// What must happen before an index build's entry is applied.
    pub(super) fn before(&self, entry: &OplogEntry<'_>) -> Result<(), ApplyError> {
        let Some(coll) = uuid_of(&entry.op).filter(|_| self.build_indexes) else { return Ok(()) };
        match &entry.op.kind {
            OpKind::Command(Command::CommitIndexBuild(build)) => {
                self.builds.finish(&self.store, coll, build_uuid(build))
            }
            OpKind::Command(Command::AbortIndexBuild { build, .. }) => {
                self.builds.cancel(build_uuid(build))
            }
            _ => Ok(()),
        }
    }

    /// What follows after an index build's entry is applied and readable.
    pub(super) fn after(&self, entry: &OplogEntry<'_>) {
        if let OpKind::Command(Command::StartIndexBuild(build)) = &entry.op.kind
            && let Some(coll) = uuid_of(&entry.op).filter(|_| self.build_indexes)
        {
            self.builds.start(&self.store, coll, build_uuid(build));
        }
    }
}

fn create_index(
    batch: &mut Apply,
    ddl: &Ddl<'_>,
    coll: &Collection,
    spec: &RawDocument,
    state: IndexState,
) -> Result<(), ApplyError> {
    if coll.index(name_of(ddl, spec)?).is_none() {
        batch.create_index(ddl.ts, coll.uuid(), spec, state)?;
    }
    Ok(())
}

fn commit_index_build(
    batch: &mut Apply,
    ddl: &Ddl<'_>,
    coll: &Collection,
    build: &IndexBuild<'_>,
) -> Result<(), ApplyError> {
    for spec in ddl.specs(build)? {
        let name = name_of(ddl, spec)?;
        match coll.index(name) {
            Some(_) => batch.set_index_ready(ddl.ts, coll.uuid(), name)?,
            // Its start is before the entries that we applied, and the clone did not see it.
            None => batch.create_index(ddl.ts, coll.uuid(), spec, IndexState::Ready)?,
        }
    }
    Ok(())
}

fn drop_database(batch: &mut Apply, ddl: &Ddl<'_>) -> Result<(), ApplyError> {
    for coll in batch.collections(ddl.op.db()) {
        batch.drop_collection(ddl.ts, coll.uuid())?;
    }
    Ok(())
}

/// Frees a name. In initial sync two collections may claim one name until a later entry drops or renames one of them.
/// Afterwards a name is free when the primary says so.
fn move_aside(
    batch: &mut Apply,
    uuid: Uuid,
    ns: &Namespace,
    ts: Timestamp,
) -> Result<(), ApplyError> {
    let aside = Namespace::new(ns.db(), &format!("tmp{}.create", uuid.simple()));
    tracing::info!(%ns, %uuid, %aside, "renaming a collection because another one needs its name");
    Ok(batch.rename(ts, uuid, &aside)?)
}

fn name_of<'a>(ddl: &Ddl<'_>, spec: &'a RawDocument) -> Result<&'a str, ApplyError> {
    spec.get_str("name").map_err(|e| ddl.bad(e))
}

fn build_uuid(build: &IndexBuild<'_>) -> Uuid {
    Uuid::from_bytes(build.build_uuid.bytes())
}

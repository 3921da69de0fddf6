//! Copies databases and collections from a sync source.
//!
//! Several collections are cloned in parallel, each over its own connection: the source streams documents through an
//! exhaust cursor, and a blocking thread loads them. After a lost connection the clone resumes with the source's
//! resume token.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc, spec::BinarySubtype};
use parking_lot::Mutex;
use protocol::{
    ErrorCode, HostAndPort, Namespace, OpTimeAndWall, RawDoc,
    client::{ClientError, Connection},
};
use storage::{IndexState, StorageError, Store};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{
    core::{
        backoff::Backoff,
        initial_sync::{CollectionProgress, Progress, databases_to_clone, is_unreplicated},
    },
    io::{
        clock,
        initial_sync::{Jobs, SyncError},
        peer::Peer,
    },
};

/// Number of collections cloned in parallel.
const WORKERS: usize = 3;
/// Approximate size of the requested replies: mongod's default of 16 MiB would be held four times, from socket to
/// loader.
const REPLY_BYTES: u64 = 4 << 20;
/// Smaller collections come in a few replies, so their document size is not queried.
const LARGE_COLLECTION: u64 = 10_000;
/// Maximum number of replies between network and loader, per collection.
const BATCHES_AHEAD: usize = 1;
/// Timeout of the clone's requests.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// What is cloned, from where and to where.
#[derive(Clone)]
pub(crate) struct Cloner {
    pub(crate) store: Store,
    pub(crate) peer: Peer,
    pub(crate) source: HostAndPort,
    /// The timestamp of the clone's catalog entries.
    pub(crate) begin: OpTimeAndWall,
    pub(crate) build_indexes: bool,
    pub(crate) progress: Arc<Mutex<Progress>>,
    /// How long one collection may be retried after lost connections.
    pub(crate) retry_period: Duration,
    pub(crate) jobs: Jobs,
}

/// A collection in the source's list.
#[derive(Clone, Debug)]
struct Listed {
    ns: Namespace,
    uuid: Uuid,
    options: RawDocumentBuf,
    id_index: Option<RawDocumentBuf>,
}

impl Cloner {
    /// Clones all databases except `local`.
    pub(crate) async fn run(&self) -> Result<(), SyncError> {
        let mut connection = self.connect().await?;
        let listed = self.list(&mut connection).await?;
        tracing::info!(collections = listed.len(), source = %self.source, "cloning");
        let queue = Arc::new(Mutex::new(VecDeque::from(listed)));
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..WORKERS {
            let (cloner, queue) = (self.clone(), queue.clone());
            workers.spawn(async move { cloner.work(&queue).await });
        }
        while let Some(worker) = workers.join_next().await {
            worker.map_err(|e| SyncError::Bug(e.to_string()))??;
        }
        Ok(())
    }

    async fn work(&self, queue: &Mutex<VecDeque<Listed>>) -> Result<(), SyncError> {
        let mut connection = None;
        loop {
            let next = queue.lock().pop_front();
            let Some(listed) = next else { return Ok(()) };
            self.clone_collection(&mut connection, &listed).await?;
        }
    }

    async fn connect(&self) -> Result<Connection, SyncError> {
        Ok(self.peer.connect(&self.source).await?)
    }

    async fn list(&self, connection: &mut Connection) -> Result<Vec<Listed>, SyncError> {
        let command = rawdoc! {
            "listDatabases": 1, "filter": {}, "nameOnly": true,
            "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = connection.run("admin", command, REPLY_TIMEOUT).await?;
        let mut names = Vec::new();
        for db in reply.get_array("databases").map_err(SyncError::reply)? {
            if let RawBsonRef::Document(db) = db.map_err(SyncError::reply)? {
                names.push(db.get_str("name").map_err(SyncError::reply)?.to_owned());
            }
        }
        let mut listed = Vec::new();
        for db in databases_to_clone(names.into_iter()) {
            self.note_size(connection, &db).await?;
            for coll in self.list_collections(connection, &db).await? {
                self.progress.lock().collection(&db, coll.ns.coll());
                listed.push(coll);
            }
        }
        Ok(listed)
    }

    /// Adds the source's data size, against which progress is shown.
    async fn note_size(&self, connection: &mut Connection, db: &str) -> Result<(), SyncError> {
        let stats = connection.run(db, rawdoc! { "dbStats": 1 }, REPLY_TIMEOUT).await?;
        self.progress.lock().total_bytes += number(&stats, "dataSize");
        Ok(())
    }

    async fn list_collections(
        &self,
        connection: &mut Connection,
        db: &str,
    ) -> Result<Vec<Listed>, SyncError> {
        let command = rawdoc! {
            "listCollections": 1,
            "filter": { "$or": [{ "type": "collection" }, { "type": { "$exists": false } }] },
            "cursor": {},
            "$readPreference": { "mode": "secondaryPreferred" },
        };
        let mut listed = Vec::new();
        for info in all_documents(connection, db, command).await? {
            let listing = Listed::parse(db, &info)?;
            if !is_unreplicated(listing.ns.coll()) {
                listed.push(listing);
            }
        }
        Ok(listed)
    }

    async fn clone_collection(
        &self,
        connection: &mut Option<Connection>,
        listed: &Listed,
    ) -> Result<(), SyncError> {
        let Some(Shape { indexes, count, batch }) = self.look(connection, listed).await? else {
            return Ok(());
        };
        let builds = self.create(listed, &indexes)?;
        self.note(listed, |progress| {
            progress.documents_to_copy = count;
            progress.indexes = indexes.len().saturating_sub(1);
        });
        self.load(connection, listed, batch).await?;
        self.note(listed, |progress| progress.done = true);
        if builds {
            tracing::info!(ns = %listed.ns, "an index build in progress on the source continues here");
        }
        Ok(())
    }

    /// The collection's indexes and count; `None` if it no longer exists. Reconnects if the connection is lost.
    async fn look(
        &self,
        connection: &mut Option<Connection>,
        listed: &Listed,
    ) -> Result<Option<Shape>, SyncError> {
        let mut retries = Retries::new(self.retry_period);
        loop {
            match self.look_once(connection, listed).await {
                Err(SyncError::Source(error)) if error.is_network() => {
                    *connection = None;
                    retries.wait(listed, error).await?;
                }
                other => return other,
            }
        }
    }

    async fn look_once(
        &self,
        slot: &mut Option<Connection>,
        listed: &Listed,
    ) -> Result<Option<Shape>, SyncError> {
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut shape = None;
        if let Some(indexes) = self.indexes(&mut connection, listed).await? {
            let count = count(&mut connection, listed).await?;
            let large = count >= LARGE_COLLECTION;
            let batch = if large { batch_size(&mut connection, listed).await? } else { None };
            shape = Some(Shape { indexes, count, batch });
        }
        *slot = Some(connection);
        Ok(shape)
    }

    fn note(&self, listed: &Listed, change: impl FnOnce(&mut CollectionProgress)) {
        change(self.progress.lock().collection(listed.ns.db(), listed.ns.coll()));
    }

    /// The index specs; `None` if the collection no longer exists.
    async fn indexes(
        &self,
        connection: &mut Connection,
        listed: &Listed,
    ) -> Result<Option<Vec<RawDoc>>, SyncError> {
        let command = rawdoc! {
            "listIndexes": binary(listed.uuid), "cursor": {}, "includeBuildUUIDs": true,
            "$readPreference": { "mode": "secondaryPreferred" },
        };
        match all_documents(connection, listed.ns.db(), command).await {
            Ok(specs) => Ok(Some(specs)),
            Err(SyncError::Source(e)) if e.code() == Some(ErrorCode::NamespaceNotFound) => {
                tracing::info!(ns = %listed.ns, "dropped on the source before it was cloned");
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Creates the catalog entries, before the first document. True if an index is still being built on the source.
    fn create(&self, listed: &Listed, indexes: &[RawDoc]) -> Result<bool, SyncError> {
        let ts = self.begin.op_time.ts;
        let mut batch = self.store.begin_apply();
        let id_index = listed.id_index.as_deref();
        batch.create(ts, &listed.ns, listed.uuid, &listed.options, id_index)?;
        let mut builds = false;
        for index in indexes.iter().filter(|_| self.build_indexes) {
            let (spec, state) = match index.get_document("spec") {
                Ok(spec) => {
                    builds = true;
                    let build = index.get("buildUUID").ok().flatten().and_then(uuid_of);
                    let build_uuid =
                        build.ok_or_else(|| SyncError::reply("an index build without UUID"))?;
                    (spec, IndexState::Building { build_uuid })
                }
                Err(_) => (index.as_raw(), IndexState::Ready),
            };
            if !is_id_index(spec) {
                batch.create_index(ts, listed.uuid, spec, state)?;
            }
        }
        batch.commit(self.begin)?;
        Ok(builds)
    }

    /// Streams the documents to a loader on a blocking thread.
    async fn load(
        &self,
        connection: &mut Option<Connection>,
        listed: &Listed,
        batch: Option<i64>,
    ) -> Result<(), SyncError> {
        let (batches, loaded) = self.loader(listed)?;
        let received = self.receive(connection, listed, batch, &batches).await;
        drop(batches);
        let stored = loaded.await.map_err(|e| SyncError::Bug(e.to_string()))?;
        // If the store failed, the receiver only saw a closed channel, so the store's error is returned.
        stored?;
        match received? {
            Received::All => Ok(()),
            Received::Dropped => {
                tracing::info!(ns = %listed.ns, "dropped on the source while it was cloned");
                Ok(())
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "a sender and its thread")]
    fn loader(
        &self,
        listed: &Listed,
    ) -> Result<
        (mpsc::Sender<Vec<RawDoc>>, tokio::task::JoinHandle<Result<(), StorageError>>),
        SyncError,
    > {
        let (batches, mut queue) = mpsc::channel::<Vec<RawDoc>>(BATCHES_AHEAD);
        let (store, uuid) = (self.store.clone(), listed.uuid);
        let job = self.jobs.clone().try_read_owned();
        let job = job.map_err(|_| SyncError::Bug("the next attempt has begun".into()))?;
        let loaded = tokio::task::spawn_blocking(move || {
            let _job = job;
            let docs = std::iter::from_fn(|| queue.blocking_recv()).flatten();
            store.load(uuid, docs).map(|_| ())
        });
        Ok((batches, loaded))
    }

    async fn receive(
        &self,
        connection: &mut Option<Connection>,
        listed: &Listed,
        batch: Option<i64>,
        batches: &mpsc::Sender<Vec<RawDoc>>,
    ) -> Result<Received, SyncError> {
        let mut place = Place::default();
        let mut retries = Retries::new(self.retry_period);
        loop {
            match self.receive_once(connection, listed, batch, batches, &mut place).await {
                Err(SyncError::Source(error)) if place.can_be_found_again(&error) => {
                    *connection = None;
                    if error.code().is_some_and(is_lost_place) {
                        place = Place::default();
                    }
                    retries.wait(listed, error).await?;
                }
                other => return other,
            }
        }
    }

    async fn receive_once(
        &self,
        slot: &mut Option<Connection>,
        listed: &Listed,
        batch: Option<i64>,
        batches: &mpsc::Sender<Vec<RawDoc>>,
        place: &mut Place,
    ) -> Result<Received, SyncError> {
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let db = listed.ns.db();
        let find = find_all_command(listed.uuid, place.resume.as_deref());
        let reply = match connection.fetch(db, find, REPLY_TIMEOUT).await {
            Ok(reply) => reply,
            Err(e) if e.code() == Some(ErrorCode::NamespaceNotFound) => {
                *slot = Some(connection);
                return Ok(Received::Dropped);
            }
            Err(e) => return Err(e.into()),
        };
        let mut cursor = self.pass_on(listed, &reply, batches, place).await?;
        if cursor == 0 {
            *slot = Some(connection);
            return Ok(Received::All);
        }
        while cursor != 0 {
            let mut get_more = rawdoc! { "getMore": cursor, "collection": listed.ns.coll() };
            if let Some(batch) = batch {
                get_more.append(bson::raw::cstr!("batchSize"), batch);
            }
            let preference = rawdoc! { "mode": "secondaryPreferred" };
            get_more.append(bson::raw::cstr!("$readPreference"), preference);
            let mut replies = connection.exhaust(db, get_more, REPLY_TIMEOUT).await?;
            loop {
                let reply = match replies.next(REPLY_TIMEOUT).await {
                    Ok(Some(reply)) => reply,
                    Ok(None) => break,
                    Err(e) if e.code() == Some(ErrorCode::NamespaceNotFound) => {
                        return Ok(Received::Dropped);
                    }
                    Err(e) => return Err(e.into()),
                };
                cursor = self.pass_on(listed, &reply, batches, place).await?;
            }
        }
        *slot = Some(connection);
        Ok(Received::All)
    }

    /// Passes the documents of a reply to the loader; returns the cursor id.
    async fn pass_on(
        &self,
        listed: &Listed,
        reply: &RawDoc,
        batches: &mpsc::Sender<Vec<RawDoc>>,
        place: &mut Place,
    ) -> Result<i64, SyncError> {
        let (cursor, documents, token) = cursor_reply(reply)?;
        let bytes: usize = documents.iter().map(|doc| doc.len()).sum();
        self.note(listed, |progress| {
            progress.documents_copied += documents.len() as u64;
            progress.bytes_copied += bytes as u64;
            progress.fetched_batches += 1;
        });
        if !documents.is_empty() {
            place.begun = true;
            if batches.send(documents).await.is_err() {
                return Err(SyncError::Bug("the loader ended early".into()));
            }
        }
        if token.is_some() {
            place.resume = token;
        }
        Ok(cursor)
    }
}

/// What is queried about a collection before its documents.
struct Shape {
    indexes: Vec<RawDoc>,
    count: u64,
    /// Documents per reply; `None` leaves it to the source.
    batch: Option<i64>,
}

/// How far the documents of a collection were received.
#[derive(Default)]
struct Place {
    begun: bool,
    resume: Option<RawDoc>,
}

impl Place {
    /// True if the remaining documents can still be fetched after this error.
    fn can_be_found_again(&self, error: &ClientError) -> bool {
        let lost = error.is_network() || error.code().is_some_and(is_lost_cursor);
        (lost && (self.resume.is_some() || !self.begun)) || error.code().is_some_and(is_lost_place)
    }
}

/// Retries of one collection after lost connections, for a limited time.
struct Retries {
    backoff: Backoff,
    /// Deadline, on the clock of `clock::now`.
    deadline: Duration,
}

impl Retries {
    fn new(period: Duration) -> Self {
        Self {
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)),
            deadline: clock::now().mono + period,
        }
    }

    /// Waits before the next attempt, or returns the error if the time is over.
    async fn wait(&mut self, listed: &Listed, error: ClientError) -> Result<(), SyncError> {
        if clock::now().mono >= self.deadline {
            return Err(SyncError::Source(error));
        }
        tracing::warn!(ns = %listed.ns, %error, "the clone of a collection broke off and is taken up again");
        tokio::time::sleep(self.backoff.next_wait()).await;
        Ok(())
    }
}

enum Received {
    All,
    Dropped,
}

impl Listed {
    fn parse(db: &str, info: &RawDocument) -> Result<Self, SyncError> {
        let name = info.get_str("name").map_err(SyncError::reply)?;
        let details = info.get_document("info").map_err(SyncError::reply)?;
        let uuid = details.get("uuid").ok().flatten().and_then(uuid_of);
        let uuid = uuid.ok_or_else(|| SyncError::NoUuid { ns: format!("{db}.{name}") })?;
        let options = info.get_document("options").map_err(SyncError::reply)?;
        let id_index = info.get_document("idIndex").ok();
        let legacy = id_index.is_none()
            && options.get("clusteredIndex").ok().flatten().is_none()
            && !options.get_bool("capped").unwrap_or(false);
        if legacy {
            return Err(SyncError::NoIdIndex { ns: format!("{db}.{name}") });
        }
        Ok(Self {
            ns: Namespace::new(db, name),
            uuid,
            options: options.to_owned(),
            id_index: id_index.map(RawDocument::to_owned),
        })
    }
}

fn find_all_command(uuid: Uuid, resume: Option<&RawDocument>) -> RawDocumentBuf {
    let mut find = rawdoc! {
        "find": binary(uuid),
        "hint": { "$natural": 1 },
        "noCursorTimeout": true,
        "$_requestResumeToken": true,
    };
    if let Some(token) = resume {
        find.append(bson::raw::cstr!("$_resumeAfter"), token.to_owned());
    }
    find.append(bson::raw::cstr!("readConcern"), rawdoc! { "level": "local" });
    find.append(bson::raw::cstr!("$readPreference"), rawdoc! { "mode": "secondaryPreferred" });
    find
}

async fn count(connection: &mut Connection, listed: &Listed) -> Result<u64, SyncError> {
    let command = rawdoc! {
        "count": binary(listed.uuid), "query": {}, "readConcern": { "level": "local" },
        "$readPreference": { "mode": "secondaryPreferred" },
    };
    match connection.run(listed.ns.db(), command, REPLY_TIMEOUT).await {
        Ok(reply) => Ok(number(&reply, "n")),
        Err(e) if e.code() == Some(ErrorCode::NamespaceNotFound) => Ok(0),
        Err(e) => Err(e.into()),
    }
}

/// Number of documents in a reply of [`REPLY_BYTES`]; `None` leaves it to the source.
async fn batch_size(
    connection: &mut Connection,
    listed: &Listed,
) -> Result<Option<i64>, SyncError> {
    let command = rawdoc! {
        "collStats": listed.ns.coll(), "$readPreference": { "mode": "secondaryPreferred" },
    };
    let stats = match connection.run(listed.ns.db(), command, REPLY_TIMEOUT).await {
        Ok(stats) => stats,
        // Renamed or dropped meanwhile: the clone uses the UUID and detects it by itself.
        Err(e) if e.code().is_some() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let size = REPLY_BYTES.checked_div(number(&stats, "avgObjSize"));
    Ok(size.and_then(|documents| i64::try_from(documents.max(1)).ok()))
}

/// All documents of a cursor command.
async fn all_documents(
    connection: &mut Connection,
    db: &str,
    command: RawDocumentBuf,
) -> Result<Vec<RawDoc>, SyncError> {
    let reply = connection.run(db, command, REPLY_TIMEOUT).await?;
    let ns = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_str("ns"))
        .map_err(SyncError::reply)?
        .to_owned();
    let (mut cursor, mut documents, _) = cursor_reply(&reply)?;
    let coll = ns.split_once('.').map_or("", |(_, coll)| coll);
    while cursor != 0 {
        let get_more = rawdoc! { "getMore": cursor, "collection": coll };
        let reply = connection.run(db, get_more, REPLY_TIMEOUT).await?;
        let (next, more, _) = cursor_reply(&reply)?;
        documents.extend(more);
        cursor = next;
    }
    Ok(documents)
}

/// Cursor id, documents and resume token of a find or getMore reply.
fn cursor_reply(reply: &RawDoc) -> Result<(i64, Vec<RawDoc>, Option<RawDoc>), SyncError> {
    let cursor = reply.get_document("cursor").map_err(SyncError::reply)?;
    let id = number(cursor, "id");
    let batch = cursor
        .get_array("nextBatch")
        .or_else(|_| cursor.get_array("firstBatch"))
        .map_err(SyncError::reply)?;
    let mut documents = Vec::new();
    for item in batch {
        if let RawBsonRef::Document(doc) = item.map_err(SyncError::reply)? {
            documents.push(reply.share(doc));
        }
    }
    let token = cursor.get_document("postBatchResumeToken").ok().map(|token| reply.share(token));
    Ok((i64::try_from(id).unwrap_or(0), documents, token))
}

fn number(doc: &RawDocument, field: &str) -> u64 {
    match doc.get(field) {
        Ok(Some(RawBsonRef::Int64(n))) => u64::try_from(n).unwrap_or(0),
        Ok(Some(RawBsonRef::Int32(n))) => u64::try_from(n).unwrap_or(0),
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "sizes for display"
        )]
        Ok(Some(RawBsonRef::Double(n))) => n as u64,
        _ => 0,
    }
}

fn uuid_of(value: RawBsonRef<'_>) -> Option<Uuid> {
    match value {
        RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            Uuid::from_slice(binary.bytes).ok()
        }
        _ => None,
    }
}

fn is_id_index(spec: &RawDocument) -> bool {
    spec.get_str("name").is_ok_and(|name| name == "_id_")
        || spec.get_bool("clustered").unwrap_or(false)
}

/// The last received document was deleted, so the source cannot resume after it, and the clone restarts from the
/// beginning. The loader accepts documents twice. For a capped collection none comes twice, because all documents
/// before the deleted one are gone, too.
fn is_lost_place(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::KeyNotFound | ErrorCode::CappedPositionLost)
}

/// The source has closed the cursor, because of a drop or an operator: the next find will tell.
fn is_lost_cursor(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CursorNotFound
            | ErrorCode::CursorKilled
            | ErrorCode::QueryPlanKilled
            | ErrorCode::OperationFailed
    )
}

fn binary(uuid: Uuid) -> bson::Binary {
    bson::Binary { subtype: BinarySubtype::Uuid, bytes: uuid.as_bytes().to_vec() }
}

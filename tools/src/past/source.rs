//! A connection to a running node, for its present and its past.

use std::{collections::HashSet, time::Duration};

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::{
    options::{Acknowledgment, ClientOptions, ReadPreference, SelectionCriteria, WriteConcern},
    sync::{Client, Cursor},
};
use protocol::{
    Timestamp,
    moment::{self, Moment},
};

use super::reach::reach;
use crate::screen::Screen;

/// A running Understudy.
pub struct Node {
    uri: String,
    /// Client that reads the present.
    pub client: Client,
    oldest: Timestamp,
    newest: Timestamp,
}

/// A node, read at one moment.
pub struct Past {
    /// Client that reads at this moment.
    pub client: Client,
    /// The moment.
    pub ts: Timestamp,
}

/// A collection at a moment.
#[derive(Clone, Debug)]
pub struct Collection {
    /// Its database.
    pub db: String,
    /// Its name.
    pub name: String,
    /// `collection`, `view` or `timeseries`.
    pub kind: String,
    /// Its creation options.
    pub options: Document,
    /// Its UUID.
    pub uuid: Option<bson::Uuid>,
}

/// A connection string without its password, for error texts.
pub(super) fn without_password(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return "the connection string".to_owned();
    };
    match rest.rsplit_once('@') {
        Some((_, hosts)) => format!("{scheme}://{hosts}"),
        None => uri.to_owned(),
    }
}

/// Server selection timeout for a server that accepts connections.
const SELECTION_LIMIT: Duration = Duration::from_secs(10);

impl Node {
    /// Connects, and asks how far back the node can be read.
    pub fn connect(uri: &str) -> Result<Self> {
        let client = connect(uri, None)?;
        let status = client
            .database("admin")
            .run_command(doc! { "serverStatus": 1 })
            .run()
            .with_context(|| format!("ask {}", without_password(uri)))?;
        let Ok(window) = status.get_document("historyWindow") else {
            bail!(
                "{} is not an Understudy: its serverStatus has no historyWindow",
                without_password(uri)
            );
        };
        let at = |name| -> Result<Timestamp> { Ok(window.get_timestamp(name)?.into()) };
        let (oldest, newest) = (at("oldestReadable")?, at("newestReadable")?);
        Ok(Self { uri: uri.to_owned(), client, oldest, newest })
    }

    /// Parses a moment and checks that it can be read.
    pub fn resolve(&self, screen: &Screen, text: &str) -> Result<Timestamp> {
        if text == "now" {
            return Ok(self.newest);
        }
        let (moment, ts) = screen.moment(text)?;
        let ts = if matches!(moment, Moment::Ago(_)) { ts.min(self.newest) } else { ts };
        self.check_shown(ts, |ts| screen.time(ts))
            .with_context(|| format!("{text} cannot be read"))?;
        Ok(ts)
    }

    /// The oldest readable timestamp.
    pub fn oldest(&self) -> Timestamp {
        self.oldest
    }

    /// The newest readable timestamp.
    pub fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Opens a connection that reads at this moment.
    pub fn at(&self, ts: Timestamp) -> Result<Past> {
        let name = format!("@Timestamp({},{})", ts.secs(), ts.inc());
        Ok(Past { client: connect(&self.uri, Some(name))?, ts })
    }

    /// Like [`Self::at`], for a timestamp from another member that may still be ahead of the node: reads wait for it.
    pub fn awaited(&self, ts: bson::Timestamp) -> Result<Past> {
        self.at(ts.into())
    }

    /// Like [`Self::at`], for a moment as the user wrote it.
    pub fn past(&self, screen: &Screen, text: &str) -> Result<Past> {
        self.at(self.resolve(screen, text)?)
    }

    /// Checks that a moment can still be read; the error says how far back one can go.
    pub fn check(&self, ts: Timestamp) -> Result<()> {
        self.check_shown(ts, moment::shown)
    }

    fn check_shown(&self, ts: Timestamp, time: impl Fn(Timestamp) -> String) -> Result<()> {
        let shown = |ts| format!("{ts} ({})", time(ts));
        let window = || format!("readable are {} to {}", shown(self.oldest), shown(self.newest));
        if ts > self.newest {
            bail!("{} lies after what the node has applied; {}", shown(ts), window());
        }
        if ts < self.oldest {
            bail!("{} lies before the history window; {}", shown(ts), window());
        }
        Ok(())
    }

    /// Entries of the node's oplog.
    pub fn oplog(&self, filter: Document) -> Result<Cursor<Document>> {
        let oplog = self.client.database("local").collection::<Document>("oplog.rs");
        Ok(oplog.find(filter).sort(doc! { "$natural": 1 }).run()?)
    }

    /// The first timestamp of the node's oplog; `None` if it is empty.
    pub(crate) fn oplog_begin(&self) -> Result<Option<Timestamp>> {
        let oplog = self.client.database("local").collection::<Document>("oplog.rs");
        let first = oplog.find_one(doc! {}).sort(doc! { "$natural": 1 }).run()?;
        Ok(first.map(|entry| entry.get_timestamp("ts")).transpose()?.map(Timestamp::from))
    }

    /// Runs a command that returns a cursor as a snapshot read at `ts`, on the client that is not pinned to a
    /// timestamp.
    pub(crate) fn list_at(
        &self,
        db: &str,
        mut command: Document,
        ts: Timestamp,
    ) -> Result<Vec<Document>> {
        let concern = doc! { "level": "snapshot", "atClusterTime": bson::Timestamp::from(ts) };
        command.insert("readConcern", concern);
        let listed = self.client.database(db).run_cursor_command(command).run();
        Ok(listed.and_then(Iterator::collect)?)
    }

    /// The connection string without its password.
    pub(crate) fn shown_uri(&self) -> String {
        without_password(&self.uri)
    }

    /// A connection string for the set's primary, as far as the node knows it.
    pub(crate) fn primary_uri(&self) -> Result<Option<String>> {
        let hello = self.client.database("admin").run_command(doc! { "hello": 1 }).run()?;
        Ok(hello.get_str("primary").ok().map(|host| format!("mongodb://{host}")))
    }
}

/// Connects to exactly one server.
fn connect(uri: &str, app_name: Option<String>) -> Result<Client> {
    let mut options = ClientOptions::parse(uri)
        .run()
        .with_context(|| format!("read {}", without_password(uri)))?;
    options.direct_connection = Some(true);
    options.app_name = app_name.or(Some("understudy-tools".to_owned()));
    options.server_selection_timeout = Some(SELECTION_LIMIT);
    reach(&options)?;
    let nearest = ReadPreference::SecondaryPreferred { options: None };
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(nearest));
    Client::with_options(options).context("make a client")
}

/// Connects to a whole cluster; writes use write concern majority.
pub(super) fn connect_cluster(uri: &str) -> Result<Client> {
    let mut options = ClientOptions::parse(uri)
        .run()
        .with_context(|| format!("read {}", without_password(uri)))?;
    options.server_selection_timeout.get_or_insert(SELECTION_LIMIT);
    reach(&options)?;
    options.write_concern =
        Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    Client::with_options(options).context("make a client")
}

/// Databases of the server itself.
const INTERNAL: [&str; 3] = ["admin", "config", "local"];

impl Past {
    /// Runs a command.
    pub fn run(&self, db: &str, command: Document) -> Result<Document> {
        let name = command.keys().next().cloned().unwrap_or_default();
        let reply = self.client.database(db).run_command(command).run();
        reply.with_context(|| format!("{name} on {db} at {}", self.ts))
    }

    /// The databases, except those of the server itself.
    pub fn databases(&self) -> Result<Vec<String>> {
        let reply = self.run("admin", doc! { "listDatabases": 1, "nameOnly": true })?;
        let mut names: Vec<String> = reply
            .get_array("databases")?
            .iter()
            .filter_map(|db| Some(db.as_document()?.get_str("name").ok()?.to_owned()))
            .filter(|name| !INTERNAL.contains(&name.as_str()))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The collections, views and time series of a database, by name.
    pub fn collections(&self, db: &str) -> Result<Vec<Collection>> {
        let mut found = Vec::new();
        for info in self.list(db, doc! { "listCollections": 1 })? {
            let uuid = info.get_document("info").ok().and_then(|info| match info.get("uuid") {
                Some(Bson::Binary(uuid)) => uuid.to_uuid().ok(),
                _ => None,
            });
            found.push(Collection {
                db: db.to_owned(),
                name: info.get_str("name")?.to_owned(),
                kind: info.get_str("type").unwrap_or("collection").to_owned(),
                options: info.get_document("options").cloned().unwrap_or_default(),
                uuid,
            });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The collections that `wanted` selects by database or collection name; all if it is empty.
    pub fn chosen(&self, wanted: &[String]) -> Result<Vec<Collection>> {
        let mut found = Vec::new();
        if wanted.is_empty() {
            for db in self.databases()? {
                found.extend(self.collections(&db)?);
            }
        }
        for name in wanted {
            let (db, collection) = match name.split_once('.') {
                None => (name.as_str(), None),
                Some((db, collection)) => (db, Some(collection)),
            };
            let buckets = collection.map(|name| format!("{BUCKETS}{name}"));
            let before = found.len();
            found.extend(self.collections(db)?.into_iter().filter(|have| {
                collection.is_none_or(|name| have.name == name)
                    || buckets.as_ref().is_some_and(|name| have.name == *name)
            }));
            if found.len() == before {
                bail!("there was no {name} at {} ({})", self.ts, moment::shown(self.ts));
            }
        }
        found.retain(|collection| collection.name != "system.views");
        // `wanted` may name both a database and one of its collections.
        let mut seen = HashSet::new();
        found.retain(|collection| seen.insert(collection.ns()));
        Ok(found)
    }

    /// True if a database or collection with that name existed.
    pub fn has(&self, name: &str) -> Result<bool> {
        Ok(match name.split_once('.') {
            None => self.databases()?.iter().any(|have| have == name),
            Some((db, name)) => self.collections(db)?.iter().any(|have| have.name == name),
        })
    }

    /// The indexes of a collection.
    pub fn indexes(&self, collection: &Collection) -> Result<Vec<Document>> {
        self.list(&collection.db, doc! { "listIndexes": &collection.name })
    }

    /// All results of a command that returns a cursor.
    fn list(&self, db: &str, command: Document) -> Result<Vec<Document>> {
        let name = command.keys().next().cloned().unwrap_or_default();
        let listed = self.client.database(db).run_cursor_command(command).run();
        listed.and_then(Iterator::collect).with_context(|| format!("{name} on {db} at {}", self.ts))
    }

    /// Exact number of documents.
    pub fn count(&self, collection: &Collection) -> Result<u64> {
        let reply = self.run(&collection.db, doc! { "count": &collection.name })?;
        number(reply.get("n"))
    }

    /// The documents, sorted by `_id` (after `after`, if given) or in natural order.
    pub fn documents(
        &self,
        collection: &Collection,
        order: Order<'_>,
    ) -> Result<Cursor<RawDocumentBuf>> {
        let handle = self.client.database(&collection.db);
        let handle = handle.collection::<RawDocumentBuf>(&collection.name);
        let simple = mongodb::options::Collation::builder().locale("simple").build();
        let find = match order {
            Order::Natural { skip } => handle.find(doc! {}).sort(doc! { "$natural": 1 }).skip(skip),
            Order::ById { after } => {
                let filter = match after {
                    // A plain `$gt` would only match values of its operand's type.
                    Some(after) => {
                        doc! { "$expr": { "$gt": ["$_id", { "$literal": after.clone() }] } }
                    }
                    None => doc! {},
                };
                handle.find(filter).sort(doc! { "_id": 1 }).collation(simple).allow_disk_use(true)
            }
        };
        Ok(find.batch_size(BATCH).run()?)
    }
}

/// The order in which documents are read.
pub enum Order<'a> {
    /// Insertion order, which matters in capped collections.
    Natural {
        /// Number of documents to skip because they were copied before.
        skip: u64,
    },
    /// Ordered by `_id`.
    ById {
        /// Start after this `_id`.
        after: Option<&'a Bson>,
    },
}

/// Name prefix of a time series' buckets collection.
pub(super) const BUCKETS: &str = "system.buckets.";

const BATCH: u32 = 1_000;

impl Collection {
    /// `db.name`.
    pub fn ns(&self) -> String {
        format!("{}.{}", self.db, self.name)
    }

    /// True if it stores documents of its own.
    pub(crate) fn has_data(&self) -> bool {
        self.kind == "collection"
    }

    /// True if it is capped, so that insertion order must be preserved.
    pub fn is_capped(&self) -> bool {
        self.options.get_bool("capped").unwrap_or_default()
    }
}

/// Converts a number for JSON output.
pub(crate) fn long(n: u64) -> Bson {
    i64::try_from(n).map_or(Bson::Double(f64::MAX), Bson::Int64)
}

/// Converts a number of any BSON type.
pub(crate) fn number(value: Option<&Bson>) -> Result<u64> {
    match value {
        Some(Bson::Int32(n)) => Ok(u64::try_from(*n)?),
        Some(Bson::Int64(n)) => Ok(u64::try_from(*n)?),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        Some(Bson::Double(n)) => Ok(*n as u64),
        _ => bail!("the node's answer has no number where one belongs"),
    }
}

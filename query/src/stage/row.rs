//! The columns of the stage table.
//!
//! A row contains everything that other code needs to know about a stage: where it may be placed, where its documents
//! come from, which other collections it reads, which privileges it needs, since which release MongoDB has it, and
//! whether mongod's second execution engine (SBE) runs it.

use super::{Over, Parsed, StageContext, table};
use crate::{Release, error::QueryError, value::Value};

pub(super) type Parse = fn(Value<'_>, &StageContext) -> Result<Parsed, QueryError>;

/// A stage of the aggregation language.
#[derive(Debug)]
pub struct StageRow {
    /// The name, including its dollar sign.
    pub name: &'static str,
    /// The first release that has it.
    pub(super) since: Release,
    /// The error of releases that do not have it.
    pub(super) before: fn(&str, Release) -> QueryError,
    form: Form,
    pub(super) place: Place,
    pub(super) in_facet: bool,
    pub(super) runs_over: RunsOver,
    /// Checks the database and the collection that the pipeline runs over.
    pub(super) home: fn(&Self, &str, &Over) -> Result<(), QueryError>,
    /// Checks the sub-pipelines of the stage, before any stage of the outer pipeline is parsed.
    pub(super) inner: fn(Value<'_>, Release) -> Result<(), QueryError>,
    pub(super) pushed: Pushed,
    /// The kind of server documents that it returns, if it does.
    pub shows: Option<Shows>,
    /// True if a pipeline that begins with it does not read its collection.
    pub brings_documents: bool,
    /// Which other collections it reads.
    pub reads: Reads,
    /// Privileges it needs, besides reading its collections.
    pub needs: Needs,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Parsed(Parse),
    /// Known but refused, before anything of the pipeline is parsed.
    Refused(fn(&str) -> QueryError),
}

/// Where a stage may be placed in a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    First,
    Last,
}

/// What a pipeline that begins with the stage may run over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunsOver {
    Collection,
    /// No collection: `{aggregate: 1}`.
    Nothing,
    Either,
}

/// Whether mongod's second execution engine (SBE) runs a stage.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pushed {
    Never,
    /// If the function accepts its specification, and no stage before it was [`Pushed::Above`].
    Below(fn(Value<'_>) -> bool),
    /// If the function accepts its specification; later stages are run by SBE only if they are of this kind, too.
    Above(fn(Value<'_>) -> bool),
}

/// The kinds of server documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the stages' own names")]
pub enum Shows {
    CollStats,
    CurrentOp,
    IndexStats,
    ListCatalog,
    ListClusterCatalog,
    ListLocalSessions,
    ListSampledQueries,
    ListSessions,
    PlanCacheStats,
    QuerySettings,
    QueryStats,
}

/// The other collections that a stage reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// None.
    Nothing,
    /// The collection whose name is in this field, and those that the stage's `pipeline` reads, if it has one. If the
    /// stage's argument is a string, that is the collection's name.
    Collection(&'static [u8]),
    /// The collections that the pipelines in its fields read.
    Facets,
}

/// The privileges that a stage needs, by MongoDB's action names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None.
    Nothing,
    /// An action on the collection that the pipeline runs over.
    Collection(&'static str),
    /// An action on the cluster.
    Cluster(&'static str),
    /// An action on the cluster, needed to see what belongs to other users.
    ClusterForAllUsers(&'static str),
    /// Being each of the requested users, or an action on the cluster.
    BeingUsers(&'static str),
    /// Listing all collections and indexes, or those of the collection.
    Catalog,
    /// Listing the collections of the database, or of all databases on `admin`.
    DatabaseCatalog,
    /// Change streams on a collection, a database or the cluster.
    Changes,
    /// Actions on the target collection, which is named in the field or is the whole specification.
    Target(Option<&'static [u8]>, [&'static str; 2]),
}

impl StageRow {
    /// The stage with this name, whatever its release.
    pub fn named(name: &[u8]) -> Option<&'static Self> {
        let rows = table::STAGES;
        let at = rows.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok()?;
        rows.get(at)
    }

    /// The stage with this name, if the release can use it.
    pub(super) fn usable(name: &[u8], release: Release) -> Result<&'static Self, QueryError> {
        let Some(row) = Self::named(name) else {
            return Err(unrecognized(&String::from_utf8_lossy(name), release));
        };
        match row.form {
            _ if release < row.since => Err((row.before)(row.name, release)),
            Form::Refused(why) => Err(why(row.name)),
            Form::Parsed(_) => Ok(row),
        }
    }

    pub(super) fn parse(&self, spec: Value<'_>, cx: &StageContext) -> Result<Parsed, QueryError> {
        match self.form {
            Form::Parsed(parse) => parse(spec, cx),
            Form::Refused(why) => Err(why(self.name)),
        }
    }

    pub(super) const fn new(name: &'static str, parse: Parse) -> Self {
        Self::of(name, Form::Parsed(parse))
    }

    const fn of(name: &'static str, form: Form) -> Self {
        Self {
            name,
            since: Release::OLDEST,
            before: unrecognized,
            form,
            place: Place::Anywhere,
            in_facet: true,
            runs_over: RunsOver::Collection,
            home: |_, _, _| Ok(()),
            inner: |_, _| Ok(()),
            pushed: Pushed::Never,
            shows: None,
            brings_documents: false,
            reads: Reads::Nothing,
            needs: Needs::Nothing,
        }
    }

    /// A stage that is known but refused.
    pub(super) const fn refused(name: &'static str, why: fn(&str) -> QueryError) -> Self {
        Self::of(name, Form::Refused(why))
    }

    /// A stage with the server's own documents.
    pub(super) const fn shown(name: &'static str, shows: Shows, parse: Parse) -> Self {
        let mut row = Self::new(name, parse).first();
        row.shows = Some(shows);
        row.brings_documents = true;
        row.in_facet = false;
        row
    }

    pub(super) const fn since(mut self, release: Release) -> Self {
        self.since = release;
        self
    }

    pub(super) const fn before(mut self, error: fn(&str, Release) -> QueryError) -> Self {
        self.before = error;
        self
    }

    pub(super) const fn first(mut self) -> Self {
        self.place = Place::First;
        self
    }

    pub(super) const fn last(mut self) -> Self {
        self.place = Place::Last;
        self.in_facet = false;
        self
    }

    pub(super) const fn in_facet(mut self, may: bool) -> Self {
        self.in_facet = may;
        self
    }

    pub(super) const fn over(mut self, runs_over: RunsOver) -> Self {
        self.runs_over = runs_over;
        self
    }

    pub(super) const fn at_home(
        mut self,
        home: fn(&Self, &str, &Over) -> Result<(), QueryError>,
    ) -> Self {
        self.home = home;
        self
    }

    pub(super) const fn inner(
        mut self,
        check: fn(Value<'_>, Release) -> Result<(), QueryError>,
    ) -> Self {
        self.inner = check;
        self
    }

    pub(super) const fn pushed(mut self, pushed: Pushed) -> Self {
        self.pushed = pushed;
        self
    }

    pub(super) const fn bringing_documents(mut self) -> Self {
        self.brings_documents = true;
        self
    }

    pub(super) const fn reads(mut self, reads: Reads) -> Self {
        self.reads = reads;
        self
    }

    pub(super) const fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }
}

fn unrecognized(name: &str, _: Release) -> QueryError {
    QueryError::location(40_324, format!("Unrecognized pipeline stage name: '{name}'"))
}

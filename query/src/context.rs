//! External inputs of an evaluation: time, randomness, interruption, other collections.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use protocol::{RawDoc, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{Release, collation::Collator, error::QueryError, source::Source, value::OwnedValue};

/// Access to other collections at the same timestamp, for `$lookup` and similar stages.
pub trait Collections {
    /// Opens a collection at the same timestamp; `None` if it does not exist.
    fn open<'s>(&'s self, namespace: &str) -> Result<Option<Box<dyn Source + 's>>, QueryError>;

    /// The definition of a view: the collection that it is on, and its pipeline as a BSON array.
    fn view(&self, _namespace: &str) -> Result<Option<(String, Vec<u8>)>, QueryError> {
        Ok(None)
    }
}

/// Temporary storage for data that exceeds the memory limit: files, in a server that allows disk use.
pub trait Spill {
    /// Writes documents, to be read back in the same order.
    fn write(
        &self,
        docs: &mut dyn Iterator<Item = RawDoc>,
    ) -> Result<Box<dyn SpilledRun>, QueryError>;
}

/// A run of spilled documents.
pub trait SpilledRun: Send + fmt::Debug {
    /// The next document.
    fn next(&mut self) -> Result<Option<RawDoc>, QueryError>;
}

/// Called regularly by long-running operations; an error ends the query.
pub type Interrupt = Rc<dyn Fn() -> Result<(), QueryError>>;

/// The environment of one query.
pub struct Context {
    random: RefCell<StdRng>,
    /// `$$NOW`, in milliseconds since 1970.
    pub now: i64,
    /// The release whose behaviour is shown; later operators and stages are unknown.
    pub release: Release,
    /// `$$CLUSTER_TIME`.
    pub cluster_time: Option<Timestamp>,
    /// The values of the command's `let`, in the order of the variables in the scope.
    pub variables: Vec<OwnedValue>,
    /// The collation of expressions.
    pub collator: Option<Arc<Collator>>,
    /// Ends the query when its time is up or it is killed.
    pub interrupt: Option<Interrupt>,
    /// Where sorts spill; without it they fail above their memory limit.
    pub spill: Option<Rc<dyn Spill>>,
    /// Access to other collections.
    pub collections: Option<Rc<dyn Collections>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

impl Context {
    /// A context with this time and a random generator seeded with `seed`.
    pub fn new(now: i64, seed: u64) -> Self {
        Self {
            random: RefCell::new(StdRng::seed_from_u64(seed)),
            now,
            release: Release::NEWEST_TESTED,
            cluster_time: None,
            variables: Vec::new(),
            collator: None,
            interrupt: None,
            spill: None,
            collections: None,
        }
    }

    /// The context of a sub-pipeline, with its own variables.
    pub fn child(&self, variables: Vec<OwnedValue>) -> Self {
        Self {
            random: RefCell::new(StdRng::seed_from_u64(self.random.borrow_mut().random())),
            now: self.now,
            release: self.release,
            cluster_time: self.cluster_time,
            variables,
            interrupt: self.interrupt.clone(),
            collator: self.collator.clone(),
            spill: self.spill.clone(),
            collections: self.collections.clone(),
        }
    }

    /// A number in [0, 1).
    pub fn random(&self) -> f64 {
        self.random.borrow_mut().random()
    }

    /// Checks whether the query was interrupted.
    pub fn check(&self) -> Result<(), QueryError> {
        self.interrupt.as_ref().map_or(Ok(()), |check| check())
    }
}

//! What evaluation takes from outside: time, chance, the will to go on, other collections.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use protocol::{RawDoc, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{Release, collation::Collator, error::QueryError, source::Source, value::OwnedValue};

/// The other collections of the moment, for `$lookup` and its like.
pub trait Collections {
    /// Opens a collection of the same moment; `None` if it does not exist.
    fn open<'s>(&'s self, namespace: &str) -> Result<Option<Box<dyn Source + 's>>, QueryError>;

    /// What a view stands for: the collection that it is on, and its pipeline as a BSON array.
    fn view(&self, _namespace: &str) -> Result<Option<(String, Vec<u8>)>, QueryError> {
        Ok(None)
    }
}

/// Somewhere to put what memory can't hold: files, in a server that allows disk use.
pub trait Spill {
    /// Writes documents away, to be read back in their order.
    fn write(
        &self,
        docs: &mut dyn Iterator<Item = RawDoc>,
    ) -> Result<Box<dyn SpilledRun>, QueryError>;
}

/// Documents that were written away.
pub trait SpilledRun: Send + fmt::Debug {
    /// The next of them.
    fn next(&mut self) -> Result<Option<RawDoc>, QueryError>;
}

/// Asked now and then by whatever runs long; an error ends the query.
pub type Interrupt = Rc<dyn Fn() -> Result<(), QueryError>>;

/// The surroundings of one query.
pub struct Context {
    random: RefCell<StdRng>,
    /// `$$NOW`, in milliseconds since 1970.
    pub now: i64,
    /// What came later is unknown.
    pub release: Release,
    /// `$$CLUSTER_TIME`.
    pub cluster_time: Option<Timestamp>,
    /// The values of the command's `let`, in the order of their names in the scope.
    pub variables: Vec<OwnedValue>,
    /// How text compares in expressions.
    pub collator: Option<Arc<Collator>>,
    /// Ends the query when its time is up or somebody kills it.
    pub interrupt: Option<Interrupt>,
    /// Where sorts put what memory can't hold; without it they fail beyond their limit.
    pub spill: Option<Rc<dyn Spill>>,
    /// Where other collections come from.
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
    /// A context at a time, whose chance comes from `seed`.
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

    /// The context of a pipeline within this one, with its own variables.
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

    /// Whether to go on.
    pub fn check(&self) -> Result<(), QueryError> {
        self.interrupt.as_ref().map_or(Ok(()), |check| check())
    }
}

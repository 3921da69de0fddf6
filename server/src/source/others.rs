//! The other collections of the moment, for `$lookup` and its like; and the collection that is not there.

use std::rc::Rc;

use bson::RawArrayBuf;
use protocol::{Namespace, RawDoc};
use query::{
    QueryError,
    context::{Collections, Context},
    source::{
        AtHand, Direction, IndexEntries, IndexEntry, IndexInfo, KeyRange, Record, RecordKey,
        Records, Source,
    },
    value::Value,
};
use storage::View;

use super::CollectionSource;
use crate::{error::Failure, views};

/// Lets a query open the other collections of the view.
pub fn with_others(context: &mut Context, view: &View) {
    context.collections = Some(Rc::new(Others(view.clone())));
}

struct Others(View);

impl Collections for Others {
    fn open<'s>(&'s self, namespace: &str) -> Result<Option<Box<dyn Source + 's>>, QueryError> {
        let Some(ns) = Namespace::parse(namespace) else { return Ok(None) };
        let Some(collection) = self.0.catalog().collection(&ns) else { return Ok(None) };
        Ok(Some(Box::new(CollectionSource::new(self.0.clone(), collection)?)))
    }

    fn view(&self, namespace: &str) -> Result<Option<(String, Vec<u8>)>, QueryError> {
        let Some(ns) = Namespace::parse(namespace) else { return Ok(None) };
        let resolved =
            views::resolve(&self.0, &ns, RawArrayBuf::new()).map_err(Failure::into_query_error)?;
        Ok(resolved
            .view
            .is_some()
            .then(|| (resolved.on.to_string(), resolved.pipeline.as_bytes().to_vec())))
    }
}

/// A collection that is not there.
pub struct NoDocuments;

impl Source for NoDocuments {
    fn namespace(&self) -> String {
        String::new()
    }

    fn indexes(&self) -> &[IndexInfo] {
        &[]
    }

    fn count(&self) -> Result<u64, QueryError> {
        Ok(0)
    }

    fn scan<'s>(&'s self, _: Option<&RecordKey>, _: Direction) -> Records<'s> {
        Box::new(AtHand(std::iter::empty()))
    }

    fn index_scan<'s>(
        &'s self,
        _: usize,
        _: &KeyRange,
        _: Option<&IndexEntry>,
        _: Direction,
    ) -> IndexEntries<'s> {
        Box::new(std::iter::empty())
    }

    fn fetch(&self, _: &RecordKey) -> Result<Option<RawDoc>, QueryError> {
        Ok(None)
    }

    fn by_id(&self, _: Value<'_>) -> Result<Option<Record>, QueryError> {
        Ok(None)
    }
}

//! The other collections at the same timestamp, for `$lookup` and similar stages.

use std::rc::Rc;

use bson::RawArrayBuf;
use protocol::Namespace;
use query::{QueryError, context::Collections, source::Source};
use storage::View;

use super::{opened::Opened, views};
use crate::{context::Call, error::Failure};

/// The other collections of a view.
pub(super) struct Others {
    call: Rc<Call>,
    view: View,
}

impl Others {
    pub(super) fn new(call: &Rc<Call>, view: &View) -> Self {
        Self { call: Rc::clone(call), view: view.clone() }
    }
}

impl Collections for Others {
    fn open<'s>(&'s self, namespace: &str) -> Result<Option<Box<dyn Source + 's>>, QueryError> {
        let Some(ns) = Namespace::parse(namespace) else { return Ok(None) };
        let opened = Opened::named(&self.call, self.view.clone(), &ns, None)
            .map_err(Failure::into_query_error)?;
        Ok((!opened.is_absent()).then(|| opened.into_source()))
    }

    fn view(&self, namespace: &str) -> Result<Option<(String, Vec<u8>)>, QueryError> {
        let Some(ns) = Namespace::parse(namespace) else { return Ok(None) };
        let resolved = views::resolve(&self.view, &ns, RawArrayBuf::new())
            .map_err(Failure::into_query_error)?;
        Ok(resolved
            .view
            .is_some()
            .then(|| (resolved.on.to_string(), resolved.pipeline.as_bytes().to_vec())))
    }
}

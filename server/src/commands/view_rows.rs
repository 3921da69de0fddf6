//! The documents of a view, for commands that give no cursor.

use std::sync::Arc;

use bson::RawArrayBuf;
use protocol::RawDoc;
use query::{
    collation::Collator,
    exec::{Input, Pipeline},
    planner,
    source::Source,
    stage::{self, Split},
};
use storage::{Collection, View};

use super::{aggregate, first_batch::First, target::Target, variables::Variables};
use crate::{
    blocking::Surroundings,
    context::Call,
    error::Failure,
    source::{self, CollectionSource, NoDocuments},
};

/// The documents of a view, for commands that are not cursors.
pub(super) struct ViewRows<'a> {
    call: &'a Call,
    view: View,
    pipeline: Pipeline,
    collection: Option<Arc<Collection>>,
    collator: Option<Arc<Collator>>,
    surroundings: Surroundings,
}

impl<'a> ViewRows<'a> {
    pub(super) fn open(
        call: &'a Call,
        view: &View,
        target: &Target,
        (collation, hint): (Option<&RawDoc>, Option<&RawDoc>),
        stages: RawArrayBuf,
    ) -> Result<Self, Failure> {
        let asked = aggregate::Asked {
            pipeline: stages.clone(),
            collation: collation.cloned(),
            variables: Variables::default(),
            hint: None,
            disk_use: None,
            first: First::default(),
        };
        let prepared = aggregate::Prepared::new(view, target, &asked, stages)?;
        let surroundings = prepared.surroundings(&asked, call);
        let mut context = surroundings.context(call, None);
        source::with_others(&mut context, view);
        let (stages, stage_context) = (prepared.stages, prepared.context);
        let collection = prepared.collection;
        let pipeline = match &collection {
            Some(collection) => {
                let source = CollectionSource::new(view.clone(), collection.clone())?;
                let Split { mut request, rest, .. } = stage::split(stages, &stage_context)?;
                let collator = stage_context.parse.collator.as_deref();
                aggregate::with_hint(call.node(), &mut request, hint, collator, &source)?;
                let (mut pipeline, _) = planner::plan(request, &source, &context)?;
                stage::extend(&mut pipeline, rest);
                pipeline
            }
            None => stage::plan(stages, &NoDocuments, &context, &stage_context)?,
        };
        let collator = stage_context.parse.collator;
        Ok(Self { call, view: view.clone(), pipeline, collection, collator, surroundings })
    }

    /// The collation of the view.
    pub(super) fn collator(&self) -> Option<Arc<Collator>> {
        self.collator.clone()
    }

    /// Shows every document to `take`.
    pub(super) fn each(
        &mut self,
        mut take: impl FnMut(&RawDoc) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut context = self.surroundings.context(self.call, None);
        source::with_others(&mut context, &self.view);
        let source: Box<dyn Source> = match &self.collection {
            Some(own) => Box::new(CollectionSource::new(self.view.clone(), own.clone())?),
            None => Box::new(NoDocuments),
        };
        let mut input = Input::new(source.as_ref(), &context);
        while let Some(doc) = self.pipeline.next(&mut input)? {
            take(&doc)?;
        }
        Ok(())
    }
}

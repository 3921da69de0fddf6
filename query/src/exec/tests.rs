use bson::rawdoc;

use super::*;
use crate::{
    matcher::{Matcher, ParseContext},
    projection::Projection,
    source::{Direction, memory::MemorySource},
};

fn ids(pipeline: &mut Pipeline, source: &MemorySource, batch: usize) -> Vec<i32> {
    let context = Context::default();
    let mut ids = Vec::new();
    loop {
        // A new input for each batch: only the pipeline may survive from one batch to the next.
        let mut input = Input::new(source, &context);
        for _ in 0..batch {
            match pipeline.next(&mut input).unwrap() {
                Some(doc) => ids.push(doc.get_i32("_id").unwrap()),
                None => return ids,
            }
        }
    }
}

fn numbers(count: i32) -> MemorySource {
    MemorySource::new(
        (0..count).map(|n| rawdoc! { "_id": n, "n": n % 7 }).collect(),
        &[rawdoc! { "n": 1 }],
    )
}

#[test]
fn a_scan_goes_on_where_its_batch_ended() {
    let source = numbers(50);
    for batch in [1, 3, 50, 100] {
        let mut forward = Pipeline::new(Access::Collection(Direction::Forward), Vec::new());
        assert_eq!(ids(&mut forward, &source, batch), (0..50).collect::<Vec<_>>());
        let mut backward = Pipeline::new(Access::Collection(Direction::Backward), Vec::new());
        assert_eq!(ids(&mut backward, &source, batch), (0..50).rev().collect::<Vec<_>>());
    }
}

#[test]
fn skip_and_limit_read_no_more_than_they_need() {
    let source = numbers(1000);
    let stages: Vec<Box<dyn Stage>> = vec![Box::new(Skip(5)), Box::new(Limit(3))];
    let mut pipeline = Pipeline::new(Access::Collection(Direction::Forward), stages);
    assert_eq!(ids(&mut pipeline, &source, 10), [5, 6, 7]);
    assert_eq!(pipeline.examined().docs, 8);
}

#[test]
fn an_interrupted_scan_ends_with_its_error() {
    let source = numbers(1000);
    let filter = Matcher::parse(&rawdoc! { "n": 99 }, &ParseContext::default()).unwrap();
    let mut pipeline =
        Pipeline::new(Access::Collection(Direction::Forward), vec![Box::new(Filter(filter))]);
    let mut context = Context::default();
    let asked = std::rc::Rc::new(std::cell::Cell::new(0));
    let counter = std::rc::Rc::clone(&asked);
    context.interrupt = Some(std::rc::Rc::new(move || {
        counter.set(counter.get() + 1);
        if counter.get() > 3 {
            Err(QueryError::location(50, "operation exceeded time limit"))
        } else {
            Ok(())
        }
    }));
    let mut input = Input::new(&source, &context);
    assert_eq!(pipeline.next(&mut input).unwrap_err().code.code(), 50);
    assert!(pipeline.examined().docs < 600);
}

#[derive(Debug)]
struct InMemory(std::collections::VecDeque<RawDoc>);

impl crate::context::SpilledRun for InMemory {
    fn next(&mut self) -> Result<Option<RawDoc>, QueryError> {
        Ok(self.0.pop_front())
    }
}

struct Drawer(std::cell::Cell<usize>);

impl crate::context::Spill for Drawer {
    fn write(
        &self,
        docs: &mut dyn Iterator<Item = RawDoc>,
    ) -> Result<Box<dyn crate::context::SpilledRun>, QueryError> {
        self.0.set(self.0.get() + 1);
        Ok(Box::new(InMemory(docs.collect())))
    }
}

/// A sort that spills returns the same as one in memory, with equal keys in order of arrival.
#[test]
fn a_sort_that_spills_gives_the_same_order() {
    let source = numbers(1000);
    let sort = |bytes| {
        let pattern = crate::sort::SortPattern::parse(&rawdoc! { "n": -1 }, None).unwrap();
        let stage: Box<dyn Stage> = Box::new(Sort::new(pattern, None).with_memory(bytes));
        Pipeline::new(Access::Collection(Direction::Forward), vec![stage])
    };
    let run = |bytes, spill: Option<std::rc::Rc<Drawer>>| {
        let mut context = Context::default();
        context.spill = spill.map(|spill| spill as std::rc::Rc<dyn crate::context::Spill>);
        let mut input = Input::new(&source, &context);
        let mut pipeline = sort(bytes);
        let mut ids = Vec::new();
        while let Some(doc) = pipeline.next(&mut input)? {
            ids.push(doc.get_i32("_id").unwrap());
        }
        Ok::<_, QueryError>(ids)
    };
    let drawer = std::rc::Rc::new(Drawer(std::cell::Cell::new(0)));
    let want = run(usize::MAX, None).unwrap();
    assert_eq!(run(4_000, Some(std::rc::Rc::clone(&drawer))).unwrap(), want);
    assert!(drawer.0.get() > 5, "spilled {} times", drawer.0.get());
    assert_eq!(run(4_000, None).unwrap_err().code.code(), 292);
}

/// Notes stay separate from a document, even if both are spilled between `Annotate` and `Reveal`.
#[test]
fn notes_go_through_a_spill_and_leave_documents_alone() {
    let source = numbers(1000);
    let pattern = crate::sort::SortPattern::parse(&rawdoc! { "n": -1 }, None).unwrap();
    let annotate = Annotate { sort: Some(pattern.clone()) };
    let sort = Sort::new(pattern, None).with_memory(4_000);
    let meta = rawdoc! { "key": { "$meta": "sortKey" } };
    let projection = Projection::parse_find(&meta, None, &ParseContext::default()).unwrap();
    let reveal = Reveal { projection: Some(projection), record_id: false, key: None };
    let mut pipeline = Pipeline::new(
        Access::Collection(Direction::Forward),
        vec![Box::new(annotate), Box::new(sort), Box::new(reveal)],
    );
    let drawer = std::rc::Rc::new(Drawer(std::cell::Cell::new(0)));
    let mut context = Context::default();
    context.spill = Some(drawer.clone());
    let mut input = Input::new(&source, &context);
    let mut found = 0;
    while let Some(doc) = pipeline.next(&mut input).unwrap() {
        let n = doc.get_i32("n").unwrap();
        let want = rawdoc! { "_id": doc.get_i32("_id").unwrap(), "n": n, "key": [n] };
        assert_eq!(doc.as_raw(), &*want);
        found += 1;
    }
    assert!(found == 1000 && drawer.0.get() > 5, "{found} documents, {:?} spills", drawer.0);
}

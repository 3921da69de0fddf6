use std::{ops::Bound, sync::Arc};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::super::{
    super::{Batch, Engine, Keyspace, Snapshot, Sync, memory::Memory},
    Fjall,
};

/// Scans over many runs with removed, replaced and newer rows return the same as the model.
#[test]
fn walks_are_those_of_the_model() {
    for seed in 0..3 {
        println!("seed {seed}");
        let mut random = Random(StdRng::seed_from_u64(seed));
        let dir = tempfile::tempdir().unwrap();
        let (model, engine) = (Memory::default(), Fjall::open_here(dir.path(), false).unwrap());
        let mut held: Vec<(Arc<dyn Snapshot>, Arc<dyn Snapshot>)> = Vec::new();
        for round in 0..12 {
            let writes = random.writes();
            for engine in [&model as &dyn Engine, &engine] {
                let mut batch = Batch::default();
                for (key, value) in &writes {
                    match value {
                        Some(value) => batch.put(Keyspace::Current, &key[..], &value[..]),
                        None => batch.remove(Keyspace::Current, &key[..]),
                    }
                }
                engine.commit(batch, Sync::No).unwrap();
            }
            held.push((model.snapshot(), engine.snapshot()));
            // The last rounds stay in the memtable.
            if round < 10 {
                engine.keyspace(Keyspace::Current).rotate_memtable().unwrap();
                engine.settle();
            }
            held.push((model.snapshot(), engine.snapshot()));
            if held.len() > 6 {
                held.remove(random.0.random_range(0..6));
            }
            for (model, engine) in &held {
                random.compare(&**model, &**engine);
            }
        }
    }
}

struct Random(StdRng);

impl Random {
    /// A key from a small pool, so that keys repeat; many share a prefix.
    fn key(&mut self) -> Vec<u8> {
        let number: u32 = self.0.random_range(0..2_500);
        let mut key = format!("{:03}", number / 50).into_bytes();
        key.extend(std::iter::repeat_n(b'x', usize::try_from(number % 3).unwrap() * 9));
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    fn writes(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        (0..self.0.random_range(1..2_000))
            .map(|_| {
                let value = match self.0.random_range(0..400) {
                    0 => Some(vec![1; 70_000]),
                    1..50 => None,
                    len => Some(vec![2; len]),
                };
                (self.key(), value)
            })
            .collect()
    }

    fn bound(&mut self, key: &[u8]) -> Bound<Vec<u8>> {
        match self.0.random_range(0..3) {
            0 => Bound::Included(key.to_vec()),
            1 => Bound::Excluded(key.to_vec()),
            _ => Bound::Unbounded,
        }
    }

    fn compare(&mut self, model: &dyn Snapshot, engine: &dyn Snapshot) {
        let (from, to) = (self.key(), self.key());
        let (from, to) = (self.bound(&from), self.bound(&to));
        let every = self.0.random_range(1..40);
        let walk = |snapshot: &dyn Snapshot| {
            let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let mut rows = snapshot.range(Keyspace::Current, from, to);
            let (mut found, mut looked) = (Vec::new(), Vec::new());
            // Alternates between `next` and `next_where`.
            loop {
                let next = match found.len() % 5 {
                    0 => rows.next(),
                    _ => rows.next_where(&mut |key_len, value| {
                        looked.push((key_len, value.len()));
                        (key_len + value.len()).is_multiple_of(every)
                    }),
                };
                let Some(row) = next else { return (found, looked) };
                let (key, value) = row.unwrap();
                found.push((key.to_vec(), value.to_vec()));
            }
        };
        let (want, got) = (walk(model), walk(engine));
        assert!(
            want == got,
            "{from:?} to {to:?}, {} rows instead of {}",
            got.0.len(),
            want.0.len()
        );
    }
}

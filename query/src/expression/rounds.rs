//! The rounds of `$map`, `$filter` and `$reduce`: they can be interrupted, and are held to bounds.
//!
//! All that an evaluation makes stays in its arena until the document is done: a `$reduce` that grows an array by one
//! element a round would leave every shorter one behind. So when a loop has left much behind, each round gets an arena of
//! its own, and only what comes of it is kept.

use bumpalo::Bump;
use protocol::ErrorCode;

use super::{Env, Expr, logic};
use crate::{
    error::QueryError,
    value::{OwnedValue, Value},
};

/// What a loop may gather, as with mongod.
const MEMORY_MAX: usize = 100 << 20;
/// What it may leave behind in the arena that it shares.
const LEFT_BEHIND_MAX: usize = 1 << 20;
/// How often it asks whether to go on.
const CHECK_EVERY: u64 = 128;
/// What mongod reckons for each value.
const VALUE_LEN: usize = 16;

/// The rounds of a loop.
pub(super) struct Rounds {
    name: &'static str,
    arena_before: usize,
    /// The arena of a round, once it has one.
    own: Option<Bump>,
    gathered: usize,
}

impl Rounds {
    pub(super) fn begin(name: &'static str, env: &Env<'_>) -> Self {
        Self { name, arena_before: env.arena.allocated_bytes(), own: None, gathered: 0 }
    }

    /// One round whose value is kept, with a variable of its own.
    pub(super) fn eval<'a>(
        &mut self,
        body: &'a Expr,
        bound: (usize, Value<'a>),
        env: &mut Env<'a>,
    ) -> Result<Value<'a>, QueryError> {
        self.next(env)?;
        let value = if self.own.is_some() {
            let value = self.apart(body, &[bound], env)?;
            env.adopt(value.get())
        } else {
            env.set(bound.0, bound.1);
            body.eval(env)?
        };
        self.gather(value)?;
        Ok(value)
    }

    /// One round of which only the truth counts.
    pub(super) fn test<'a>(
        &mut self,
        cond: &'a Expr,
        bound: (usize, Value<'a>),
        env: &mut Env<'a>,
    ) -> Result<bool, QueryError> {
        self.next(env)?;
        if self.own.is_some() {
            return self.apart(cond, &[bound], env).map(|value| logic::truth(value.get()));
        }
        env.set(bound.0, bound.1);
        cond.eval(env).map(logic::truth)
    }

    /// One round of many of which only the last one's value counts.
    pub(super) fn fold<'a>(
        &mut self,
        body: &'a Expr,
        so_far: Held<'a>,
        (slot, this): (usize, (usize, Value<'a>)),
        env: &mut Env<'a>,
    ) -> Result<Held<'a>, QueryError> {
        self.next(env)?;
        let value = match (&so_far, &self.own) {
            (Held::InArena(value), None) => {
                env.set(this.0, this.1);
                env.set(slot, *value);
                Held::InArena(body.eval(env)?)
            }
            _ => Held::Own(self.apart(body, &[this, (slot, so_far.get())], env)?),
        };
        self.gathered = 0;
        self.gather(value.get())?;
        Ok(value)
    }

    /// Counts a value that stays.
    fn gather(&mut self, value: Value<'_>) -> Result<(), QueryError> {
        self.gathered += VALUE_LEN + value.text_len();
        if self.gathered <= MEMORY_MAX {
            return Ok(());
        }
        let text = format!("{} would use too much memory and cannot spill", self.name);
        Err(QueryError::new(ErrorCode::ExceededMemoryLimit, text))
    }

    fn next(&mut self, env: &mut Env<'_>) -> Result<(), QueryError> {
        env.rounds += 1;
        // A round that needs an arena of its own is a long one.
        if self.own.is_some() || env.rounds.is_multiple_of(CHECK_EVERY) {
            env.cx.check()?;
        }
        let left_behind = env.arena.allocated_bytes().saturating_sub(self.arena_before);
        if self.own.is_none() && left_behind > LEFT_BEHIND_MAX + self.gathered {
            self.own = Some(Bump::new());
        }
        Ok(())
    }

    fn apart(
        &mut self,
        body: &Expr,
        bound: &[(usize, Value<'_>)],
        env: &mut Env<'_>,
    ) -> Result<OwnedValue, QueryError> {
        let own = self.own.get_or_insert_default();
        own.reset();
        let mut inner = env.within(own);
        for (slot, value) in bound {
            inner.set(*slot, *value);
        }
        let value = body.eval(&mut inner).map(OwnedValue::from);
        env.rounds = inner.rounds;
        value
    }
}

/// A value between two rounds.
pub(super) enum Held<'a> {
    InArena(Value<'a>),
    Own(OwnedValue),
}

impl<'a> Held<'a> {
    fn get(&self) -> Value<'_> {
        match self {
            Self::InArena(value) => *value,
            Self::Own(value) => value.get(),
        }
    }

    /// The value as one of the evaluation.
    pub(super) fn settle(self, env: &Env<'a>) -> Value<'a> {
        match self {
            Self::InArena(value) => value,
            Self::Own(value) => env.adopt(value.get()),
        }
    }
}

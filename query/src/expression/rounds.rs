//! Iterations of `$map`, `$filter` and `$reduce`: they check for interruption and limit memory.
//!
//! Everything that an evaluation allocates stays in its arena until the document is done. A `$reduce` that extends an
//! array by one element per iteration would leave every shorter array behind. So when a loop has left much behind,
//! each iteration gets its own arena, and only its result is kept.

use bumpalo::Bump;
use protocol::ErrorCode;

use super::{Env, Expr, logic};
use crate::{
    error::QueryError,
    value::{OwnedValue, Value},
};

/// Memory limit of a loop's result, as in mongod.
const MEMORY_MAX: usize = 100 << 20;
/// How much it may leave behind in the shared arena.
const LEFT_BEHIND_MAX: usize = 1 << 20;
/// Iterations between checks for interruption.
const CHECK_EVERY: u64 = 128;
/// mongod's estimate of the size of a value.
const VALUE_LEN: usize = 16;

/// The iterations of a loop.
pub(super) struct Rounds {
    name: &'static str,
    arena_before: usize,
    /// The arena of an iteration, once it has its own.
    own: Option<Bump>,
    gathered: usize,
}

impl Rounds {
    pub(super) fn begin(name: &'static str, env: &Env<'_>) -> Self {
        Self { name, arena_before: env.arena.allocated_bytes(), own: None, gathered: 0 }
    }

    /// Evaluates one iteration whose value is kept, with its loop variable.
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

    /// Evaluates one iteration as a condition.
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

    /// Evaluates one iteration of which only the final value counts.
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

    /// Counts a value that is kept.
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
        // If an iteration needs its own arena, it may take long, so each one checks.
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

/// A value between two iterations.
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

    /// Moves the value into the evaluation's arena.
    pub(super) fn settle(self, env: &Env<'a>) -> Value<'a> {
        match self {
            Self::InArena(value) => value,
            Self::Own(value) => env.adopt(value.get()),
        }
    }
}

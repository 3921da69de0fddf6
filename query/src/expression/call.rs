//! Calls of operators that evaluate each argument once.

use super::{
    Env, Evaluated, Expr, Fun, NamedFun,
    operator::{Operator, Order, Rest},
};
use crate::{error::QueryError, value::Value};

/// An operator and its list of arguments.
#[derive(Clone)]
pub struct Call {
    pub(super) row: &'static Operator,
    pub(super) fun: Fun,
    pub(super) args: Vec<Expr>,
}

/// An operator and its named arguments, in the order of its row. Omitted arguments are `None`.
#[derive(Clone)]
pub struct NamedCall {
    pub(super) row: &'static Operator,
    pub(super) fun: NamedFun,
    pub(super) args: Vec<Option<Expr>>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.row.name, self.args)
    }
}

impl std::fmt::Debug for NamedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.row.name, self.args)
    }
}

impl Call {
    pub(super) fn eval<'a>(&'a self, env: &mut Env<'a>) -> Evaluated<'a> {
        let mut args: [Value<'a>; 4] = [Value::Missing; 4];
        let Some(few) = args.get_mut(..self.args.len()) else {
            let mut many = Vec::with_capacity(self.args.len());
            for arg in &self.args {
                match arg.eval(env) {
                    Ok(value) => many.push(value),
                    Err(fault) => return self.settled_before(env, &many, fault),
                }
            }
            return (self.fun)(env, &many);
        };
        for (at, arg) in self.args.iter().enumerate() {
            match (arg.eval(env), few.get_mut(at)) {
                (Ok(value), Some(place)) => *place = value,
                (Ok(_), None) => {}
                (Err(fault), _) => {
                    let met = few.get(..at).unwrap_or_default();
                    return self.settled_before(env, met, fault);
                }
            }
        }
        (self.fun)(env, few)
    }

    /// An argument failed. The arguments before it may have decided the result: null, or an error of their own.
    fn settled_before<'a>(
        &'a self,
        env: &mut Env<'a>,
        met: &[Value<'a>],
        fault: QueryError,
    ) -> Evaluated<'a> {
        let rest = match self.row.order {
            Order::RightFirst if met.is_empty() => {
                let right = self.args.get(1).and_then(|right| right.eval(env).err());
                return Err(right.unwrap_or(fault));
            }
            Order::OneByOne(rest) if !met.is_empty() => rest,
            _ => return Err(fault),
        };
        let mut args = met.to_vec();
        match rest {
            Rest::Nothing | Rest::UntilDifferent => {}
            Rest::Filled(many, value) => args.resize(many, value),
            Rest::OneMore(value) => args.push(value),
            Rest::FromTwo if met.len() < 2 => return Err(fault),
            Rest::FromTwo => {}
            Rest::BoundsFirst => {
                let bounds = self.args.get(2..).filter(|_| met.len() == 1).unwrap_or_default();
                args.resize(2, Value::Null);
                if matches!((self.fun)(env, &args)?, Value::Null) {
                    return Ok(Value::Null);
                }
                for bound in bounds {
                    args.push(bound.eval(env)?);
                }
            }
        }
        let settled = (self.fun)(env, &args)?;
        if matches!((rest, settled), (Rest::UntilDifferent, Value::Bool(false))) {
            return Ok(settled);
        }
        let null = met.iter().any(|value| value.is_nullish());
        if null && matches!(settled, Value::Null) { Ok(settled) } else { Err(fault) }
    }
}

impl NamedCall {
    pub(super) fn eval<'a>(&'a self, env: &mut Env<'a>) -> Evaluated<'a> {
        let mut args: [Option<Value<'a>>; 4] = [None; 4];
        let Some(few) = args.get_mut(..self.args.len()) else {
            let mut many = vec![None; self.args.len()];
            return self.eval_into(env, &mut many);
        };
        self.eval_into(env, few)
    }

    fn eval_into<'a>(
        &'a self,
        env: &mut Env<'a>,
        values: &mut [Option<Value<'a>>],
    ) -> Evaluated<'a> {
        for (at, arg) in self.args.iter().enumerate() {
            let Some(arg) = arg else { continue };
            match (arg.eval(env), values.get_mut(at)) {
                (Ok(value), Some(place)) => *place = Some(value),
                (Ok(_), None) => {}
                (Err(fault), _) => return self.settled_before(env, values, at, fault),
            }
        }
        (self.fun)(env, values)
    }

    /// Like [`Call::settled_before`], for the argument at a position.
    fn settled_before<'a>(
        &self,
        env: &mut Env<'a>,
        values: &mut [Option<Value<'a>>],
        at: usize,
        fault: QueryError,
    ) -> Evaluated<'a> {
        let Some((met, rest)) = values.split_at_mut_checked(at) else { return Err(fault) };
        if met.is_empty() || !matches!(self.row.order, Order::OneByOne(_)) {
            return Err(fault);
        }
        let null = met.iter().flatten().any(|value| value.is_nullish());
        rest.fill(Some(Value::Null));
        let settled = (self.fun)(env, values)?;
        if null && matches!(settled, Value::Null) { Ok(settled) } else { Err(fault) }
    }
}

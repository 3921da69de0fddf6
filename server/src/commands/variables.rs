//! `let`: variables of a command, evaluated before any document is read.

use bson::{
    RawBsonRef, RawDocumentBuf,
    raw::{CString, cstr},
};
use protocol::{Fields, RawDoc};
use query::{
    QueryError,
    context::Context,
    expression::{Bump, Env, Expr, Scope},
    value::{OwnedValue, Value},
};

use crate::error::Failure;

/// The variables with their values.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    /// The scope with the variables' slots.
    pub(super) scope: Scope,
    /// The values, in slot order.
    pub(super) values: Vec<OwnedValue>,
    /// The names, in the order of the values.
    names: Vec<String>,
}

impl Variables {
    /// Parses the field `let`.
    pub(super) fn parse(fields: &Fields<'_>, context: &Context) -> Result<Self, Failure> {
        let Some(given) = fields.optional("let")? else {
            return Ok(Self {
                scope: Scope::of_command(context.now, context.release, []),
                ..Self::default()
            });
        };
        let given = RawDoc::from(given.document()?);
        let mut values: Vec<OwnedValue> = Vec::new();
        for (_, value) in given.iter().flatten() {
            // Earlier variables already have their values.
            let names = given.iter().flatten().map(|(name, _)| name.as_str().as_bytes());
            let before =
                Scope::of_command(context.now, context.release, names.zip(values.iter().cloned()));
            let value = evaluate(value, before, &values, context)?;
            values.push(value);
        }
        let names = given.iter().flatten().map(|(name, _)| name.as_str().as_bytes());
        let scope =
            Scope::of_command(context.now, context.release, names.zip(values.iter().cloned()));
        let names = given.iter().flatten().map(|(name, _)| name.as_str().to_owned()).collect();
        Ok(Self { scope, values, names })
    }

    /// A `let` with values instead of expressions, for another server; `None` if there are none.
    pub(super) fn settled(&self) -> Option<RawDocumentBuf> {
        let mut out = RawDocumentBuf::new();
        for (name, value) in self.names.iter().zip(&self.values) {
            let name = CString::try_from(name.as_str()).ok()?;
            let mut literal = RawDocumentBuf::new();
            let value = value.get().alone();
            literal.append(cstr!("$literal"), value.get("").ok()??);
            out.append(name, literal);
        }
        (!self.names.is_empty()).then_some(out)
    }
}

fn evaluate(
    value: RawBsonRef<'_>,
    mut scope: Scope,
    before: &[OwnedValue],
    context: &Context,
) -> Result<OwnedValue, Failure> {
    let Some(value) = Value::from_raw(value) else { return Ok(OwnedValue::from(Value::Null)) };
    let expression = Expr::parse(value, &mut scope)?;
    if scope.reads_document() {
        // mongod's own text, including the missing space.
        let text = "Command let Expression tried to access a field, but this is not allowed because\
                    Command let Expressions run before the query examines any documents.";
        return Err(QueryError::location(4_890_500, text).into());
    }
    let arena = Bump::new();
    let mut env = Env::new(&arena, context, EMPTY);
    before.iter().enumerate().for_each(|(slot, value)| env.set(slot, value.get()));
    Ok(expression.eval(&mut env)?.into())
}

/// The empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

//! The tree of field names in a projection.

use crate::{
    error::QueryError,
    expression::{DocBuilder, Env, Expr, Scope, check_levels},
    field_path,
    matcher::operands::is_true,
    value::{Elements, Shown, Value},
};

/// Field names with what happens to them, in the order of the projection.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    fields: Vec<(Box<[u8]>, Item)>,
}

/// What happens to a field.
#[derive(Debug, Clone)]
pub(super) enum Item {
    /// It is included.
    Include,
    /// It is excluded.
    Exclude,
    /// It is kept in both kinds of projection.
    Keep,
    /// It is computed.
    Expr(Expr),
    /// Fields below it are in the tree.
    Below(Tree),
}

/// The syntax that the tree is parsed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Numbers and booleans include or exclude; everything else is computed.
    Project,
    /// Everything is computed.
    AddFields,
}

/// Parses a specification; the first field decides between inclusion and exclusion.
#[derive(Debug)]
pub(super) struct Parser<'s> {
    pub(super) tree: Tree,
    style: Style,
    scope: &'s mut Scope,
    /// Errors of constants with the depth of their fields; the error at the lowest depth is reported.
    faults: Option<Vec<(usize, QueryError)>>,
    /// Inclusion, exclusion, or undecided.
    inclusion: Option<bool>,
}

impl<'s> Parser<'s> {
    pub(super) fn new(style: Style, scope: &'s mut Scope) -> Self {
        Self { tree: Tree::default(), style, scope, inclusion: None, faults: None }
    }

    /// True for an inclusion. If only `_id` is given, it decides.
    pub(super) fn is_inclusion(&self) -> bool {
        self.inclusion.unwrap_or_else(|| matches!(self.tree.get(b"_id"), Some(Item::Include)))
    }

    /// Parses the fields of a stage. mongod evaluates the constants of a document before those of nested documents.
    pub(super) fn stage_fields(&mut self, spec: Value<'_>) -> Result<(), QueryError> {
        self.faults = Some(Vec::new());
        self.fields(spec)?;
        let faults = self.faults.take().unwrap_or_default();
        if let Some((_, first)) = faults.into_iter().min_by_key(|(depth, _)| *depth) {
            self.scope.note(first);
        }
        Ok(())
    }

    pub(super) fn fields(&mut self, spec: Value<'_>) -> Result<(), QueryError> {
        spec.elements().try_for_each(|field| self.field(field.key, field.key, field.value()))
    }

    /// Parses one field: its full path, its name as written, its value.
    pub(super) fn field(
        &mut self,
        path: &[u8],
        written: &[u8],
        value: Value<'_>,
    ) -> Result<(), QueryError> {
        let empty =
            matches!(value, Value::Document(doc) if Elements::of_bytes(doc).next().is_none());
        if !(empty && self.style == Style::Project) {
            field_path::check(path)?;
        }
        match value {
            Value::Document(doc) => self.nested(path, value, doc),
            _ if self.style == Style::Project
                && (value.is_number() || matches!(value, Value::Bool(_))) =>
            {
                let include = is_true(value);
                let item = if include { Item::Include } else { Item::Exclude };
                self.tree.insert(path, item)?;
                if path != b"_id" {
                    self.decide(include, written)?;
                }
                Ok(())
            }
            value => {
                self.check_collision(path)?;
                self.computed(|| {
                    let message = format!(
                        "Cannot use an expression {} in an exclusion projection",
                        shown(written, value)
                    );
                    QueryError::location(31_310, message)
                })?;
                let expr = self.expression_at(path, value)?;
                self.tree.insert(path, Item::Expr(expr))
            }
        }
    }

    fn expression_at(&mut self, path: &[u8], value: Value<'_>) -> Result<Expr, QueryError> {
        let Some(mut faults) = self.faults.take() else { return self.expression(value) };
        let shared = self.scope.own_faults();
        let parsed = self.expression(value);
        if let Some(fault) = self.scope.share_faults(shared) {
            faults.push((path.iter().filter(|&&b| b == b'.').count(), fault));
        }
        self.faults = Some(faults);
        parsed
    }

    /// Parses an expression in the scope of the projection.
    pub(super) fn expression(&mut self, value: Value<'_>) -> Result<Expr, QueryError> {
        if self.style == Style::Project {
            check_levels(value)?;
        }
        Expr::parse(value, self.scope)
    }

    fn nested(&mut self, path: &[u8], value: Value<'_>, doc: &[u8]) -> Result<(), QueryError> {
        let first = Elements::of_bytes(doc).next();
        if first.is_none() && self.style == Style::Project {
            return Err(QueryError::location(
                51_270,
                format!("Invalid empty sub-projection: {}", lossy(path)),
            ));
        }
        if first.is_none_or(|first| first.key.starts_with(b"$")) {
            self.computed(|| {
                QueryError::location(
                    31_252,
                    "Cannot use expression other than $meta in exclusion projection",
                )
            })?;
            let expr = self.expression_at(path, value)?;
            return self.tree.insert(path, Item::Expr(expr));
        }
        for field in Elements::of_bytes(doc) {
            field_path::check(field.key)?;
            let below = [path, b".", field.key].concat();
            self.field(&below, field.key, field.value())?;
        }
        Ok(())
    }

    /// In an exclusion, which cannot have computed fields, a path collision is reported first.
    fn check_collision(&self, path: &[u8]) -> Result<(), QueryError> {
        match self.inclusion {
            Some(false) => self.tree.clone().insert(path, Item::Keep),
            _ => Ok(()),
        }
    }

    /// Refuses a computed field in an exclusion.
    pub(super) fn computed(
        &mut self,
        refusal: impl FnOnce() -> QueryError,
    ) -> Result<(), QueryError> {
        if self.style == Style::Project && !*self.inclusion.get_or_insert(true) {
            return Err(refusal());
        }
        Ok(())
    }

    /// Decides the kind of projection if only find operators were given.
    pub(super) fn settle(&mut self, inclusion: bool) {
        self.inclusion.get_or_insert(inclusion);
    }

    fn decide(&mut self, include: bool, written: &[u8]) -> Result<(), QueryError> {
        let first = *self.inclusion.get_or_insert(include);
        if first == include {
            return Ok(());
        }
        let (code, verb, mode) = if first {
            (31_254, "exclusion", "inclusion")
        } else {
            (31_253, "inclusion", "exclusion")
        };
        Err(QueryError::location(
            code,
            format!("Cannot do {verb} on field {} in {mode} projection", lossy(written)),
        ))
    }
}

impl Tree {
    /// Inserts an item at a path; fails if it collides with another one.
    pub(super) fn insert(&mut self, path: &[u8], item: Item) -> Result<(), QueryError> {
        let mut tree = self;
        let mut rest = path;
        loop {
            let (name, after) = match rest.iter().position(|&b| b == b'.') {
                Some(at) => (rest.get(..at), rest.get(at + 1..)),
                None => (Some(rest), None),
            };
            let name = name.unwrap_or_default();
            let at = tree.fields.iter().position(|(known, _)| **known == *name);
            let Some(after) = after else {
                if at.is_some() {
                    return Err(QueryError::location(
                        31_250,
                        format!("Path collision at {}", lossy(path)),
                    ));
                }
                tree.fields.push((name.into(), item));
                return Ok(());
            };
            let at = at.unwrap_or_else(|| {
                tree.fields.push((name.into(), Item::Below(Self::default())));
                tree.fields.len() - 1
            });
            match tree.fields.get_mut(at) {
                Some((_, Item::Below(below))) => tree = below,
                _ => {
                    return Err(QueryError::location(
                        31_249,
                        format!(
                            "Path collision at {} remaining portion {}",
                            lossy(path),
                            lossy(path.splitn(2, |&b| b == b'.').nth(1).unwrap_or_default())
                        ),
                    ));
                }
            }
            rest = after;
        }
    }

    /// Replaces the item of an existing top-level field.
    pub(super) fn replace(&mut self, name: &[u8], item: Item) {
        if let Some(field) = self.fields.iter_mut().find(|(known, _)| **known == *name) {
            field.1 = item;
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Item> {
        self.fields.iter().find(|(known, _)| **known == *name).map(|(_, item)| item)
    }

    fn computes(&self) -> bool {
        self.fields.iter().any(|(_, item)| match item {
            Item::Expr(_) => true,
            Item::Below(tree) => tree.computes(),
            _ => false,
        })
    }

    pub(super) fn included_paths(&self) -> Option<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        if self.get(b"_id").is_none() {
            paths.push(b"_id".to_vec());
        }
        self.add_paths(b"", &mut paths)?;
        Some(paths)
    }

    fn add_paths(&self, above: &[u8], paths: &mut Vec<Vec<u8>>) -> Option<()> {
        for (name, item) in &self.fields {
            let path = if above.is_empty() { name.to_vec() } else { [above, b".", name].concat() };
            match item {
                Item::Include => paths.push(path),
                Item::Exclude => {}
                Item::Expr(expr) if above.is_empty() => expr.add_paths(paths)?,
                Item::Below(tree) => tree.add_paths(&path, paths)?,
                Item::Keep | Item::Expr(_) => return None,
            }
        }
        Some(())
    }

    /// The document with only the included and computed fields.
    pub(super) fn include<'a>(
        &'a self,
        doc: &'a [u8],
        env: &mut Env<'a>,
    ) -> Result<Vec<u8>, QueryError> {
        self.include_level(doc, env, true)
    }

    fn include_level<'a>(
        &'a self,
        doc: &'a [u8],
        env: &mut Env<'a>,
        top: bool,
    ) -> Result<Vec<u8>, QueryError> {
        let mut out = DocBuilder::new();
        let mut met: Vec<&[u8]> = Vec::new();
        for field in Elements::of_bytes(doc) {
            match self.get(field.key) {
                Some(Item::Include | Item::Keep) => out.push_raw(field.bytes),
                Some(Item::Below(tree)) => {
                    met.push(field.key);
                    if let Some(value) = tree.include_value(field.value(), env)? {
                        out.push(field.key, value);
                    }
                }
                None if top && field.key == b"_id" => out.push_raw(field.bytes),
                Some(Item::Exclude | Item::Expr(_)) | None => {}
            }
        }
        self.push_computed(&mut out, &met, env)?;
        Ok(out.finish())
    }

    /// Appends computed fields that were not in the document, and documents of computed fields.
    fn push_computed<'a>(
        &'a self,
        out: &mut DocBuilder,
        met: &[&[u8]],
        env: &mut Env<'a>,
    ) -> Result<(), QueryError> {
        for (name, item) in &self.fields {
            match item {
                Item::Expr(expr) => out.push(name, expr.eval(env)?),
                Item::Below(tree) if tree.computes() && !met.contains(&&**name) => {
                    let value = tree.fresh(env)?;
                    out.push(name, value);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A document of the computed fields only.
    fn fresh<'a>(&'a self, env: &mut Env<'a>) -> Result<Value<'a>, QueryError> {
        let mut out = DocBuilder::new();
        self.push_computed(&mut out, &[], env)?;
        Ok(Value::Document(env.keep(&out.finish())))
    }

    fn include_value<'a>(
        &'a self,
        value: Value<'a>,
        env: &mut Env<'a>,
    ) -> Result<Option<Value<'a>>, QueryError> {
        match value {
            Value::Document(doc) => {
                let bytes = self.include_level(doc, env, false)?;
                Ok(Some(Value::Document(env.keep(&bytes))))
            }
            Value::Array(_) => {
                let mut kept = Vec::new();
                for element in value.elements() {
                    kept.extend(self.include_value(element.value(), env)?);
                }
                let bytes = crate::expression::array_bytes(kept);
                Ok(Some(Value::Array(env.keep(&bytes))))
            }
            _ if self.computes() => self.fresh(env).map(Some),
            _ => Ok(None),
        }
    }

    /// The document without the excluded fields.
    pub(super) fn exclude(&self, doc: &[u8]) -> Vec<u8> {
        let mut out = DocBuilder::new();
        for field in Elements::of_bytes(doc) {
            match self.get(field.key) {
                None | Some(Item::Include | Item::Keep | Item::Expr(_)) => {
                    out.push_raw(field.bytes)
                }
                Some(Item::Exclude) => {}
                Some(Item::Below(tree)) => match field.value() {
                    Value::Document(inner) => {
                        out.push(field.key, Value::Document(&tree.exclude(inner)));
                    }
                    Value::Array(inner) => {
                        out.push(field.key, Value::Array(&tree.exclude_array(inner)));
                    }
                    _ => out.push_raw(field.bytes),
                },
            }
        }
        out.finish()
    }

    fn exclude_array(&self, array: &[u8]) -> Vec<u8> {
        let mut out = DocBuilder::new();
        for element in Elements::of_bytes(array) {
            match element.value() {
                Value::Document(inner) => {
                    out.push(element.key, Value::Document(&self.exclude(inner)));
                }
                Value::Array(inner) => {
                    out.push(element.key, Value::Array(&self.exclude_array(inner)));
                }
                _ => out.push_raw(element.bytes),
            }
        }
        out.finish()
    }

    /// The document with the computed fields added.
    pub(super) fn add<'a>(
        &'a self,
        doc: &'a [u8],
        env: &mut Env<'a>,
    ) -> Result<Vec<u8>, QueryError> {
        let mut out = DocBuilder::new();
        let mut met: Vec<&[u8]> = Vec::new();
        for field in Elements::of_bytes(doc) {
            match self.get(field.key) {
                Some(Item::Expr(expr)) => {
                    met.push(field.key);
                    out.push(field.key, expr.eval(env)?);
                }
                Some(Item::Below(tree)) => {
                    met.push(field.key);
                    let value = tree.add_value(field.value(), env)?;
                    out.push(field.key, value);
                }
                _ => out.push_raw(field.bytes),
            }
        }
        for (name, item) in &self.fields {
            if met.contains(&&**name) {
                continue;
            }
            match item {
                Item::Expr(expr) => out.push(name, expr.eval(env)?),
                Item::Below(tree) => {
                    let value = tree.add_value(Value::Missing, env)?;
                    out.push(name, value);
                }
                _ => {}
            }
        }
        Ok(out.finish())
    }

    fn add_value<'a>(
        &'a self,
        value: Value<'a>,
        env: &mut Env<'a>,
    ) -> Result<Value<'a>, QueryError> {
        match value {
            Value::Document(doc) => {
                let bytes = self.add(doc, env)?;
                Ok(Value::Document(env.keep(&bytes)))
            }
            Value::Array(_) => {
                let mut added = Vec::new();
                for element in value.elements() {
                    added.push(self.add_value(element.value(), env)?);
                }
                let bytes = crate::expression::array_bytes(added);
                Ok(Value::Array(env.keep(&bytes)))
            }
            _ => {
                let bytes = self.add(&[5, 0, 0, 0, 0], env)?;
                Ok(Value::Document(env.keep(&bytes)))
            }
        }
    }
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Shows a field of a specification in an error text.
pub(super) fn shown(path: &[u8], value: Value<'_>) -> String {
    format!("{}: {}", lossy(path), Shown(value))
}

//! `database.collection`.

use std::fmt;

/// A full collection name, `database.collection`. The first dot separates them: database names have no dots,
/// collection names may.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    full: String,
    dot: usize,
}

impl Namespace {
    /// Makes a namespace from database and collection.
    pub fn new(db: &str, coll: &str) -> Self {
        Self { full: format!("{db}.{coll}"), dot: db.len() }
    }

    /// Parses a full name; `None` without a dot or with an empty part.
    pub fn parse(full: &str) -> Option<Self> {
        let dot = full.find('.')?;
        (dot > 0 && dot + 1 < full.len()).then(|| Self { full: full.to_owned(), dot })
    }

    /// The database name.
    pub fn db(&self) -> &str {
        self.full.get(..self.dot).unwrap_or_default()
    }

    /// The collection name.
    pub fn coll(&self) -> &str {
        self.full.get(self.dot + 1..).unwrap_or_default()
    }

    /// The full name, `database.collection`.
    pub fn as_str(&self) -> &str {
        &self.full
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dot_divides() {
        let ns = Namespace::parse("test.system.views").unwrap();
        assert_eq!((ns.db(), ns.coll()), ("test", "system.views"));
        assert_eq!(ns, Namespace::new("test", "system.views"));
        for wrong in ["", "a", ".a", "a."] {
            assert_eq!(Namespace::parse(wrong), None);
        }
    }
}

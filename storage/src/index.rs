//! Indexes: the keys of a document, and how they get into an index.

pub(crate) mod entry;
pub(crate) mod keygen;
mod text;
pub(crate) mod waiting;
pub(crate) mod wildcard;

#[cfg(test)]
mod tests;

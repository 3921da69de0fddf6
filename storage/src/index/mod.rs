//! Indexes: which keys a document has, and how an index comes to hold them.

pub(crate) mod entry;
pub(crate) mod keygen;
mod text;
pub(crate) mod waiting;
pub(crate) mod wildcard;

#[cfg(test)]
mod tests;

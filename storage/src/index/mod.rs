//! Indexes: which keys a document has, and how an index comes to hold them.

pub(crate) mod entry;
pub(crate) mod hash;
pub(crate) mod keygen;

#[cfg(test)]
mod tests;

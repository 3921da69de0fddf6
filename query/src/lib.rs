//! The meaning of the query language; pure.

//! Follows a replica set.

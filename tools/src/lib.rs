//! Command line tools around a store.

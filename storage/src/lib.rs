//! Versioned documents on an embedded engine.

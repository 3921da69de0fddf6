//! The words two MongoDB nodes say to each other.

//! Looks like mongod to clients and peers.

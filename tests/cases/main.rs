//! All cases in one binary, with real servers and drivers.
//!
//! A case for one version of MongoDB is a function of [`tests::servers::Version`]; `on_each_version!` makes one test
//! of it per version, so that `cargo test -p tests --test cases v8_2` runs one version and `… --test cases harness::`
//! one subject.

/// Makes the tests `name::v8_2`, `name::v5_0` and `name::v4_4` from each function `name(version)`.
macro_rules! on_each_version {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn v8_2() -> anyhow::Result<()> {
                super::$name(tests::servers::Version::V8_2)
            }

            #[test]
            fn v5_0() -> anyhow::Result<()> {
                super::$name(tests::servers::Version::V5_0)
            }

            #[test]
            fn v4_4() -> anyhow::Result<()> {
                super::$name(tests::servers::Version::V4_4)
            }
        }
    )*};
}

mod acks;
mod answers;
mod backup;
mod bad_input;
mod bad_sources;
mod chaining;
mod clients;
mod connections;
mod cursors;
mod delayed;
mod differential;
mod disk_full;
mod explain;
mod failover;
mod handshake;
mod harness;
mod hostile;
mod index_walks;
mod initial_sync;
mod key_file;
mod kill;
mod member_commands;
mod members;
mod moments;
mod out_of_service;
mod past;
mod people;
mod power;
mod prepared;
mod privileges;
mod reads;
mod releases;
mod replies;
mod rollback;
mod staleness;
mod steady;
mod tailing;
mod text;
mod tls;
mod undo;
mod users;

//! The handshake: our hello command and the parsed reply.

use std::fmt;

use bson::{RawDocumentBuf, cstr, rawdoc};

use super::ConnectOptions;
use crate::{Compressors, FieldError, Fields, RawDoc};

/// A range of wire versions. Each MongoDB release has a number: 9 is 4.4, 13 is 5.0, 27 is 8.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WireVersions {
    /// The oldest spoken.
    pub min: i32,
    /// The newest spoken.
    pub max: i32,
}

impl WireVersions {
    /// True if the ranges have a version in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

impl fmt::Display for WireVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// The peer's reply to hello.
#[derive(Clone, Debug)]
pub struct HelloReply {
    /// The whole reply.
    pub raw: RawDoc,
    /// The wire versions that the peer accepts.
    pub wire_versions: WireVersions,
    /// The compressors that both sides support, in the peer's order.
    pub compressors: Compressors,
    /// The peer is a writable primary.
    pub is_writable_primary: bool,
    /// The peer is a secondary.
    pub is_secondary: bool,
    /// Name of the peer's replica set.
    pub set_name: Option<String>,
}

impl HelloReply {
    pub(super) fn parse(raw: RawDoc, ours: Compressors) -> Result<Self, FieldError> {
        let fields = Fields::idl("hello", &raw);
        let number = |name| fields.optional(name)?.map_or(Ok(0), |value| value.safe_i32());
        let flag = |name| fields.optional(name)?.map_or(Ok(false), |value| value.safe_bool());
        let wire_versions =
            WireVersions { min: number("minWireVersion")?, max: number("maxWireVersion")? };
        let theirs = match fields.optional("compression")? {
            Some(value) => {
                let names = value.array()?.into_iter().flatten().filter_map(|name| name.as_str());
                ours.negotiate(names)
            }
            None => Compressors::NONE,
        };
        let is_writable_primary = flag("isWritablePrimary")? || flag("ismaster")?;
        let is_secondary = flag("secondary")?;
        let set_name = fields.optional("setName")?;
        let set_name = set_name.map(|name| name.str().map(str::to_owned)).transpose()?;
        let compressors = theirs;
        Ok(Self { wire_versions, compressors, is_writable_primary, is_secondary, set_name, raw })
    }
}

/// Builds the hello command. Every release since 4.4 accepts `hello` in an OP_MSG.
pub(super) fn command(options: &ConnectOptions) -> RawDocumentBuf {
    let mut hello = rawdoc! { "hello": 1 };
    hello.append(cstr!("client"), metadata(options));
    if let Some(host_info) = &options.host_info {
        hello.append(cstr!("hostInfo"), host_info.as_str());
    }
    let names: bson::RawArrayBuf =
        options.compressors.iter().map(|compressor| compressor.name()).collect();
    if options.compressors != Compressors::NONE {
        hello.append(cstr!("compression"), names);
    }
    if let Some(WireVersions { min, max }) = options.internal_client {
        let range = rawdoc! { "minWireVersion": min, "maxWireVersion": max };
        hello.append(cstr!("internalClient"), range);
    }
    for (key, value) in options.hello_fields.iter().flatten() {
        hello.append(key, value);
    }
    hello
}

fn metadata(options: &ConnectOptions) -> RawDocumentBuf {
    let mut client = RawDocumentBuf::new();
    if let Some(name) = &options.app_name {
        client.append(cstr!("application"), rawdoc! { "name": name.as_str() });
    }
    let driver = &options.driver;
    client.append(
        cstr!("driver"),
        rawdoc! { "name": driver.name.as_str(), "version": driver.version.as_str() },
    );
    client.append(
        cstr!("os"),
        rawdoc! { "type": "Linux", "name": "Linux", "architecture": std::env::consts::ARCH },
    );
    client
}

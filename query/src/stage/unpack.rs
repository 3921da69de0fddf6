//! `$_internalUnpackBucket`, which mongod puts before every pipeline on a time-series collection, and its short form.

use super::{Parsed, StageContext, to_doc};
use crate::{
    error::QueryError,
    exec::{Noted, Stage, Upstream},
    timeseries::{Bucket, Fields, Unpacking},
    value::{Elements, Value},
};

/// The stage.
#[derive(Debug)]
pub struct Unpack {
    pub(super) unpacking: Unpacking,
    bucket: Option<Bucket>,
    given: u64,
}

/// Measurements between checks for interruption.
const CHECK_EVERY: u64 = 1024;

impl Stage for Unpack {
    fn next(&mut self, up: &mut Upstream<'_, '_>) -> Result<Option<Noted>, QueryError> {
        loop {
            if let Some(bucket) = &mut self.bucket {
                if let Some(doc) = bucket.next(&self.unpacking)? {
                    self.given += 1;
                    if self.given.is_multiple_of(CHECK_EVERY) {
                        up.context().check()?;
                    }
                    return Ok(Some(to_doc(doc)?.into()));
                }
                self.bucket = None;
            }
            let Some(doc) = up.pull()? else { return Ok(None) };
            self.bucket = Some(Bucket::open(doc.doc, &self.unpacking)?);
        }
    }
}

/// The error codes in which the two forms differ.
struct Codes {
    name: &'static str,
    not_object: i32,
    time: i32,
    meta: i32,
    meta_path: i32,
    unknown: i32,
    no_time: i32,
}

const INTERNAL: Codes = Codes {
    name: "$_internalUnpackBucket",
    not_object: 5_346_500,
    time: 5_346_504,
    meta: 5_346_505,
    meta_path: 5_545_700,
    unknown: 5_346_506,
    no_time: 5_346_508,
};

const SHORT: Codes = Codes {
    name: "$_unpackBucket",
    not_object: 5_612_400,
    time: 5_612_401,
    meta: 5_612_402,
    meta_path: 5_612_403,
    unknown: 5_612_404,
    no_time: 5_612_405,
};

pub(super) fn parse(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    parse_as(&INTERNAL, value)
}

pub(super) fn parse_short(value: Value<'_>, _: &StageContext) -> Result<Parsed, QueryError> {
    parse_as(&SHORT, value)
}

fn parse_as(codes: &Codes, value: Value<'_>) -> Result<Parsed, QueryError> {
    let refuse = |code, text: String| Err(QueryError::location(code, text));
    let Value::Document(doc) = value else {
        let got = value.type_name();
        return refuse(
            codes.not_object,
            format!("{} specification must be an object, got: {got}", codes.name),
        );
    };
    let (mut time, mut meta, mut fields, mut span) = (None, None, None, false);
    let internal = codes.name == INTERNAL.name;
    for field in Elements::of_bytes(doc) {
        let value = field.value();
        let got = value.type_name();
        match (field.key, value) {
            (b"timeField", Value::String(name)) => time = Some(name.into()),
            (b"timeField", _) => {
                return refuse(codes.time, format!("timeField field must be a string, got: {got}"));
            }
            (b"metaField", Value::String(name)) => {
                if name.contains(&b'.') {
                    let text = "metaField field must be a single-element field path";
                    return refuse(codes.meta_path, text.into());
                }
                meta = Some(name.into());
            }
            (b"metaField", _) => {
                return refuse(codes.meta, format!("metaField field must be a string, got: {got}"));
            }
            (b"include" | b"exclude", _) if internal => {
                let names = names(value)?;
                if fields.is_some() {
                    let text = "The $_internalUnpackBucket stage expects at most one of \
                                include/exclude parameters to be specified";
                    return refuse(5_408_000, text.into());
                }
                fields = Some(if field.key == b"include" {
                    Fields::Include(names)
                } else {
                    Fields::Exclude(names)
                });
            }
            (b"bucketMaxSpanSeconds", _) if internal => {
                if !value.is_number() {
                    let text = format!("bucketMaxSpanSeconds field must be an integer, got: {got}");
                    return refuse(5_510_600, text);
                }
                span = true;
            }
            // These fields only speed up mongod's plans; they do not change results.
            (
                b"assumeNoMixedSchemaData"
                | b"usesExtendedRange"
                | b"fixedBuckets"
                | b"includeMinTimeAsMetadata"
                | b"includeMaxTimeAsMetadata",
                _,
            ) if internal => {}
            (other, _) => {
                let other = String::from_utf8_lossy(other);
                let text = format!("unrecognized parameter to {}: {other}", codes.name);
                return refuse(codes.unknown, text);
            }
        }
    }
    let Some(time) = time else {
        let text = format!("The {} stage requires a timeField parameter", codes.name);
        return refuse(codes.no_time, text);
    };
    if internal && !span {
        let text = "The $_internalUnpackBucket stage requires a bucketMaxSpanSeconds parameter";
        return refuse(5_510_602, text.into());
    }
    let fields = fields.unwrap_or(Fields::Exclude(Vec::new()));
    let unpacking = Unpacking { time, meta, fields };
    Ok(Parsed::Unpack(Box::new(Unpack { unpacking, bucket: None, given: 0 })))
}

fn names(value: Value<'_>) -> Result<Vec<Box<[u8]>>, QueryError> {
    let Value::Array(_) = value else {
        let got = value.type_name();
        return Err(QueryError::location(
            5_346_501,
            format!("include or exclude field must be an array, got: {got}"),
        ));
    };
    value
        .elements()
        .map(|element| match element.value() {
            Value::String(name) if name.contains(&b'.') => Err(QueryError::location(
                5_346_503,
                "include or exclude field element must be a single-element field path",
            )),
            Value::String(name) => Ok(name.into()),
            other => Err(QueryError::location(
                5_346_502,
                format!(
                    "include or exclude field element must be a string, got: {}",
                    other.type_name()
                ),
            )),
        })
        .collect()
}

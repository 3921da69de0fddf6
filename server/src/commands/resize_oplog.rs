//! replSetResizeOplog: changes the size or the minimum retention of the oplog.
//!
//! As in mongod, the size is persistent and the retention is not, because it is a start option.

use std::time::Duration;

use bson::{RawBsonRef, RawDocumentBuf};
use protocol::{ErrorCode, Fields};

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    error::Failure,
    read::blocking,
};

pub(super) const COMMAND: Command = Command {
    name: "replSetResizeOplog",
    help: "Changes the size of the oplog, and for how long entries are kept whatever their size.",
    auth: Auth::Cluster(action("replSetResizeOplog")),
    admin_only: true,
    run: Run::Waiting(|call| blocking::command(call, run)),
    ..Command::DEFAULT
};

/// Minimum and maximum in megabytes, each with its text.
const SIZE: (f64, &str, f64, &str) = (990.0, "990", 1_073_741_824.0, "1.07374e+09");

const BYTES_PER_MB: f64 = 1024.0 * 1024.0;
const SECS_PER_HOUR: f64 = 3600.0;

fn run(call: &Call) -> Outcome {
    if call.node().repl().is_none() {
        return Err(Failure::said(ErrorCode::NamespaceNotFound, "oplog does not exist"));
    }
    let fields = Fields::idl("replSetResizeOplog", &call.body);
    if is_lenient(call) {
        fields.only(&["replSetResizeOplog", "size", "minRetentionHours"])?;
    }
    let size = number(call, &fields, "size")?;
    let hours = number(call, &fields, "minRetentionHours")?;
    let (min, min_text, max, max_text) = SIZE;
    if let Some(size) = size {
        // NaN counts as too small.
        if size.is_nan() || size < min {
            return Err(out_of_bounds(call, "size", ">=", min_text, size));
        }
        if size > max {
            return Err(out_of_bounds(call, "size", "<=", max_text, size));
        }
    }
    let retention = match hours {
        None => None,
        Some(hours) => match Duration::try_from_secs_f64(hours * SECS_PER_HOUR) {
            Ok(retention) => Some(retention),
            Err(_) if hours > 0.0 => Some(Duration::MAX),
            Err(_) => return Err(out_of_bounds(call, "minRetentionHours", ">=", "0", hours)),
        },
    };
    let oplog = call.node().store()?.oplog();
    if let Some(size) = size {
        oplog.resize(bytes(size))?;
    }
    if let Some(retention) = retention {
        oplog.set_min_retention(retention);
    }
    tracing::info!(target: "STORAGE", id = 20497, ctx = call.client.name(),
        size = oplog.max_bytes(), minRetentionHours = hours, "replSetResizeOplog success");
    Ok(RawDocumentBuf::new().into())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bounds were checked"
)]
fn bytes(megabytes: f64) -> u64 {
    (megabytes * BYTES_PER_MB) as u64
}

/// Newer releases accept any number type, and no unknown fields.
fn is_lenient(call: &Call) -> bool {
    call.profile().typed_commands
}

fn number(call: &Call, fields: &Fields<'_>, name: &'static str) -> Result<Option<f64>, Failure> {
    let Some(value) = fields.get(name)?.filter(|value| value.raw() != RawBsonRef::Null) else {
        return Ok(None);
    };
    let lenient = is_lenient(call);
    let number = match value.raw() {
        RawBsonRef::Double(number) => Some(number),
        RawBsonRef::Int32(number) if lenient => Some(f64::from(number)),
        RawBsonRef::Int64(number) if lenient => Some(number as f64),
        RawBsonRef::Decimal128(number) if lenient => number.to_string().parse().ok(),
        _ => None,
    };
    let expected: &[&str] =
        if lenient { &["double", "int", "decimal", "long"] } else { &["double"] };
    number.map(Some).ok_or_else(|| Failure::wrong_type(value.path(), value.raw(), expected))
}

fn out_of_bounds(call: &Call, name: &str, sign: &str, bound: &str, actual: f64) -> Failure {
    let code = if is_lenient(call) { ErrorCode::BadValue } else { ErrorCode::from_code(51024) };
    let actual = shown(actual);
    let text = format!("BSON field '{name}' value must be {sign} {bound}, actual value '{actual}'");
    Failure::said(code, text)
}

/// A number with six digits, as in mongod's texts.
fn shown(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    let rounded = format!("{number:.5e}");
    let Some((digits, exponent)) = rounded.split_once('e') else { return rounded };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return rounded.parse::<f64>().unwrap_or(number).to_string();
    }
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_mongods_texts() {
        let texts = [989.9, -5.0, 1e12, 0.0, f64::NAN, 1_073_741_824.0].map(shown);
        assert_eq!(texts, ["989.9", "-5", "1e+12", "0", "nan", "1.07374e+09"]);
    }
}

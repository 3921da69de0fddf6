//! Dates from parts and text; date arithmetic and truncation.

use super::{
    Env, Evaluated,
    date::{Civil, DAY_MS, Zone, as_date, days_from_civil, read_iso},
    date_text::read_by_format,
};
use crate::{
    error::QueryError,
    value::{Elements, Spelled, Value},
};

fn error<'a>(code: i32, message: impl Into<String>) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

fn integral(value: Value<'_>) -> Option<i64> {
    crate::matcher::operands::integer("", value).ok()
}

/// The order of `$dateFromParts`' fields in its row of the table.
const PARTS: [&str; 10] = [
    "year",
    "month",
    "day",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "hour",
    "minute",
    "second",
    "millisecond",
];

/// Checks which parts may be combined; mongod checks the names before it parses any of them.
pub(super) fn check_parts(_: &str, fields: Elements<'_>) -> Result<(), QueryError> {
    let has = |name: &str| fields.clone().find(name.as_bytes()).is_some();
    let (code, text) = match (has("year"), has("isoWeekYear")) {
        (false, false) => {
            (40_516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present")
        }
        (true, iso) if iso || has("isoWeek") || has("isoDayOfWeek") => {
            (40_489, "$dateFromParts does not allow mixing natural dates with ISO dates")
        }
        (false, true) if has("month") || has("day") => {
            (40_525, "$dateFromParts does not allow mixing ISO dates with natural dates")
        }
        _ => return Ok(()),
    };
    Err(QueryError::location(code, text))
}

pub(super) fn op_date_from_parts<'a>(_: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let Some((zone, values)) = args.split_last() else { return Ok(Value::Null) };
    let mut numbers = [None; 10];
    for ((place, value), name) in numbers.iter_mut().zip(values).zip(PARTS) {
        let Some(value) = *value else { continue };
        if value.is_nullish() {
            return Ok(Value::Null);
        }
        let Some(n) = integral(value) else {
            return error(
                40_515,
                format!(
                    "'{name}' must evaluate to an integer, found {} with value {}",
                    value.type_name(),
                    Spelled(value)
                ),
            );
        };
        // Seconds and milliseconds have no limit.
        let narrow = !matches!(name, "year" | "isoWeekYear" | "second" | "millisecond");
        if narrow && i16::try_from(n).is_err() {
            return error(
                31_034,
                format!(
                    "'{name}' must evaluate to a value in the range [-32768, 32767]; value {n} is \
                     not in range"
                ),
            );
        }
        *place = Some(n);
    }
    let Some(zone) = Zone::parse(*zone)? else { return Ok(Value::Null) };
    let [year, month, day, iso_year, iso_week, iso_day, hour, minute, second, milli] = numbers;
    let days = if let Some(year) = year {
        if !(1..=9999).contains(&year) {
            return error(
                40_523,
                format!("'year' must evaluate to an integer in the range 1 to 9999, found {year}"),
            );
        }
        days_from_civil(year, month.unwrap_or(1), 1) + day.unwrap_or(1) - 1
    } else {
        let year = iso_year.unwrap_or(1);
        if !(1..=9999).contains(&year) {
            return error(
                31_095,
                format!(
                    "'isoWeekYear' must evaluate to an integer in the range 1 to 9999, found {year}"
                ),
            );
        }
        let fourth = days_from_civil(year, 1, 4);
        let monday = fourth - (fourth + 3).rem_euclid(7);
        monday + (iso_week.unwrap_or(1) - 1) * 7 + iso_day.unwrap_or(1) - 1
    };
    // mongod computes in microseconds, which overflow earlier.
    let micros = |n: Option<i64>, unit: i64| n.unwrap_or(0).checked_mul(unit);
    let local = micros(hour, 3_600_000_000)
        .and_then(|sum| sum.checked_add(micros(minute, 60_000_000)?))
        .and_then(|sum| sum.checked_add(micros(second, 1_000_000)?))
        .and_then(|sum| sum.checked_add(micros(milli, 1000)?))
        .and_then(|sum| sum.checked_add(days.checked_mul(DAY_MS)?.checked_mul(1000)?));
    let Some(local) = local.map(|micros| micros.div_euclid(1000)) else {
        let text =
            "Overflow casting from a lower-precision duration to a higher-precision duration";
        return Err(QueryError::new(protocol::ErrorCode::DurationOverflow, text));
    };
    Ok(Value::Date(zone.moment(local)))
}

/// `{dateString, format, timezone, onNull, onError}`.
pub(super) fn op_date_from_string<'a>(
    _: &mut Env<'a>,
    args: &[Option<Value<'a>>],
) -> Evaluated<'a> {
    let [Some(text), format, zone_value, on_null, on_error] = *args else { return Ok(Value::Null) };
    let format = match format {
        None => None,
        Some(Value::String(format)) => Some(String::from_utf8_lossy(format).into_owned()),
        Some(other) if other.is_nullish() => return Ok(Value::Null),
        Some(other) => {
            return error(
                40_684,
                format!(
                    "$dateFromString requires that 'format' be a string, found: {} with value {}",
                    other.type_name(),
                    Spelled(other)
                ),
            );
        }
    };
    let zone = Zone::parse(zone_value)?;
    if text.is_nullish() {
        return Ok(on_null.unwrap_or(Value::Null));
    }
    let Some(zone) = zone else { return Ok(Value::Null) };
    let Value::String(bytes) = text else {
        if let Some(on_error) = on_error {
            return Ok(on_error);
        }
        return error(
            241,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                text.type_name(),
                Spelled(text)
            ),
        );
    };
    let shown = String::from_utf8_lossy(bytes);
    let read = match &format {
        None => read_iso(&shown),
        Some(format) => read_by_format(&shown, format),
    };
    match read {
        Some((local, Some(offset))) => {
            if zone_value.is_some() && !matches!(zone, Zone::Fixed(0)) {
                if let Some(on_error) = on_error {
                    return Ok(on_error);
                }
                return error(
                    241,
                    "you cannot pass in a date/time string with GMT offset together with a timezone argument",
                );
            }
            Ok(Value::Date(local - offset))
        }
        Some((local, None)) => Ok(Value::Date(zone.moment(local))),
        None => match on_error {
            Some(on_error) => Ok(on_error),
            None => error(241, format!("Error parsing date string '{shown}'")),
        },
    }
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the units' own names")]
pub enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    /// An hour or less, in milliseconds.
    Fixed(i64),
}

impl Unit {
    /// Milliseconds of a unit with a fixed length; `None` for a month or more.
    pub(crate) fn millis(self) -> Option<i64> {
        match self {
            Self::Week => Some(7 * DAY_MS),
            Self::Day => Some(DAY_MS),
            Self::Fixed(ms) => Some(ms),
            Self::Year | Self::Quarter | Self::Month => None,
        }
    }
}

/// The unit with this name.
pub(crate) fn unit_named(name: &[u8]) -> Option<Unit> {
    Some(match name {
        b"year" => Unit::Year,
        b"quarter" => Unit::Quarter,
        b"month" => Unit::Month,
        b"week" => Unit::Week,
        b"day" => Unit::Day,
        b"hour" => Unit::Fixed(3_600_000),
        b"minute" => Unit::Fixed(60_000),
        b"second" => Unit::Fixed(1000),
        b"millisecond" => Unit::Fixed(1),
        _ => return None,
    })
}

/// Adds an amount of units to a time, in UTC.
pub(crate) fn moved_in_utc(ms: i64, unit: Unit, amount: i64) -> Option<i64> {
    moved(ms, unit, amount, &Zone::Fixed(0))
}

fn unit(name: &str, value: Value<'_>) -> Result<Option<Unit>, QueryError> {
    if value.is_nullish() {
        return Ok(None);
    }
    let Value::String(text) = value else {
        return Err(QueryError::location(
            5_439_013,
            format!("{name} requires 'unit' to be a string, but got {}", value.type_name()),
        ));
    };
    unit_named(text).map(Some).ok_or_else(|| {
        QueryError::location(
            9,
            format!(
                "{name} parameter 'unit' value parsing failed :: caused by :: unknown time unit value: {}",
                String::from_utf8_lossy(text)
            ),
        )
    })
}

/// The name of a unit, and the most of it that mongod adds.
fn limits(unit: Unit) -> (&'static str, i64) {
    match unit {
        Unit::Year => ("year", 584_942_417),
        Unit::Quarter => ("quarter", 2_339_769_671),
        Unit::Month => ("month", 7_019_309_015),
        Unit::Week => ("week", 30_500_568_904),
        Unit::Day => ("day", 213_503_982_334),
        Unit::Fixed(3_600_000) => ("hour", 5_124_095_576_039),
        Unit::Fixed(60_000) => ("minute", 307_445_734_562_399),
        Unit::Fixed(1000) => ("second", 18_446_744_073_743_999),
        Unit::Fixed(_) => ("millisecond", i64::MAX),
    }
}

/// A moment moved, or what mongod says where no date is so far away.
fn moved_checked(ms: i64, unit: Unit, amount: i64, zone: &Zone) -> Result<i64, QueryError> {
    let (name, most) = limits(unit);
    if amount.unsigned_abs() > most.unsigned_abs() {
        let text = format!("invalid dateAdd 'amount' parameter value: {amount} {name}");
        return Err(QueryError::location(5_976_500, text));
    }
    moved(ms, unit, amount, zone).ok_or_else(|| match unit {
        Unit::Fixed(1) => QueryError::new(
            protocol::ErrorCode::DurationOverflow,
            format!("Overflow while adding {amount}ms to {}ms", ms.wrapping_add(amount)),
        ),
        _ => QueryError::location(5_166_406, "dateAdd overflowed"),
    })
}

/// A moment moved. mongod takes one before 1970 apart into seconds rounded down and milliseconds that are negative,
/// and so loses a second of those that have a fraction.
fn moved(ms: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let lost = if ms < 0 && ms % 1000 != 0 && unit != Unit::Fixed(1) { 1000 } else { 0 };
    moved_whole(ms, unit, amount, zone)?.checked_sub(lost)
}

fn moved_whole(ms: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let months = match unit {
        Unit::Fixed(length) => return ms.checked_add(amount.checked_mul(length)?),
        Unit::Day | Unit::Week => {
            let days = if unit == Unit::Week { amount.checked_mul(7)? } else { amount };
            let local = ms.checked_add(zone.offset_at(ms))?;
            return Some(zone.moment(local.checked_add(days.checked_mul(DAY_MS)?)?));
        }
        Unit::Month => amount,
        Unit::Quarter => amount.checked_mul(3)?,
        Unit::Year => amount.checked_mul(12)?,
    };
    let mut civil = zone.civil(ms);
    let total = civil.year * 12 + civil.month - 1 + months;
    (civil.year, civil.month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
    // The 31st of a shorter month becomes its last day.
    let length = days_from_civil(civil.year, civil.month + 1, 1)
        - days_from_civil(civil.year, civil.month, 1);
    civil.day = civil.day.min(length);
    // The fields may be beyond all dates.
    let midnight = days_from_civil(civil.year, civil.month, civil.day).checked_mul(DAY_MS)?;
    let of_day = Civil { year: 1970, month: 1, day: 1, ..civil }.to_local();
    Some(zone.moment(midnight.checked_add(of_day)?))
}

fn add<'a>(name: &str, args: &[Option<Value<'a>>], sign: i64) -> Evaluated<'a> {
    let [Some(start), Some(unit_value), Some(amount), zone] = *args else {
        return Ok(Value::Null);
    };
    let Some(by) = unit(name, unit_value)? else { return Ok(Value::Null) };
    if start.is_nullish() || amount.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(zone) = Zone::parse(zone)? else { return Ok(Value::Null) };
    let Some(ms) = as_date(start) else {
        return error(5_166_403, format!("{name} requires startDate to be convertible to a date"));
    };
    let Some(amount) = integral(amount) else {
        return error(5_166_405, format!("{name} expects integer amount of time units"));
    };
    let Some(signed) = amount.checked_mul(sign) else {
        return error(6_045_000, format!("invalid {name} 'amount' parameter value: {amount}"));
    };
    moved_checked(ms, by, signed, &zone).map(Value::Date)
}

pub(super) fn op_date_add<'a>(_: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    add("$dateAdd", args, 1)
}

pub(super) fn op_date_subtract<'a>(_: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    add("$dateSubtract", args, -1)
}

/// Parses the time zone; the error names the operator.
fn named_zone(name: &str, given: Option<Value<'_>>) -> Result<Option<Zone>, QueryError> {
    Zone::parse(given).map_err(|error| QueryError {
        message: format!(
            "{name} parameter 'timezone' value parsing failed :: caused by :: {}",
            error.message
        ),
        ..error
    })
}

/// Parses `binSize` of `$dateTrunc`, if given.
fn bin_size(given: Option<Value<'_>>) -> Result<Option<i64>, QueryError> {
    let Some(value) = given.filter(|value| !value.is_nullish()) else { return Ok(None) };
    match integral(value) {
        None => Err(QueryError::location(
            5_439_017,
            format!(
                "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
                Spelled(value),
                value.type_name()
            ),
        )),
        Some(n) if n <= 0 => Err(QueryError::location(
            5_439_018,
            format!("$dateTrunc requires 'binSize' to be greater than 0, but got value {n}"),
        )),
        Some(n) => Ok(Some(n)),
    }
}

type Constants<'c, 'v> = &'c [Option<Value<'v>>];

fn constant<'v>(constants: Constants<'_, 'v>, at: usize) -> Option<Value<'v>> {
    constants.get(at).copied().flatten()
}

/// Refuses an invalid constant time zone at a position among the arguments.
pub(super) fn check_zone<const AT: usize>(
    _: &str,
    constants: Constants<'_, '_>,
) -> Result<(), QueryError> {
    Zone::parse(constant(constants, AT)).map(drop)
}

/// Checks the constants of `{startDate, unit, amount, timezone}`.
pub(super) fn check_add(name: &str, constants: Constants<'_, '_>) -> Result<(), QueryError> {
    constant(constants, 1).map_or(Ok(None), |value| unit(name, value))?;
    check_zone::<3>(name, constants)
}

/// Checks the constants of `{startDate, endDate, unit, timezone, startOfWeek}`.
pub(super) fn check_diff(name: &str, constants: Constants<'_, '_>) -> Result<(), QueryError> {
    constant(constants, 2).map_or(Ok(None), |value| unit(name, value))?;
    start_of_week(name, constant(constants, 4))?;
    named_zone(name, constant(constants, 3)).map(drop)
}

/// Checks the constants of `{date, unit, binSize, timezone, startOfWeek}`.
pub(super) fn check_trunc(name: &str, constants: Constants<'_, '_>) -> Result<(), QueryError> {
    constant(constants, 1).map_or(Ok(None), |value| unit(name, value))?;
    start_of_week(name, constant(constants, 4))?;
    bin_size(constant(constants, 2))?;
    named_zone(name, constant(constants, 3)).map(drop)
}

/// Parses the start of the week. Monday is 1; the default is Sunday.
fn start_of_week(name: &str, given: Option<Value<'_>>) -> Result<Option<i64>, QueryError> {
    const DAYS: [&str; 7] =
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let Some(value) = given else { return Ok(Some(7)) };
    match value {
        _ if value.is_nullish() => Ok(None),
        Value::String(text) => {
            let lower = String::from_utf8_lossy(text).to_ascii_lowercase();
            let found =
                (1i64..).zip(DAYS).find(|(_, day)| *day == lower || day.get(..3) == Some(&lower));
            found.map(|(at, _)| Some(at)).ok_or_else(|| {
                QueryError::location(5_439_016, format!("{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {}", String::from_utf8_lossy(text)))
            })
        }
        other => Err(QueryError::location(
            5_439_015,
            format!("{name} requires 'startOfWeek' to be a string, but got {}", other.type_name()),
        )),
    }
}

/// The first day of weeks, which no other unit asks for.
fn first_day_of(
    name: &str,
    unit: Unit,
    given: Option<Value<'_>>,
) -> Result<Option<i64>, QueryError> {
    if unit == Unit::Week { start_of_week(name, given) } else { Ok(Some(7)) }
}

pub(super) fn op_date_diff<'a>(_: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let [Some(start), Some(end), Some(unit_value), zone, week] = *args else {
        return Ok(Value::Null);
    };
    if start.is_nullish() || end.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(by) = unit("$dateDiff", unit_value)? else { return Ok(Value::Null) };
    let Some(first_day) = first_day_of("$dateDiff", by, week)? else { return Ok(Value::Null) };
    let Some(zone) = named_zone("$dateDiff", zone)? else { return Ok(Value::Null) };
    let Some(from) = as_date(start) else {
        return error(
            5_166_307,
            format!("$dateDiff requires 'startDate' to be a date, but got {}", start.type_name()),
        );
    };
    let Some(to) = as_date(end) else {
        return error(
            5_166_307,
            format!("$dateDiff requires 'endDate' to be a date, but got {}", end.type_name()),
        );
    };
    let (a, b) = (zone.civil(from), zone.civil(to));
    let days = |c: Civil| days_from_civil(c.year, c.month, c.day);
    Ok(Value::Int64(match by {
        Unit::Year => b.year - a.year,
        Unit::Quarter => (b.year * 4 + (b.month - 1) / 3) - (a.year * 4 + (a.month - 1) / 3),
        Unit::Month => (b.year * 12 + b.month) - (a.year * 12 + a.month),
        Unit::Day => days(b) - days(a),
        Unit::Week => {
            // 1970-01-01 was a Thursday, day 4 of a week that begins on Monday.
            let week = |c: Civil| (days(c) + 4 - first_day).div_euclid(7);
            week(b) - week(a)
        }
        Unit::Fixed(3_600_000) => {
            let hour = |ms: i64| {
                (ms + zone.offset_at(ms)).div_euclid(3_600_000)
                    - zone.offset_at(ms).div_euclid(3_600_000)
            };
            hour(to) - hour(from)
        }
        Unit::Fixed(length) => to.div_euclid(length) - from.div_euclid(length),
    }))
}

/// The largest bin of days and more, as in mongod.
const BIN_SIZE_MAX: i64 = 100_000_000_000;

/// `{date, unit, binSize, timezone, startOfWeek}`: bins are counted from 2000-01-01.
pub(super) fn op_date_trunc<'a>(_: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let [Some(value), Some(unit_value), bin, zone, week] = *args else { return Ok(Value::Null) };
    if value.is_nullish() || bin.is_some_and(|bin| bin.is_nullish()) {
        return Ok(Value::Null);
    }
    let Some(by) = unit("$dateTrunc", unit_value)? else { return Ok(Value::Null) };
    let Some(first_day) = first_day_of("$dateTrunc", by, week)? else { return Ok(Value::Null) };
    let Some(zone) = named_zone("$dateTrunc", zone)? else { return Ok(Value::Null) };
    let Some(ms) = as_date(value) else {
        return error(
            5_166_307,
            format!("$dateTrunc requires 'date' to be a date, but got {}", value.type_name()),
        );
    };
    let bin = bin_size(bin)?.unwrap_or(1);
    let reference = days_from_civil(2000, 1, 1);
    let civil = zone.civil(ms);
    let today = days_from_civil(civil.year, civil.month, civil.day);
    let months = (civil.year - 2000) * 12 + civil.month - 1;
    // The first start of a week on or after the reference, a Saturday (day 6).
    let first_week = reference + (first_day - 6).rem_euclid(7);
    let (origin, since) = match by {
        Unit::Year => (reference, months.div_euclid(12)),
        Unit::Quarter => (reference, months.div_euclid(3)),
        Unit::Month => (reference, months),
        Unit::Week => (first_week, (today - first_week).div_euclid(7)),
        Unit::Day => (reference, today - reference),
        Unit::Fixed(length) => {
            let Some(length) = length.checked_mul(bin) else {
                return error(5_439_002, "dateTrunc overflowed");
            };
            let origin = zone.moment(reference * DAY_MS);
            let start = (ms - origin).div_euclid(length).checked_mul(length);
            return match start.and_then(|start| origin.checked_add(start)) {
                Some(start) => Ok(Value::Date(start)),
                None => error(5_439_002, "dateTrunc overflowed"),
            };
        }
    };
    if bin > BIN_SIZE_MAX {
        return error(5_439_006, "dateTrunc unsupported binSize value");
    }
    let amount = since.div_euclid(bin) * bin;
    moved_checked(zone.moment(origin * DAY_MS), by, amount, &zone).map(Value::Date)
}

//! Dates: their parts, their text, and time zones.
//!
//! A date is milliseconds since 1970 in 64 bits, far beyond the years that calendar libraries support. So the
//! proleptic Gregorian calendar is computed here; only the offsets of time zones come from the zone database.

use jiff::{Timestamp, tz::TimeZone};

use super::{DocBuilder, Env, Evaluated};
use crate::{
    error::QueryError,
    value::{Spelled, Value},
};

pub(super) const DAY_MS: i64 = 86_400_000;

fn error<'a>(code: i32, message: impl Into<String>) -> Evaluated<'a> {
    Err(QueryError::location(code, message))
}

/// The calendar fields of a time in some zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) milli: i64,
}

/// Days since 1970 of a calendar day; months and days out of range carry over.
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 + day - 1
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

impl Civil {
    /// The fields of a time given in local milliseconds.
    pub(super) fn of_local(ms: i64) -> Self {
        let (year, month, day) = civil_from_days(ms.div_euclid(DAY_MS));
        let rest = ms.rem_euclid(DAY_MS);
        Self {
            year,
            month,
            day,
            hour: rest / 3_600_000,
            minute: rest / 60_000 % 60,
            second: rest / 1000 % 60,
            milli: rest % 1000,
        }
    }

    /// The fields in local milliseconds.
    pub(super) fn to_local(self) -> i64 {
        days_from_civil(self.year, self.month, self.day)
            .saturating_mul(DAY_MS)
            .saturating_add(self.hour.saturating_mul(3_600_000))
            .saturating_add(self.minute.saturating_mul(60_000))
            .saturating_add(self.second.saturating_mul(1000))
            .saturating_add(self.milli)
    }

    fn day_of_year(self) -> i64 {
        days_from_civil(self.year, self.month, self.day) - days_from_civil(self.year, 1, 1) + 1
    }

    /// The ISO day of week: 1 for Monday to 7 for Sunday.
    pub(super) fn iso_day_of_week(self) -> i64 {
        (days_from_civil(self.year, self.month, self.day) + 3).rem_euclid(7) + 1
    }

    /// ISO 8601 week and year: week 1 contains the year's first Thursday.
    pub(super) fn iso_week(self) -> (i64, i64) {
        let thursday =
            days_from_civil(self.year, self.month, self.day) - self.iso_day_of_week() + 4;
        let (year, _, _) = civil_from_days(thursday);
        ((thursday - days_from_civil(year, 1, 1)) / 7 + 1, year)
    }

    /// Weeks since the first Sunday; days before it are week 0.
    fn week(self) -> i64 {
        let day_of_week = self.iso_day_of_week() % 7;
        (self.day_of_year() + 6 - day_of_week) / 7
    }
}

/// A time zone: a fixed offset or one with rules.
#[derive(Debug, Clone)]
pub(super) enum Zone {
    Fixed(i64),
    Rules(Box<TimeZone>),
}

impl Zone {
    /// Parses a zone name or an offset; UTC if absent, `None` for null.
    pub(super) fn parse(given: Option<Value<'_>>) -> Result<Option<Self>, QueryError> {
        let Some(value) = given else { return Ok(Some(Self::Fixed(0))) };
        match value {
            _ if value.is_nullish() => Ok(None),
            Value::String(name) => {
                let name = String::from_utf8_lossy(name);
                Self::named(&name).map(Some).ok_or_else(|| {
                    QueryError::location(
                        40_485,
                        format!("unrecognized time zone identifier: \"{name}\""),
                    )
                })
            }
            other => Err(QueryError::location(
                40_517,
                format!("timezone must evaluate to a string, found {}", other.type_name()),
            )),
        }
    }

    fn named(name: &str) -> Option<Self> {
        if name == "UTC" {
            return Some(Self::Fixed(0));
        }
        if let Some(sign) =
            name.strip_prefix('+').map(|r| (1, r)).or(name.strip_prefix('-').map(|r| (-1, r)))
        {
            return offset_minutes(sign.1).map(|minutes| Self::Fixed(sign.0 * minutes * 60_000));
        }
        let place = of_a_place(name);
        let zone = TimeZone::get(place).ok()?;
        // Names are found in any case, and mongod's are exact.
        zone.iana_name().is_some_and(|found| found == place).then(|| Self::Rules(Box::new(zone)))
    }

    /// Milliseconds to add to a UTC time to get local time.
    pub(super) fn offset_at(&self, ms: i64) -> i64 {
        match self {
            Self::Fixed(offset) => *offset,
            Self::Rules(zone) => {
                // The calendar and the zone rules repeat after 400 years, so later times are mapped into the last
                // supported cycle.
                let ms = if ms >= YEAR_9999_MS {
                    YEAR_9999_MS - CYCLE_MS + (ms - YEAR_9999_MS).rem_euclid(CYCLE_MS)
                } else {
                    ms
                };
                let at = Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 {
                    Timestamp::MIN
                } else {
                    Timestamp::MAX
                });
                i64::from(zone.to_offset(at).seconds()) * 1000
            }
        }
    }

    /// The local calendar fields of a time.
    pub(super) fn civil(&self, ms: i64) -> Civil {
        Civil::of_local(ms.saturating_add(self.offset_at(ms)))
    }

    /// Converts local milliseconds to UTC; a local time skipped by a clock change moves forward.
    pub(super) fn moment(&self, local: i64) -> i64 {
        let Self::Rules(_) = self else { return local.saturating_sub(self.offset_at(local)) };
        let before = local.saturating_sub(self.offset_at(local.saturating_sub(DAY_MS)));
        let first = local.saturating_sub(self.offset_at(before));
        if first.saturating_add(self.offset_at(first)) == local {
            first.min(before_or(self, before, local, first))
        } else {
            before
        }
    }
}

/// 400 years of the Gregorian calendar.
const CYCLE_MS: i64 = 146_097 * DAY_MS;
/// Start of the last year for which zone rules are consulted.
const YEAR_9999_MS: i64 = 253_370_764_800_000;

fn before_or(zone: &Zone, before: i64, local: i64, fallback: i64) -> i64 {
    if before.saturating_add(zone.offset_at(before)) == local { before } else { fallback }
}

/// Parses `hh`, `hhmm` or `hh:mm` to minutes.
fn offset_minutes(text: &str) -> Option<i64> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let shape = matches!(text.len(), 2 | 4) && !text.contains(':')
        || text.len() == 5 && text.as_bytes().get(2) == Some(&b':');
    if !shape || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = digits.split_at_checked(2)?;
    Some(hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().unwrap_or(0))
}

/// Converts a value that can represent a date.
pub(super) fn as_date(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Date(ms) => Some(ms),
        Value::Timestamp(n) => i64::try_from(n >> 32).ok().map(|secs| secs * 1000),
        // mongod takes the seconds for signed: 2038 is 1901.
        Value::ObjectId(id) => id.first_chunk().map(|b| i64::from(i32::from_be_bytes(*b)) * 1000),
        _ => None,
    }
}

fn not_a_date(value: Value<'_>) -> QueryError {
    QueryError::location(
        16_006,
        format!("can't convert from BSON type {} to Date", value.type_name()),
    )
}

/// Zones that used to be plain rules and are now aliases of a place: before the rules began, the place's own time
/// applies.
fn of_a_place(name: &str) -> &str {
    match name {
        "CET" | "MET" => "Europe/Brussels",
        "CST6CDT" => "America/Chicago",
        "EET" => "Europe/Athens",
        "EST" => "America/Panama",
        "EST5EDT" => "America/New_York",
        "HST" => "Pacific/Honolulu",
        "MST" => "America/Phoenix",
        "MST7MDT" => "America/Denver",
        "PST8PDT" => "America/Los_Angeles",
        "WET" => "Europe/Lisbon",
        other => other,
    }
}

/// Evaluates a date part operator, which takes a date or `{date, timezone}`.
fn part<'a>(args: &[Option<Value<'a>>], of: impl Fn(Civil) -> i64, long: bool) -> Evaluated<'a> {
    let [Some(value), zone] = *args else { return Ok(Value::Null) };
    if value.is_nullish() {
        return Ok(Value::Null);
    }
    let ms = as_date(value).ok_or_else(|| not_a_date(value))?;
    let Some(zone) = Zone::parse(zone)? else { return Ok(Value::Null) };
    let n = of(zone.civil(ms));
    Ok(match i32::try_from(n) {
        Ok(n) if !long => Value::Int32(n),
        _ => Value::Int64(n),
    })
}

macro_rules! parts {
    ($($fun:ident = $of:expr, $long:literal;)*) => {$(
        pub(super) fn $fun<'a>(_: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
            let of: fn(Civil) -> i64 = $of;
            part(args, of, $long)
        }
    )*};
}

parts! {
    op_year = |c| c.year, false;
    op_month = |c| c.month, false;
    op_day_of_month = |c| c.day, false;
    op_day_of_week = |c| c.iso_day_of_week() % 7 + 1, false;
    op_day_of_year = Civil::day_of_year, false;
    op_hour = |c| c.hour, false;
    op_minute = |c| c.minute, false;
    op_second = |c| c.second, false;
    op_millisecond = |c| c.milli, false;
    op_week = Civil::week, false;
    op_iso_week = |c| c.iso_week().0, false;
    op_iso_week_year = |c| c.iso_week().1, true;
    op_iso_day_of_week = Civil::iso_day_of_week, false;
}

pub(super) fn op_date_to_parts<'a>(env: &mut Env<'a>, args: &[Option<Value<'a>>]) -> Evaluated<'a> {
    let [Some(value), zone, iso] = *args else { return Ok(Value::Null) };
    let Some(zone) = Zone::parse(zone)? else { return Ok(Value::Null) };
    let iso = match iso {
        None => false,
        Some(Value::Bool(b)) => b,
        Some(other) if other.is_nullish() => return Ok(Value::Null),
        Some(other) => {
            return error(
                40_521,
                format!("iso8601 must evaluate to a bool, found {}", other.type_name()),
            );
        }
    };
    if value.is_nullish() {
        return Ok(Value::Null);
    }
    let civil = zone.civil(as_date(value).ok_or_else(|| not_a_date(value))?);
    let int = |n: i64| Value::Int32(i32::try_from(n).unwrap_or(i32::MAX));
    let mut doc = DocBuilder::new();
    if iso {
        let (week, year) = civil.iso_week();
        doc.push(b"isoWeekYear", int(year));
        doc.push(b"isoWeek", int(week));
        doc.push(b"isoDayOfWeek", int(civil.iso_day_of_week()));
    } else {
        doc.push(b"year", int(civil.year));
        doc.push(b"month", int(civil.month));
        doc.push(b"day", int(civil.day));
    }
    doc.push(b"hour", int(civil.hour));
    doc.push(b"minute", int(civil.minute));
    doc.push(b"second", int(civil.second));
    doc.push(b"millisecond", int(civil.milli));
    Ok(Value::Document(env.keep(&doc.finish())))
}

/// A date as text in the form `2020-01-02T03:04:05.006Z`, which allows only four digits for the year.
pub(super) fn text(ms: i64) -> Result<String, QueryError> {
    let year = Civil::of_local(ms).year;
    if (0..=9999).contains(&year) { Ok(iso(ms)) } else { Err(year_out_of_range(year)) }
}

fn year_out_of_range(year: i64) -> QueryError {
    QueryError::location(
        18_537,
        format!(
            "Could not convert date to string: date component was outside the supported range of \
             0-9999: {year}"
        ),
    )
}

/// A timestamp where text is wanted: month, day and time, and the increment.
pub(super) fn timestamp_text(timestamp: u64) -> String {
    let c = Civil::of_local(i64::try_from(timestamp >> 32).unwrap_or(0).saturating_mul(1000));
    let month = usize::try_from(c.month - 1).ok().and_then(|at| MONTHS.get(at)).copied();
    let month = month.and_then(|name| name.get(..3)).unwrap_or_default();
    let increment = timestamp & 0xffff_ffff;
    format!("{month} {:2} {:02}:{:02}:{:02}:{increment}", c.day, c.hour, c.minute, c.second)
}

pub(crate) fn iso(ms: i64) -> String {
    let c = Civil::of_local(ms);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        c.year, c.month, c.day, c.hour, c.minute, c.second, c.milli
    )
}

/// `{date, format, timezone, onNull}`.
pub(super) fn op_date_to_string<'a>(
    env: &mut Env<'a>,
    args: &[Option<Value<'a>>],
) -> Evaluated<'a> {
    let [Some(value), format, zone_value, on_null] = *args else { return Ok(Value::Null) };
    let format = match format {
        None => None,
        Some(Value::String(format)) => Some(String::from_utf8_lossy(format)),
        Some(other) if other.is_nullish() => return Ok(Value::Null),
        Some(other) => {
            return error(
                18_533,
                format!(
                    "$dateToString requires that 'format' be a string, found: {} with value {}",
                    other.type_name(),
                    Spelled(other)
                ),
            );
        }
    };
    format.as_deref().map_or(Ok(()), check_format)?;
    let zone = Zone::parse(zone_value)?;
    if value.is_nullish() {
        return Ok(on_null.unwrap_or(Value::Null));
    }
    let Some(zone) = zone else { return Ok(Value::Null) };
    let ms = as_date(value).ok_or_else(|| not_a_date(value))?;
    let utc = zone_value.is_none() || matches!(zone, Zone::Fixed(0));
    let default = if utc { "%Y-%m-%dT%H:%M:%S.%LZ" } else { "%Y-%m-%dT%H:%M:%S.%L" };
    let text = formatted(ms, &zone, format.as_deref().unwrap_or(default))?;
    Ok(env.text(&text))
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The year for `%Y` or `%G`.
fn year_of(kind: char, civil: &Civil) -> i64 {
    if kind == 'G' { civil.iso_week().1 } else { civil.year }
}

/// Checks that every `%` is followed by a valid specifier.
fn check_format(format: &str) -> Result<(), QueryError> {
    let mut chars = format.chars();
    while let Some(ch) = chars.next() {
        match (ch, chars.clone().next()) {
            ('%', None) => {
                return Err(QueryError::location(18_535, "Unmatched '%' at end of format string"));
            }
            ('%', Some(kind)) if !"YmdHMSLjwUVuGbBzZ%".contains(kind) => {
                return Err(QueryError::location(
                    18_536,
                    format!("Invalid format character '%{kind}' in format string"),
                ));
            }
            ('%', Some(_)) => drop(chars.next()),
            _ => {}
        }
    }
    Ok(())
}

/// Formats a date with a checked format.
fn formatted(ms: i64, zone: &Zone, format: &str) -> Result<String, QueryError> {
    use std::fmt::Write;
    let c = zone.civil(ms);
    let offset = zone.offset_at(ms) / 60_000;
    let mut out = String::new();
    let mut chars = format.chars();
    let month =
        usize::try_from(c.month - 1).ok().and_then(|m| MONTHS.get(m)).copied().unwrap_or("");
    while let Some(ch) = chars.next() {
        if ch != '%' {
            out.push(ch);
            continue;
        }
        let written = match chars.next() {
            Some(kind @ ('Y' | 'G')) if !(0..=9999).contains(&year_of(kind, &c)) => {
                return Err(year_out_of_range(year_of(kind, &c)));
            }
            Some('Y') => write!(out, "{:04}", c.year),
            Some('m') => write!(out, "{:02}", c.month),
            Some('d') => write!(out, "{:02}", c.day),
            Some('H') => write!(out, "{:02}", c.hour),
            Some('M') => write!(out, "{:02}", c.minute),
            Some('S') => write!(out, "{:02}", c.second),
            Some('L') => write!(out, "{:03}", c.milli),
            Some('j') => write!(out, "{:03}", c.day_of_year()),
            Some('w') => write!(out, "{}", c.iso_day_of_week() % 7 + 1),
            Some('U') => write!(out, "{:02}", c.week()),
            Some('V') => write!(out, "{:02}", c.iso_week().0),
            Some('u') => write!(out, "{}", c.iso_day_of_week()),
            Some('G') => write!(out, "{:04}", c.iso_week().1),
            Some('b') => write!(out, "{}", month.get(..3).unwrap_or("")),
            Some('B') => write!(out, "{month}"),
            Some('z') => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(out, "{sign}{:02}{:02}", offset.abs() / 60, offset.abs() % 60)
            }
            Some('Z') => write!(out, "{offset}"),
            Some('%') => write!(out, "%"),
            Some(_) | None => Ok(()),
        };
        debug_assert!(written.is_ok(), "writing to a String does not fail");
    }
    Ok(out)
}

/// Parses a date in the forms that `$toDate` and `$dateFromString` accept without a format.
pub(super) fn parse_iso(text: &[u8]) -> Result<i64, QueryError> {
    let shown = String::from_utf8_lossy(text);
    let (local, offset) = read_iso(&shown)
        .ok_or_else(|| QueryError::location(241, format!("Error parsing date string '{shown}'")))?;
    Ok(local - offset.unwrap_or(0))
}

/// Whether the calendar has that day.
pub(super) fn is_day(year: i64, month: i64, day: i64) -> bool {
    (1..=12).contains(&month)
        && day >= 1
        && day <= days_from_civil(year, month + 1, 1) - days_from_civil(year, month, 1)
}

/// The offset of a zone as it stands in a text: an abbreviation in any case, or hours and minutes.
pub(super) fn offset_named(zone: &str) -> Option<i64> {
    let hours = match zone.to_ascii_uppercase().as_str() {
        "Z" | "UTC" | "GMT" => 0,
        "CET" | "BST" => 1,
        "CEST" | "EET" => 2,
        "EDT" => -4,
        "EST" | "CDT" => -5,
        "CST" | "MDT" => -6,
        "MST" | "PDT" => -7,
        "PST" => -8,
        _ => {
            return match Zone::named(zone)? {
                Zone::Fixed(ms) => Some(ms),
                Zone::Rules(_) => None,
            };
        }
    };
    Some(hours * 3_600_000)
}

/// Local milliseconds, and the offset if the text has one.
pub(super) fn read_iso(text: &str) -> Option<(i64, Option<i64>)> {
    let mut rest = text.trim();
    let number = |rest: &mut &str, min: usize, max: usize| -> Option<i64> {
        let len = rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
        if len < min {
            return None;
        }
        let (digits, after) = rest.split_at_checked(len)?;
        *rest = after;
        digits.parse().ok()
    };
    let year = number(&mut rest, 4, 4)?;
    let dashed = rest.strip_prefix('-');
    rest = dashed.unwrap_or(rest);
    let month = number(&mut rest, 1, 2)?;
    let day = match dashed {
        // A month alone begins with its first day.
        Some(_) if rest.is_empty() => 1,
        Some(_) => {
            rest = rest.strip_prefix('-')?;
            number(&mut rest, 1, 2)?
        }
        None => number(&mut rest, 1, 2)?,
    };
    if !is_day(year, month, day) {
        return None;
    }
    let (mut hour, mut minute, mut second, mut milli) = (0, 0, 0, 0);
    if let Some(after) = rest.strip_prefix(['T', 't', ' ']) {
        rest = after;
        hour = number(&mut rest, 1, 2)?;
        rest = rest.strip_prefix(':').unwrap_or(rest);
        minute = number(&mut rest, 2, 2).unwrap_or(0);
        if let Some(after) = rest.strip_prefix(':') {
            rest = after;
            second = number(&mut rest, 1, 2)?;
        }
        if let Some(after) = rest.strip_prefix(['.', ',']) {
            let len = after.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, tail) = after.split_at_checked(len)?;
            milli = format!("{digits:0<3}").get(..3)?.parse().ok()?;
            rest = tail;
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
    }
    let offset = match rest.trim() {
        "" => None,
        zone => Some(offset_named(zone)?),
    };
    let local = Civil { year, month, day, hour, minute, second, milli }.to_local();
    Some((local, offset))
}

pub(super) fn op_ts_second<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match args.first().copied().unwrap_or(Value::Missing) {
        Value::Timestamp(n) => Ok(Value::Int64(i64::try_from(n >> 32).unwrap_or(0))),
        value if value.is_nullish() => Ok(Value::Null),
        other => error(
            5_687_301,
            format!(" Argument to $tsSecond must be a timestamp, but is {}", other.type_name()),
        ),
    }
}

pub(super) fn op_ts_increment<'a>(_: &mut Env<'a>, args: &[Value<'a>]) -> Evaluated<'a> {
    match args.first().copied().unwrap_or(Value::Missing) {
        Value::Timestamp(n) => Ok(Value::Int64(i64::try_from(n & 0xffff_ffff).unwrap_or(0))),
        value if value.is_nullish() => Ok(Value::Null),
        other => error(
            5_687_302,
            format!(" Argument to $tsIncrement must be a timestamp, but is {}", other.type_name()),
        ),
    }
}

//! Moments (points in time) as people write them in an appName and on command lines.
//!
//! ```text
//!   14:03, 14:03:20          the last time the clock showed this, in the time zone of the program that parses the text
//!   yesterday 14:03          that time of the day before; `today` works likewise
//!   2026-11-16 12:00         the state at the beginning of that second; without a time, midnight
//!   12:00Z, 12:00 UTC,       a time in another zone, which is given by its offset or its name
//!   12:00+01:00, 12:00 Europe/Berlin
//!   -15m, -1h30m, now        a duration before now; units are s, m, h and d
//!   Timestamp(1794792414,3)  a position in the oplog; the entry at this position is included
//! ```

use std::time::Duration;

use jiff::{
    civil,
    tz::{AmbiguousOffset, Offset, TimeZone},
};

use crate::Timestamp;

/// A moment as the user wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A fixed timestamp.
    At(Timestamp),
    /// A duration before now.
    Ago(Duration),
}

/// The error for a text that is not a moment. Its message explains how to write one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a moment{why}; write a time (14:03, 'yesterday 14:03', '2026-11-16 12:00'; it is of {zone} \
     unless Z, +01:00 or the name of a zone follows), an offset from now (-15m, -1h30m) or Timestamp(1794792414,3)"
)]
pub struct MomentError {
    text: String,
    why: String,
    zone: String,
}

/// The time zone for displayed times and for times that are given without a zone.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of this machine: `TZ`, else the system's setting, else UTC.
    pub fn system() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// UTC.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone with this name, such as Europe/Berlin.
    pub fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    /// The zone's name, or its offset if it has no name.
    pub fn name(&self) -> String {
        match (self.0.iana_name(), self.0.to_fixed_offset()) {
            (Some(name), _) => name.to_owned(),
            (None, Ok(offset)) => offset.to_string(),
            (None, Err(_)) => "the system's zone".to_owned(),
        }
    }

    /// Formats a timestamp as a time in this zone. [`Moment::read`] can parse the result.
    pub fn shown(&self, ts: Timestamp) -> String {
        let Ok(time) = jiff::Timestamp::from_second(i64::from(ts.secs())) else {
            return ts.to_string();
        };
        match self.0 == TimeZone::UTC {
            true => time.to_string(),
            false => time.display_with_offset(self.0.to_offset(time)).to_string(),
        }
    }
}

impl Moment {
    /// Parses a text. `now` is the current time; a time without a zone is in `zone`.
    pub fn read(text: &str, now: bson::DateTime, zone: &Zone) -> Result<Self, MomentError> {
        let wrong = |why: &str| MomentError {
            text: text.to_owned(),
            why: why.to_owned(),
            zone: zone.name(),
        };
        let trimmed = text.trim();
        if trimmed == "now" {
            return Ok(Self::Ago(Duration::ZERO));
        }
        if let Some(rest) = trimmed.strip_prefix('-') {
            return ago(rest).map(Self::Ago).ok_or_else(|| wrong(" (units are s, m, h and d)"));
        }
        if let Some(rest) = trimmed.strip_prefix("Timestamp(") {
            return position(rest).map(Self::At).ok_or_else(|| wrong(""));
        }
        let time = time(trimmed, now, zone).map_err(|why| wrong(&why))?;
        u32::try_from(time.as_second())
            .map(|secs| Self::At(Timestamp::new(secs, 0)))
            .map_err(|_| wrong(" (it lies outside of the years 1970 to 2106)"))
    }

    /// The timestamp of this moment. `now` is the current time.
    pub fn resolve(self, now: bson::DateTime) -> Timestamp {
        match self {
            Self::At(ts) => ts,
            Self::Ago(ago) => {
                let secs = u64::try_from(now.timestamp_millis() / 1000).unwrap_or(0);
                let then = secs.saturating_sub(ago.as_secs());
                Timestamp::new(u32::try_from(then).unwrap_or(u32::MAX), 0)
            }
        }
    }
}

/// Parses a time of day with an optional day and an optional zone.
fn time(text: &str, now: bson::DateTime, zone: &Zone) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time);
    }
    let (text, zone) = split_zone(text, zone)?;
    let now = jiff::Timestamp::from_millisecond(now.timestamp_millis())
        .map_err(|_| " (the clock of this machine is wrong)".to_owned())?;
    let today = now.to_zoned(zone.0.clone()).date();
    let yesterday = || today.yesterday().map_err(|_| String::new());
    if let Some(time) = clock(text) {
        let then = at(today.to_datetime(time), &zone)?;
        return if then <= now { Ok(then) } else { at(yesterday()?.to_datetime(time), &zone) };
    }
    let (day, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let day = match day {
        "today" => today,
        "yesterday" => yesterday()?,
        _ => {
            let then = text.parse::<civil::DateTime>().map_err(|_| String::new())?;
            return at(then, &zone);
        }
    };
    let time = clock(rest).ok_or(" (after today and yesterday comes a time, such as 14:03)")?;
    at(day.to_datetime(time), &zone)
}

/// Parses `14:03` or `14:03:20`.
fn clock(text: &str) -> Option<civil::Time> {
    let text = text.trim();
    let like_a_clock = |c: char| c.is_ascii_digit() || c == ':' || c == '.';
    // The parser would also accept a complete date and use its time, and would accept 1403 as a time.
    if !text.contains(':') || !text.chars().all(like_a_clock) {
        return None;
    }
    text.parse().ok()
}

/// Converts local time in a zone. Once a year an hour is skipped and once it occurs twice; such times are refused.
fn at(then: civil::DateTime, zone: &Zone) -> Result<jiff::Timestamp, String> {
    let ambiguous = zone.0.to_ambiguous_timestamp(then);
    let name = zone.name();
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => {
            ambiguous.unambiguous().map_err(|_| " (there is no such time)".to_owned())
        }
        AmbiguousOffset::Gap { .. } => {
            Err(format!(" (the clocks of {name} were put forward and skipped it)"))
        }
        AmbiguousOffset::Fold { before, after } => Err(format!(
            " (the clocks of {name} were put back and struck it twice: add {before} for the first time or {after} for \
             the second)"
        )),
    }
}

/// Splits off the zone at the end of a time. Returns `zone` if there is none.
fn split_zone<'a>(text: &'a str, zone: &Zone) -> Result<(&'a str, Zone), String> {
    if let Some((rest, last)) = text.rsplit_once(char::is_whitespace)
        && last.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        let named = match last {
            "Z" | "z" => Some(Zone::utc()),
            _ => Zone::named(last),
        };
        return match named {
            Some(zone) => Ok((rest.trim_end(), zone)),
            None => Err(format!(" (there is no zone {last}; name it like UTC or Europe/Berlin)")),
        };
    }
    let after_hour = text.find(':').map_or(text.len(), |colon| colon + 1);
    if let Some(rest) = text.strip_suffix(['Z', 'z']).filter(|rest| rest.len() >= after_hour) {
        return Ok((rest, Zone::utc()));
    }
    let sign = text.get(after_hour..).and_then(|tail| tail.find(['+', '-']));
    match sign.and_then(|sign| text.split_at_checked(after_hour + sign)) {
        None => Ok((text, zone.clone())),
        Some((rest, offset)) => {
            let offset = offset_of(offset).ok_or(" (an offset is like +01:00)")?;
            Ok((rest.trim_end(), Zone(TimeZone::fixed(offset))))
        }
    }
}

/// Parses `+01:00`, `-0330` or `+1`.
fn offset_of(text: &str) -> Option<Offset> {
    let (sign, digits) = text.split_at_checked(1)?;
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let secs = hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?;
    Offset::from_seconds(if sign == "-" { -secs } else { secs }).ok()
}

/// Parses a duration such as `1h30m`, without its sign.
fn ago(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut secs = 0u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        let mut tail = tail.chars();
        let unit = match tail.next()? {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return None,
        };
        secs = secs.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = tail.as_str();
    }
    (!text.is_empty()).then(|| Duration::from_secs(secs))
}

/// Parses the rest of a timestamp, such as `1794792414,3)`.
fn position(text: &str) -> Option<Timestamp> {
    let (secs, inc) = text.strip_suffix(')')?.split_once(',')?;
    Some(Timestamp::new(secs.trim().parse().ok()?, inc.trim().parse().ok()?))
}

/// Formats a timestamp as a time in UTC.
pub fn shown(ts: Timestamp) -> String {
    Zone::utc().shown(ts)
}

#[cfg(test)]
mod tests;

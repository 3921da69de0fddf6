//! Points in time as users write them, in an appName and on command lines.
//!
//! ```text
//!   2026-11-16T12:00:00Z     the state at that time; any UTC offset is accepted, a missing one is not
//!   -15m, -1h30m, now        this long before now
//!   Timestamp(1794792414,3)  a position in the oplog; the entry at that position is included
//! ```

use std::{str::FromStr, time::Duration};

use crate::Timestamp;

/// A point in time as written by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// An absolute position.
    At(Timestamp),
    /// This long before now.
    Ago(Duration),
}

/// A text is not a point in time. The error says how to write one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a moment{why}; write a time with its zone (2026-11-16T12:00:00Z, \
     2026-11-16T13:00:00+01:00), an offset from now (-15m, -1h30m) or Timestamp(1794792414,3)"
)]
pub struct MomentError {
    text: String,
    why: String,
}

impl Moment {
    /// Converts to an oplog position; `now` is the present time.
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

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let wrong = |why: &str| MomentError { text: text.to_owned(), why: why.to_owned() };
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
        match trimmed.parse::<jiff::Timestamp>() {
            Ok(time) => u32::try_from(time.as_second())
                .map(|secs| Self::At(Timestamp::new(secs, 0)))
                .map_err(|_| wrong(" (it lies outside of the years 1970 to 2106)")),
            Err(_) if trimmed.parse::<jiff::civil::DateTime>().is_ok() => {
                Err(wrong(": it names no zone, so add Z or an offset"))
            }
            Err(_) => Err(wrong("")),
        }
    }
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

/// Parses the rest of a timestamp: `1794792414,3)`.
fn position(text: &str) -> Option<Timestamp> {
    let (secs, inc) = text.strip_suffix(')')?.split_once(',')?;
    Some(Timestamp::new(secs.trim().parse().ok()?, inc.trim().parse().ok()?))
}

/// The time of day of a position, in UTC.
pub fn shown(ts: Timestamp) -> String {
    let time = jiff::Timestamp::from_second(i64::from(ts.secs()));
    time.map_or_else(|_| ts.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u32, inc: u32) -> Result<Moment, MomentError> {
        Ok(Moment::At(Timestamp::new(secs, inc)))
    }

    #[test]
    fn reads_times_offsets_and_positions() {
        assert_eq!("2026-11-16T12:00:00Z".parse(), at(1_794_830_400, 0));
        assert_eq!("2026-11-16T13:00:00.9+01:00".parse(), at(1_794_830_400, 0));
        assert_eq!("Timestamp(1794792414,3)".parse(), at(1_794_792_414, 3));
        assert_eq!("Timestamp(1794792414, 3)".parse(), at(1_794_792_414, 3));
        assert_eq!("-15m".parse(), Ok(Moment::Ago(Duration::from_secs(900))));
        assert_eq!("-1h30m".parse(), Ok(Moment::Ago(Duration::from_secs(5400))));
        assert_eq!("now".parse(), Ok(Moment::Ago(Duration::ZERO)));
        let now = bson::DateTime::from_millis(1_794_830_400_999);
        assert_eq!(
            Moment::Ago(Duration::from_secs(60)).resolve(now),
            Timestamp::new(1_794_830_340, 0)
        );
    }

    #[test]
    fn says_what_is_wrong_and_how_to_write_it() {
        for text in [
            "",
            "-",
            "-5",
            "-5x",
            "yesterday",
            "Timestamp(1)",
            "Timestamp(1,2",
            "Timestamp(-1,2)",
            "2026-13-16T12:00:00Z",
            "1900-01-01T00:00:00Z",
            "-99999999999999999999d",
        ] {
            let refused = text.parse::<Moment>().unwrap_err().to_string();
            assert!(refused.contains("write a time with its zone"), "{refused}");
        }
        let refused = "2026-11-16T12:00:00".parse::<Moment>().unwrap_err().to_string();
        assert!(refused.contains("names no zone"), "{refused}");
    }
}

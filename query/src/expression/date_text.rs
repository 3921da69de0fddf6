//! Parses dates from text by a format.

use super::date::{Civil, DAY_MS, days_from_civil, is_day, offset_named};

/// The parts of a day that a text contains.
#[derive(Debug, Default)]
struct Day {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
}

impl Day {
    /// Days since 1970, if the parts determine the day. mongod's library counts the days of a year from 0.
    fn number(&self) -> Option<i64> {
        if let Some(year) = self.iso_year {
            let fourth = days_from_civil(year, 1, 4);
            let monday = fourth - (fourth + 3).rem_euclid(7);
            let (week, day) = (self.iso_week.unwrap_or(1), self.iso_day.unwrap_or(1));
            return Some(monday + (week - 1) * 7 + day - 1);
        }
        let year = self.year?;
        match self.of_year {
            Some(day) => Some(days_from_civil(year, 1, 1) + day),
            None => {
                let (month, day) = (self.month?, self.day?);
                is_day(year, month, day).then(|| days_from_civil(year, month, day))
            }
        }
    }
}

/// The local time in milliseconds, and the zone offset in the text.
pub(super) fn read_by_format(text: &str, format: &str) -> Option<(i64, Option<i64>)> {
    let mut time = Civil { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0, milli: 0 };
    let (mut day, mut offset) = (Day::default(), None);
    let mut rest = text;
    let mut chars = format.chars();
    while let Some(ch) = chars.next() {
        if ch != '%' {
            rest = rest.strip_prefix(ch)?;
            continue;
        }
        match chars.next()? {
            'Y' => day.year = Some(number(&mut rest, 4)?),
            'm' => day.month = Some(number(&mut rest, 2).filter(|n| (1..=12).contains(n))?),
            'd' => day.day = Some(number(&mut rest, 2).filter(|n| (1..=31).contains(n))?),
            'G' => day.iso_year = Some(number(&mut rest, 4)?),
            'V' => day.iso_week = Some(number(&mut rest, 2).filter(|n| (1..=53).contains(n))?),
            'u' => day.iso_day = Some(number(&mut rest, 1).filter(|n| (1..=7).contains(n))?),
            'j' => day.of_year = Some(number(&mut rest, 3)?),
            'H' => time.hour = number(&mut rest, 2).filter(|n| *n < 24)?,
            'M' => time.minute = two_digits(&mut rest).filter(|n| *n < 60)?,
            'S' => time.second = two_digits(&mut rest).filter(|n| *n < 60)?,
            'L' => time.milli = fraction(&mut rest)?,
            'b' | 'B' => {
                let (at, len) = month_name(rest)?;
                day.month = Some(at);
                rest = rest.get(len..)?;
            }
            'z' => {
                let len = rest
                    .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | ':')))
                    .unwrap_or(rest.len());
                let (zone, after) = rest.split_at_checked(len)?;
                // A single digit is an hour.
                let padded = match zone.as_bytes() {
                    [b'+' | b'-', b'0'..=b'9'] => {
                        zone.replace(['+', '-'], &format!("{}0", zone.get(..1)?))
                    }
                    _ => zone.to_owned(),
                };
                offset = Some(offset_named(&padded)?);
                rest = after;
            }
            'Z' => {
                let sign = if rest.starts_with('-') { -1 } else { 1 };
                rest = rest.strip_prefix(['+', '-'])?;
                offset = Some(sign * number(&mut rest, 4)? * 60_000);
            }
            '%' => rest = rest.strip_prefix('%')?,
            _ => return None,
        }
    }
    let day = day.number().filter(|_| rest.is_empty())?;
    Some((day * DAY_MS + time.to_local(), offset))
}

/// Parses at most `max` digits.
fn number(rest: &mut &str, max: usize) -> Option<i64> {
    let len = rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
    let (digits, after) = rest.split_at_checked(len)?;
    *rest = after;
    digits.parse().ok()
}

fn two_digits(rest: &mut &str) -> Option<i64> {
    let before = rest.len();
    number(rest, 2).filter(|_| before - rest.len() == 2)
}

/// The digits after a point, as milliseconds.
fn fraction(rest: &mut &str) -> Option<i64> {
    let before = rest.len();
    let digits = number(rest, 3)?;
    Some(match before - rest.len() {
        1 => digits * 100,
        2 => digits * 10,
        _ => digits,
    })
}

fn month_name(text: &str) -> Option<(i64, usize)> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let lower = text.to_ascii_lowercase();
    (1i64..).zip(NAMES).find_map(|(at, name)| {
        if lower.starts_with(name) {
            return Some((at, name.len()));
        }
        lower.starts_with(name.get(..3)?).then_some((at, 3))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str, format: &str) -> Option<i64> {
        read_by_format(text, format).map(|(ms, _)| ms / DAY_MS)
    }

    #[test]
    fn a_day_is_told_by_month_by_week_or_by_its_place_in_the_year() {
        let new_year = days_from_civil(2021, 1, 1);
        assert_eq!(day("2021-01-01", "%Y-%m-%d"), Some(new_year));
        assert_eq!(day("2020-W53-5", "%G-W%V-%u"), Some(new_year));
        assert_eq!(day("2021-10", "%Y-%j"), Some(new_year + 10));
    }

    #[test]
    fn what_does_not_tell_the_day_is_no_date() {
        assert_eq!(day("2021", "%Y"), None);
        assert_eq!(day("2021-01", "%Y-%m"), None);
        assert_eq!(day("10:15", "%H:%M"), None);
    }
}

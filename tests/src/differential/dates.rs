//! Random date operators: time zones, formats, units, weeks; sometimes an invalid argument.

use bson::{Bson, DateTime, Document, doc};

use super::expressions::Kind;
use super::random::Random;

/// Times around daylight saving changes, year ends and week starts.
const EDGES: [i64; 12] = [
    1_711_846_799_999, // 2024-03-31 00:59:59.999, last millisecond before Berlin's summer time
    1_711_846_800_000, // first millisecond of Berlin's summer time
    1_729_990_800_000, // 2024-10-27 01:00, end of Berlin's summer time
    1_710_054_000_000, // 2024-03-10 07:00, start of New York's summer time
    1_730_613_600_000, // 2024-11-03 06:00, end of New York's summer time
    1_325_239_200_000, // 2011-12-30 10:00, a day that Samoa skipped
    1_704_067_199_999, // last millisecond of 2023
    1_609_459_200_000, // 2021-01-01, in the last ISO week of 2020
    1_582_934_400_000, // 2020-02-29
    -2_208_988_800_000, // 1900-01-01
    -12_219_292_800_000, // 1582-10-15
    1_726_000_000_123,
];

const PARTS: [&str; 13] = [
    "$year",
    "$month",
    "$dayOfMonth",
    "$dayOfWeek",
    "$dayOfYear",
    "$hour",
    "$minute",
    "$second",
    "$millisecond",
    "$week",
    "$isoWeek",
    "$isoWeekYear",
    "$isoDayOfWeek",
];

impl Random {
    /// Usually a date.
    fn dated(&mut self, depth: u32) -> Bson {
        match self.below(10) {
            0..=2 => Bson::DateTime(DateTime::from_millis(self.pick(&EDGES))),
            // A date plus a field of the document, so that it is not a constant.
            3..=5 => Bson::Document(doc! { "$add": [
                DateTime::from_millis(self.pick(&EDGES)),
                { "$convert": { "input": "$a", "to": "int", "onError": 0, "onNull": 3 } },
            ] }),
            6 => self.pick(&[Bson::Null, Bson::String("$missing".into()), Bson::Int32(1)]),
            _ => self.expression_of(Kind::Date, depth),
        }
    }

    /// A unit of time; sometimes an invalid one.
    pub(super) fn unit(&mut self) -> &'static str {
        const UNITS: [&str; 9] =
            ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"];
        if self.chance(2) { self.pick(&["century", "", "Day"]) } else { self.pick(&UNITS) }
    }

    /// A time zone; sometimes an invalid one.
    pub(super) fn zone(&mut self) -> Bson {
        let zone = match self.below(24) {
            0 => self.pick(&["Nowhere/Town", "", "+25:00", "+5", "05:30", "+05:3", "-00:60"]),
            1 => return self.pick(&[Bson::Null, Bson::Int32(1), Bson::String("$missing".into())]),
            _ => self.pick(&[
                "UTC",
                "GMT",
                "Europe/Berlin",
                "America/New_York",
                "America/Los_Angeles",
                "+05:30",
                "-0330",
                "+14:00",
                "-12",
                "Asia/Kathmandu",
                "Australia/Lord_Howe",
                "Pacific/Apia",
                "Africa/Monrovia",
                "Europe/Dublin",
                "EST5EDT",
                "Asia/Tokyo",
            ]),
        };
        Bson::String(zone.to_owned())
    }

    fn day(&mut self) -> &'static str {
        self.pick(&["monday", "Tue", "SUNDAY", "sat", "thursday", "fri", "wednesday", "noday", ""])
    }

    fn with_zone(&mut self, mut spec: Document) -> Document {
        if self.chance(60) {
            spec.insert("timezone", self.zone());
        }
        spec
    }

    fn with_week(&mut self, spec: Document) -> Document {
        let mut spec = self.with_zone(spec);
        if self.chance(40) {
            spec.insert("startOfWeek", self.day());
        }
        spec
    }

    fn amount(&mut self) -> Bson {
        match self.below(12) {
            0 => self.pick(&[
                Bson::Double(1.5),
                Bson::Int64(i64::MAX),
                Bson::Int64(-400_000_000_000),
                Bson::Null,
                Bson::String("$missing".into()),
                Bson::String("$c".into()),
            ]),
            1 | 2 => Bson::String("$a".into()),
            3 => {
                let amount = self.int(-20, 20);
                self.number_of(amount)
            }
            _ => Bson::Int32(self.int(-500, 500)),
        }
    }

    /// An operator that computes a date from dates.
    pub(super) fn date_of_dates(&mut self, depth: u32) -> Document {
        match self.below(5) {
            0 | 1 => {
                let spec = doc! {
                    "startDate": self.dated(depth), "unit": self.unit(), "amount": self.amount(),
                };
                doc! { self.pick(&["$dateAdd", "$dateSubtract"]): self.with_zone(spec) }
            }
            2 | 3 => {
                let mut spec = doc! { "date": self.dated(depth), "unit": self.unit() };
                if self.chance(60) {
                    let size = self.pick(&[1, 2, 3, 7, 20, 100, 0, -1]);
                    spec.insert("binSize", self.number_of(size));
                }
                doc! { "$dateTrunc": self.with_week(spec) }
            }
            _ => self.date_of_parts(),
        }
    }

    fn date_of_parts(&mut self) -> Document {
        let iso = self.chance(40);
        let mut spec = if iso {
            doc! { "isoWeekYear": self.int(1, 3000) }
        } else {
            doc! { "year": self.int(1, 3000) }
        };
        let names: &[&str] = if iso {
            &["isoWeek", "isoDayOfWeek", "hour", "minute", "second", "millisecond"]
        } else {
            &["month", "day", "hour", "minute", "second", "millisecond"]
        };
        for name in names {
            if self.chance(40) {
                let part = match self.below(8) {
                    0 => Bson::Int32(self.int(-40_000, 40_000)),
                    1 => Bson::String("$a".into()),
                    2 => self.number(),
                    _ => Bson::Int32(self.int(-5, 70)),
                };
                spec.insert(*name, part);
            }
        }
        if self.chance(5) {
            spec.insert(self.pick(&["year", "isoWeek", "month"]), 7);
        }
        doc! { "$dateFromParts": self.with_zone(spec) }
    }

    /// An operator that computes a number from dates.
    pub(super) fn number_of_dates(&mut self, depth: u32) -> Document {
        if self.chance(50) {
            let spec = doc! {
                "startDate": self.dated(depth), "endDate": self.dated(depth), "unit": self.unit(),
            };
            return doc! { "$dateDiff": self.with_week(spec) };
        }
        let spec = doc! { "date": self.dated(depth) };
        doc! { self.pick(&PARTS): self.with_zone(spec) }
    }

    /// An operator that formats a date as text.
    pub(super) fn text_of_dates(&mut self, depth: u32) -> Document {
        let mut spec = doc! { "date": self.dated(depth) };
        if self.chance(85) {
            spec.insert(
                "format",
                self.pick(&[
                    "%Y-%m-%d",
                    "%Y-%m-%dT%H:%M:%S.%LZ",
                    "%H:%M:%S.%L %z",
                    "%G-W%V-%u",
                    "%j %U %w",
                    "%b %B %d",
                    "%Z minutes, 100%%",
                    "ä %Y",
                    "",
                    "%",
                    "%Q",
                    "%Y%",
                ]),
            );
        }
        if self.chance(40) {
            spec.insert("onNull", self.pick(&[Bson::Null, "none".into(), "$c".into()]));
        }
        doc! { "$dateToString": self.with_zone(spec) }
    }

    /// An operator that splits a date into a document.
    pub(super) fn parts_of_date(&mut self, depth: u32) -> Document {
        let mut spec = doc! { "date": self.dated(depth) };
        match self.below(6) {
            0 | 1 => drop(spec.insert("iso8601", self.chance(70))),
            2 => drop(spec.insert("iso8601", self.leaf(Kind::Truth))),
            _ => {}
        }
        doc! { "$dateToParts": self.with_zone(spec) }
    }

    /// An operator that parses a date from text, with or without a format.
    pub(super) fn date_of_text(&mut self, depth: u32) -> Document {
        const READABLE: [(&str, &str); 10] = [
            ("2024-03-31T02:30:00", "%Y-%m-%dT%H:%M:%S"),
            ("2024-03-31", "%Y-%m-%d"),
            ("31/03/2024 23:59", "%d/%m/%Y %H:%M"),
            ("2020-W53-5", "%G-W%V-%u"),
            ("2024-03-31T02:30:00.5+0200", "%Y-%m-%dT%H:%M:%S.%L%z"),
            ("2024 366", "%Y %j"),
            ("Mar 5 2024", "%b %d %Y"),
            ("March 05 2024", "%B %d %Y"),
            ("2024-02-30", "%Y-%m-%d"),
            ("10:15", "%H:%M"),
        ];
        let (text, format) = self.pick(&READABLE);
        let text = match self.below(4) {
            0 => self.expression_of(Kind::Text, depth),
            1 => Bson::Document(doc! { "$concat": [text, { "$substrCP": ["$c", 0, 0] }] }),
            _ => Bson::String(text.to_owned()),
        };
        let mut spec = doc! { "dateString": text };
        if self.chance(60) {
            let format = if self.chance(85) { format } else { self.pick(&["%Y", "%Q", "", "%%"]) };
            spec.insert("format", format);
        }
        if self.chance(60) {
            spec.insert("onError", self.pick(&[Bson::Null, "bad".into(), "$d".into()]));
        }
        if self.chance(40) {
            spec.insert("onNull", self.date());
        }
        doc! { "$dateFromString": self.with_zone(spec) }
    }
}

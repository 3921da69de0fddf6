use super::*;

/// 2026-11-18T13:30:00Z, which is 14:30 in Berlin.
const NOW: i64 = 1_795_008_600;

fn read_in(zone: &str, text: &str) -> Result<Moment, MomentError> {
    let now = bson::DateTime::from_millis(NOW * 1000 + 999);
    Moment::read(text, now, &Zone::named(zone).unwrap())
}

fn at(secs: u32, inc: u32) -> Result<Moment, MomentError> {
    Ok(Moment::At(Timestamp::new(secs, inc)))
}

#[test]
fn reads_times_offsets_and_positions() {
    let read = |text| read_in("UTC", text);
    assert_eq!(read("2026-11-16T12:00:00Z"), at(1_794_830_400, 0));
    assert_eq!(read("2026-11-16T13:00:00.9+01:00"), at(1_794_830_400, 0));
    assert_eq!(read("Timestamp(1794792414,3)"), at(1_794_792_414, 3));
    assert_eq!(read("Timestamp(1794792414, 3)"), at(1_794_792_414, 3));
    assert_eq!(read("-15m"), Ok(Moment::Ago(Duration::from_secs(900))));
    assert_eq!(read("-1h30m"), Ok(Moment::Ago(Duration::from_secs(5400))));
    assert_eq!(read("-7d"), Ok(Moment::Ago(Duration::from_secs(604_800))));
    assert_eq!(read("now"), Ok(Moment::Ago(Duration::ZERO)));
    let now = bson::DateTime::from_millis(1_794_830_400_999);
    let minute = Moment::Ago(Duration::from_secs(60));
    assert_eq!(minute.resolve(now), Timestamp::new(1_794_830_340, 0));
}

/// Times without a zone are in Berlin's, an hour ahead of UTC.
#[test]
fn times_without_a_zone_are_local() {
    for (text, utc) in [
        ("14:03", "2026-11-18T13:03:00Z"),
        ("14:03:20", "2026-11-18T13:03:20Z"),
        ("today 14:03", "2026-11-18T13:03:00Z"),
        ("yesterday 14:03", "2026-11-17T13:03:00Z"),
        ("2026-11-18 13:00", "2026-11-18T12:00:00Z"),
        ("2026-11-18T13:00", "2026-11-18T12:00:00Z"),
        ("2026-11-18T13:00:05", "2026-11-18T12:00:05Z"),
        ("2026-11-18", "2026-11-17T23:00:00Z"),
        ("2026-07-01 13:00", "2026-07-01T11:00:00Z"),
        // This time is later than now, so the one of the day before is meant.
        ("23:15", "2026-11-17T22:15:00Z"),
        // Times with a zone.
        ("13:00Z", "2026-11-18T13:00:00Z"),
        ("13:00 UTC", "2026-11-18T13:00:00Z"),
        ("yesterday 13:00 Z", "2026-11-17T13:00:00Z"),
        ("13:00+05:30", "2026-11-18T07:30:00Z"),
        ("yesterday 13:00-0500", "2026-11-17T18:00:00Z"),
        ("2026-11-17 13:00 America/New_York", "2026-11-17T18:00:00Z"),
        ("2026-11-18 13:00-05", "2026-11-18T18:00:00Z"),
    ] {
        let want: jiff::Timestamp = utc.parse().unwrap();
        let want = u32::try_from(want.as_second()).unwrap();
        assert_eq!(read_in("Europe/Berlin", text), at(want, 0), "{text}");
    }
}

#[test]
fn a_time_is_shown_so_that_it_can_be_read_again() {
    let ts = Timestamp::new(1_794_830_400, 0);
    assert_eq!(shown(ts), "2026-11-16T12:00:00Z");
    let berlin = Zone::named("Europe/Berlin").unwrap();
    assert_eq!(berlin.shown(ts), "2026-11-16T13:00:00+01:00");
    assert_eq!(read_in("UTC", &berlin.shown(ts)), Ok(Moment::At(ts)));
    assert_eq!(berlin.name(), "Europe/Berlin");
}

#[test]
fn says_what_is_wrong_and_how_to_write_it() {
    for (text, why) in [
        ("", ""),
        ("-", "units are s, m, h and d"),
        ("-5", "units"),
        ("-5x", "units"),
        ("yesterday", "comes a time"),
        ("yesterday noon", "no zone noon"),
        ("14:03 Mars/Base", "no zone Mars/Base"),
        ("14:03+x", "an offset is like"),
        ("25:00", ""),
        ("1403", ""),
        ("Timestamp(1)", ""),
        ("Timestamp(1,2", ""),
        ("Timestamp(-1,2)", ""),
        ("2026-13-16T12:00:00Z", ""),
        ("1900-01-01T00:00:00Z", "outside of the years"),
        ("-99999999999999999999d", "units"),
        ("2026-03-29 02:30", "skipped it"),
        ("2026-10-25 02:30", "struck it twice: add +02 for the first time or +01"),
    ] {
        let refused = read_in("Europe/Berlin", text).unwrap_err().to_string();
        assert!(refused.contains("write a time (14:03"), "{text}: {refused}");
        assert!(refused.contains("it is of Europe/Berlin"), "{text}: {refused}");
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

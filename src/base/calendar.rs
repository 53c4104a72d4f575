//! Points in time for people to read.

/// Formats `unix_ms`, milliseconds since 1970, as date and time of day in UTC: `2026-11-22T16:00:00Z`.
pub fn utc(unix_ms: i64) -> String {
    let seconds = unix_ms.div_euclid(1_000);
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the first day of the month that follows the month of day `days`, both counted from the first of January
/// 1970.
pub fn next_month(days: i64) -> i64 {
    // No month is longer than 31 days, so a day this far behind the first lies in the next one.
    let (_, _, day) = date(days);
    let later = days - (day - 1) + 31;
    later - (date(later).2 - 1)
}

/// Returns the number of days from the first of January 1970 to a date of the Gregorian calendar. The reverse of
/// [`date`].
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns year, month and day of the Gregorian calendar for a number of days after the first of January 1970.
fn date(days: i64) -> (i64, i64, i64) {
    // If years begin with March, the leap day comes at their end, and the lengths of months follow a line.
    let since = days + 719_468;
    let (era, of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    (era * 400 + year + i64::from(is_next_year), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days_are_named() {
        for (unix_ms, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_700_000_000_999, "2023-11-14T22:13:20Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix_ms), expected);
        }
        utc(i64::MIN);
        utc(i64::MAX);
    }

    #[test]
    fn each_day_follows_the_day_before() {
        let mut before = date(-1_000_000);
        for days in -999_999..1_000_000 {
            let (year, month, day) = date(days);
            let follows = match before {
                (y, 12, 31) => (year, month, day) == (y + 1, 1, 1),
                (y, m, d) => (year, month, day) == (y, m, d + 1) || (d >= 28 && (year, month, day) == (y, m + 1, 1)),
            };
            assert!(follows, "{before:?}, then {:?}", (year, month, day));
            let (next_year, next, first) = date(next_month(days));
            assert_eq!((next_year, next, first), (year + month / 12, month % 12 + 1, 1));
            before = (year, month, day);
        }
    }
}

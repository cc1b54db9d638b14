//! Today as people write it, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 60 * 60;
const DAYS_OF_400_YEARS: u64 = 146_097;

pub(super) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    written(since.as_secs() / DAY)
}

/// Days since 1970-01-01 as year, month and day of the Gregorian calendar. Years are counted from March, so that the day that some
/// of them lack is their last.
fn written(days: u64) -> String {
    const MARCH_OF_YEAR_0: u64 = 719_468;
    let days = days + MARCH_OF_YEAR_0;
    let (cycle, rest) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (rest - rest / 1460 + rest / 36_524 - rest / 146_096) / 365;
    let day_of_year = rest - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", cycle * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        for (days, date) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_778, "2026-11-21"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(written(days), date);
        }
    }
}

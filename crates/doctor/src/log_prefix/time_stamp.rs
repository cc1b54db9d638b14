//! Time stamps of logs, in the forms of journald, syslog, Docker, `date` and loggers.

use super::is_number;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Length of the time at the start of a line, and whether journald or syslog writes times of this form.
pub(super) fn time_length(line: &str) -> Option<(usize, bool)> {
    let day = line.split(' ').next().filter(|word| is_one_of(word.trim_end_matches(','), &DAYS));
    let start = day.map_or(0, |day| day.len() + 1);
    let behind = line.get(start..)?;
    let trimmed = behind.trim_start();
    let start = start + behind.len() - trimmed.len();
    if let Some(length) = stamp_length(trimmed) {
        // Docker's and Kubernetes' times end in Z, and those of programs have a blank before the clock.
        let stamp = &trimmed[..length];
        let is_offset = stamp.contains('T') && !stamp.ends_with('Z') && length > 19;
        let zone = day.map_or(0, |_| zone_length(&trimmed[length..]));
        return Some((start + length + zone, is_offset || day.is_some()));
    }
    if let Some(length) = month_length(trimmed) {
        let rest = &trimmed[length..];
        let zone = day.map_or(0, |_| zone_length(rest));
        let year = rest[zone..].strip_prefix(' ').filter(|rest| {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            digits == 4 && rest[4..].chars().next().is_none_or(|next| !next.is_ascii_alphanumeric())
        });
        return Some((start + length + zone + year.map_or(0, |_| 5), true));
    }
    let seconds = trimmed.split(' ').next().filter(|_| day.is_none())?;
    let (whole, part) = seconds.split_once('.')?;
    let is_unix = whole.len() == 10 && is_number(whole) && part.len() >= 3 && is_number(part);
    is_unix.then_some((start + seconds.len(), true))
}

/// ` UTC`, ` CEST`: three to five capitals.
fn zone_length(rest: &str) -> usize {
    let Some(word) = rest.strip_prefix(' ') else { return 0 };
    let capitals = word.bytes().take_while(u8::is_ascii_uppercase).count();
    let ends = word[capitals..].chars().next().is_none_or(|next| next == ' ');
    if (3..=5).contains(&capitals) && ends { capitals + 1 } else { 0 }
}

/// `Apr 03 12:00:01`, `Apr  3 12:00:01.123456`, `Apr 03 2026 12:00:01`.
fn month_length(line: &str) -> Option<usize> {
    let month = line.get(..3).filter(|month| is_one_of(month, &MONTHS))?;
    let mut rest = &line[month.len()..];
    // Day, and the year where a writer puts it.
    for digits in [1..=2, 4..=4] {
        let word = rest.strip_prefix(' ')?.trim_start();
        let count = word.bytes().take_while(u8::is_ascii_digit).count();
        let is_whole = word[count..].starts_with(' ') && digits.contains(&count);
        match (is_whole, *digits.end()) {
            (true, _) => rest = &word[count..],
            (false, 2) => return None,
            (false, _) => {}
        }
    }
    let clock = clock_length(rest.strip_prefix(' ')?)?;
    Some(line.len() - rest.len() + 1 + clock)
}

/// `2026-04-03T12:00:01.123456+02:00`, `2026-04-03 12:00:01,123`, `2026/04/03 12:00:01`.
pub(super) fn stamp_length(line: &str) -> Option<usize> {
    const DATE: usize = 10;
    let (date, rest) = line.split_at_checked(DATE)?;
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => matches!(byte, b'-' | b'/'),
        _ => byte.is_ascii_digit(),
    });
    let clock = clock_length(rest.strip_prefix(['T', ' '])?).filter(|_| is_date)?;
    let zone = rest.get(1 + clock..)?;
    let offset = zone.strip_prefix(['+', '-']).map_or(0, |offset| {
        1 + offset.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b':').take(5).count()
    });
    let zulu = usize::from(zone.starts_with('Z'));
    // `+0200:` is an offset and the next mark.
    let colon = usize::from(line[..DATE + 1 + clock + offset].ends_with(':'));
    Some(DATE + 1 + clock + offset + zulu - colon)
}

/// `12:00:01`, with a part of a second.
fn clock_length(text: &str) -> Option<usize> {
    let (clock, rest) = text.split_at_checked(8)?;
    let is_clock = clock.bytes().enumerate().all(|(at, byte)| match at {
        2 | 5 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    let digits =
        rest.strip_prefix(['.', ',']).map_or(0, |part| part.bytes().take_while(u8::is_ascii_digit).count());
    is_clock.then_some(8 + if digits > 0 { digits + 1 } else { 0 })
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_measured_with_their_zone_and_nothing_behind_it() {
        for (stamp, is_journal) in [
            ("Apr 03 12:00:01", true),
            ("Apr 03 2026 12:00:01", true),
            ("Fri Apr  3 12:00:01 CEST 2026", true),
            ("Fri, 2026-04-03 12:00:01 UTC", true),
            ("2026-04-03T12:00:01.123+02:00", true),
            ("2026-04-03T12:00:01Z", false),
            ("2026/04/03 12:00:01,123", false),
            ("1775210401.123456", true),
        ] {
            assert_eq!(time_length(&format!("{stamp} x: y")), Some((stamp.len(), is_journal)), "{stamp}");
            assert_eq!(time_length(stamp), Some((stamp.len(), is_journal)), "{stamp}");
        }
        assert_eq!(stamp_length("2026-04-03T12:00:01+0200: x"), Some(24));
        for other in
            ["", "Fri", "Apr 12:00:01", "Apr 123 12:00:01", "2026-04-03", "12:00:01", "3.14159", "Apr 03 é"]
        {
            assert_eq!(time_length(other), None, "{other}");
        }
    }
}

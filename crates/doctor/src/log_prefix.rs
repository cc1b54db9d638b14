//! Log prefixes: the time, host and unit that journald, syslog, Docker, Kubernetes, the kernel or a logger puts before
//! a line.
//!
//! They say when and where a line was written, and nothing of its cause.

/// A prefix may stand within another: a container's line in the journal.
const NESTED: usize = 4;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// A level stands where syslog has the host.
const LEVELS: [&str; 9] =
    ["TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"];

/// The line as its program printed it. `bench/likeness/train.py: without_prefix` is the same.
pub(super) fn without_prefix(line: &str) -> &str {
    let mut rest = line;
    for _ in 0..NESTED {
        match behind_prefix(rest.trim_start()) {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    rest
}

/// True for a line that a log's writer has stamped.
pub(super) fn has_prefix(line: &str) -> bool {
    behind_prefix(line.trim_start()).is_some()
}

fn behind_prefix(line: &str) -> Option<&str> {
    of_json(line)
        .or_else(|| of_compose(line))
        .or_else(|| of_syslog(line))
        .or_else(|| of_brackets(line))
        .or_else(|| of_facility(line))
        .or_else(|| of_journal(line))
        .or_else(|| of_time(line))
}

/// Docker's `json-file` driver: `{"log":"TEXT\n","stream":"stderr","time":"…"}`.
fn of_json(line: &str) -> Option<&str> {
    let text = line.strip_prefix("{\"log\":\"")?;
    let (text, _) = text.rsplit_once("\",\"stream\":\"")?;
    Some(text.strip_suffix("\\n").unwrap_or(text))
}

/// `docker compose logs`: `server-1  | TEXT`.
fn of_compose(line: &str) -> Option<&str> {
    let (name, text) = line.split_once(" | ").or_else(|| line.split_once(" |"))?;
    let name = name.trim_end();
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let (_, number) = name.rsplit_once(['-', '_'])?;
    (is_name && is_number(number)).then_some(text)
}

/// `<34>Oct 11 22:14:15 box su: TEXT` of RFC 3164, and `<165>1 TIME HOST APP PROCID MSGID SD TEXT` of RFC 5424.
fn of_syslog(line: &str) -> Option<&str> {
    let (priority, rest) = line.strip_prefix('<')?.split_once('>')?;
    if priority.len() > 3 || !is_number(priority) {
        return None;
    }
    let Some(rest) = rest.strip_prefix("1 ") else {
        return Some(rest);
    };
    let mut words = rest.splitn(6, ' ');
    let (stamp, data) = (words.next()?, words.nth(4)?);
    let is_stamp = stamp == "-" || stamp_length(stamp) == Some(stamp.len());
    // A value of the structured data may have blanks, and ends in a quote.
    let text = match data.strip_prefix('[') {
        Some(data) => data.split_once("\"]").or_else(|| data.split_once(']'))?.1,
        None => data.strip_prefix('-')?,
    };
    is_stamp.then_some(text)
}

/// `[ 1234.567890] TEXT`, `[Fri Apr  3 12:00:01 2026] TEXT`, `[2026-04-03 12:00:01] TEXT`, `[  T123] TEXT`.
fn of_brackets(line: &str) -> Option<&str> {
    let (inside, rest) = line.strip_prefix('[')?.split_once(']')?;
    let inside = inside.trim();
    let is_seconds = inside.split_once('.').is_some_and(|(whole, part)| is_number(whole) && is_number(part));
    let is_thread = inside.strip_prefix(['T', 'C']).is_some_and(is_number);
    let is_time = || of_time(inside).is_some_and(|behind| behind.trim().is_empty());
    if !is_seconds && !is_thread && !is_time() {
        return None;
    }
    // `journalctl -o short-monotonic` has host and unit behind the seconds.
    let journal = behind_unit(rest.trim_start()).filter(|(unit, _)| unit.ends_with(']') || *unit == "kernel");
    Some(journal.filter(|_| is_seconds).map_or(rest, |(_, behind)| behind))
}

/// `kern  :info  : [ 1234.567890] TEXT` of `dmesg -x`.
fn of_facility(line: &str) -> Option<&str> {
    let (facility, rest) = line.split_once(':')?;
    let (level, rest) = rest.split_once(':')?;
    let is_word = |word: &str| (3..8).contains(&word.trim_end().len()) && is_letters(word.trim_end());
    (is_word(facility) && is_word(level) && rest.starts_with(" [")).then_some(rest)
}

/// A time with host and unit: `Apr 03 12:00:01 box llama-server[312]: TEXT`.
fn of_journal(line: &str) -> Option<&str> {
    let (length, is_journal) = time_length(line)?;
    let rest = line[length..].trim_start();
    is_journal.then(|| behind_unit(rest)).flatten().map(|(_, behind)| behind)
}

/// A time alone, and the stream that Kubernetes puts behind it.
fn of_time(line: &str) -> Option<&str> {
    let rest = line[time_length(line)?.0..].trim_start();
    let streams = ["stdout F ", "stderr F ", "stdout P ", "stderr P "];
    Some(streams.iter().find_map(|stream| rest.strip_prefix(stream)).unwrap_or(rest))
}

/// The unit of `HOST UNIT[PID]: TEXT`, and the text.
fn behind_unit(rest: &str) -> Option<(&str, &str)> {
    let (host, rest) = rest.split_once(' ')?;
    let (unit, text) = rest.split_once(": ").or_else(|| Some((rest.strip_suffix(':')?, "")))?;
    let (name, number) = match unit.strip_suffix(']').and_then(|unit| unit.rsplit_once('[')) {
        Some((name, number)) => (name, Some(number)),
        None => (unit, None),
    };
    let is_of = |word: &str, marks: &[u8]| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || marks.contains(&byte);
        !word.is_empty() && word.len() <= 64 && word.bytes().all(fits)
    };
    let fits = is_of(host, b"-_.")
        && is_of(name, b"-_.@/()+")
        && number.is_none_or(is_number)
        && !LEVELS.contains(&host);
    fits.then_some((unit, text))
}

/// Length of the time at the start of a line, and whether journald or syslog writes times of this form.
fn time_length(line: &str) -> Option<(usize, bool)> {
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
fn stamp_length(line: &str) -> Option<usize> {
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

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_letters(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_prefix_goes_and_the_program_s_line_stays() {
        for prefix in [
            // journalctl: short, short-precise, short-iso (old and new), short-full, short-unix, short-monotonic.
            "Apr 03 12:00:01 box llama-server[312]: ",
            "Apr 03 12:00:01.123456 box (udev-worker)[312]: ",
            "2026-04-03T12:00:01+0200 box llama-server[312]: ",
            "2026-04-03T12:00:01+02:00 box ollama[312]: ",
            "Fri 2026-04-03 12:00:01 CEST box kernel: ",
            "1775210401.123456 box llama-server[312]: ",
            "[ 1234.567890] box kernel: ",
            "[ 1234.567890] box llama-server[1]: ",
            // syslog of RFC 3164 and RFC 5424, and rsyslog's files.
            "<34>Oct 11 22:14:15 mymachine su: ",
            "<165>1 2003-10-11T22:14:15.003Z host.example.com evntslog - ID47 [a@32473 iut=\"3\" x=\"A b\"] ",
            "<165>1 2003-10-11T22:14:15.003Z host app 12 - - ",
            "2026-04-03T12:00:01.123456+02:00 box llama-server[312]: ",
            "Apr  3 12:00:01 box kernel: [  12.345678] ",
            "Apr 03 2026 12:00:01 box app: ",
            // Docker, compose and Kubernetes.
            "2026-04-03T12:00:01.123456789Z ",
            "2026-04-03T12:00:01.123456789Z stderr F ",
            "server-1  | ",
            "server-1  | 2026-04-03 12:00:01,123 ",
            // dmesg, with -T, with -x, with the caller.
            "[ 1234.567890] ",
            "[Fri Apr  3 12:00:01 2026] ",
            "kern  :info  : [ 1234.567890] ",
            "[ 1234.567890][  T123] ",
            // Loggers.
            "[2026-04-03 12:00:01] ",
            "2026/04/03 12:00:01 ",
            "Fri Apr  3 12:00:01 UTC 2026 ",
        ] {
            let line = format!("{prefix}srv  load_model: failed");
            assert_eq!(without_prefix(&line).trim_start(), "srv  load_model: failed", "{prefix}");
            assert!(has_prefix(&line), "{prefix}");
        }
        let json = "{\"log\":\"CUDA error: out of memory\\n\",\"stream\":\"stderr\",\"time\":\"2026-04-03T12:00:01Z\"}";
        assert_eq!(without_prefix(json), "CUDA error: out of memory");
    }

    #[test]
    fn what_a_program_says_is_no_prefix() {
        for line in [
            "",
            "srv  load_model: loading model",
            "ERROR loader: out of memory",
            "| 0  NVIDIA H200  | 00000000:01:00.0 Off |",
            "[TRT] [E] Requested amount of GPU memory",
            "[12/40] Building CUDA object",
            "In April 2026 the card box failed",
            "Apr 3 was fine",
            "2026-04-03",
            "<b>bold</b> text",
            "1.5 GiB were refused: x",
            "é",
            "Error: x: [ 1] y",
        ] {
            assert_eq!(without_prefix(line), line);
            assert!(!has_prefix(line), "{line}");
        }
        // A level and a function are words of the program.
        let line = "2026-04-03T12:00:01.000000Z  INFO text_generation_launcher: out of memory";
        assert_eq!(without_prefix(line), "INFO text_generation_launcher: out of memory");
        let line = "2026-04-03T12:00:01.000000Z srv  load_model: x";
        assert_eq!(without_prefix(line), "srv  load_model: x");
        let line = "Apr 03 12:00:01 ERROR loader: x";
        assert_eq!(without_prefix(line), "ERROR loader: x");
    }

    proptest::proptest! {
        #[test]
        fn no_line_can_hurt(parts in proptest::collection::vec("[ -~é]{0,4}", 0..6), picks in proptest::collection::vec(0_usize..64, 6)) {
            const WORDS: &[&str] = &[
                "Apr 03 ", "12:00:01", "2026-04-03T", "Fri ", " UTC", "[", "]", "<34>", "1 ", " box ", "a[1]: ", "{\"log\":\"", ".123", "+02:00",
            ];
            let line: String = parts.iter().zip(&picks).flat_map(|(part, pick)| [WORDS[pick % WORDS.len()], part.as_str()]).collect();
            let is_end = line.ends_with(without_prefix(&line));
            proptest::prop_assert!(is_end || line.contains("log"));
        }
    }
}

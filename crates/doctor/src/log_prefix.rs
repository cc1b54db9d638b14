//! Log prefixes: the time, host and unit that journald, syslog, Docker, Kubernetes, the kernel or a logger puts before
//! a line.
//!
//! A prefix states when and where a line was written. It says nothing about the cause of a failure.

mod time_stamp;

use self::time_stamp::{stamp_length, time_length};

/// A prefix may stand within another: a container's line in the journal.
const NESTED: usize = 4;
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

/// The unit that wrote a line of a machine's log: `kernel`, `systemd`, `llama-server`.
pub(super) fn unit_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix('<').and_then(|rest| rest.split_once('>')).map_or(line, |(_, rest)| rest);
    let journal = || {
        let (length, is_journal) = time_length(line)?;
        behind_unit(line[length..].trim_start()).filter(|_| is_journal)
    };
    let unit = journal().map(|(unit, _)| unit.split_once('[').map_or(unit, |(name, _)| name));
    // A logger's brackets have a date in numbers, the kernel's have none.
    let is_plain = line.split(']').next().is_some_and(|stamp| !stamp.contains('-'));
    let is_of_kernel = || of_facility(line).is_some() || is_plain && of_brackets(line).is_some();
    unit.or_else(|| Some("kernel").filter(|_| is_of_kernel()))
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

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_letters(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphabetic())
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
            assert_ne!(without_prefix(&line), line, "{prefix}");
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
            assert_eq!(unit_of(line), None, "{line}");
        }
        // A level and a function are words of the program.
        let line = "2026-04-03T12:00:01.000000Z  INFO text_generation_launcher: out of memory";
        assert_eq!(without_prefix(line), "INFO text_generation_launcher: out of memory");
        let line = "2026-04-03T12:00:01.000000Z srv  load_model: x";
        assert_eq!(without_prefix(line), "srv  load_model: x");
        let line = "Apr 03 12:00:01 ERROR loader: x";
        assert_eq!(without_prefix(line), "ERROR loader: x");
    }

    #[test]
    fn the_unit_of_a_line_is_known() {
        for (line, unit) in [
            ("Apr 03 12:00:01 box llama-server[312]: x", Some("llama-server")),
            ("<34>Oct 11 22:14:15 mymachine su: x", Some("su")),
            ("Apr 03 12:00:01 box kernel: [ 1.5] x", Some("kernel")),
            ("[ 1234.567890] x", Some("kernel")),
            ("2026-04-03T12:00:01Z x", None),
            ("[2026-04-03 12:00:01] x", None),
            ("server-1  | x", None),
        ] {
            assert_eq!(unit_of(line), unit, "{line}");
        }
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

//! Recognises the prefix (time, host, unit) that journald, syslog, Docker, Kubernetes, the kernel or a logger
//! puts before a log line.
//!
//! A prefix states when and where a line was written. It says nothing about the cause of a failure.
//! `formats/shapes.tsv` has the forms.

use super::formats::{fits, shapes};

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
    let unit = unit_and_text(line).map(|(unit, _)| unit);
    unit.or_else(|| Some("kernel").filter(|_| fits("kernel", line)))
}

fn behind_prefix(line: &str) -> Option<&str> {
    // Docker's `json-file` driver: `{"log":"TEXT\n","stream":"stderr","time":"…"}`.
    if let Some(text) = line.strip_prefix("{\"log\":\"") {
        let (text, _) = text.rsplit_once("\",\"stream\":\"")?;
        return Some(text.strip_suffix("\\n").unwrap_or(text));
    }
    let other =
        || shapes("prefix").find_map(|shape| shape.find(line)).and_then(|found| line.get(found.end()..));
    unit_and_text(line).map(|(_, text)| text).or_else(other)
}

/// The unit of `TIME HOST UNIT[PID]: TEXT`, and the text.
fn unit_and_text(line: &str) -> Option<(&str, &str)> {
    let found = shapes("unit").find_map(|shape| shape.captures(line))?;
    let (host, unit) = (found.get(1)?, found.get(2)?);
    let text = line.get(found.get(0)?.end()..)?;
    (!LEVELS.contains(&host.as_str())).then_some((unit.as_str(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_prefix_goes_and_the_program_s_line_stays() {
        for prefix in [
            // journalctl: short, short-precise, short-iso (old and new), short-full, short-unix,
            // short-monotonic.
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
    fn program_output_is_not_taken_for_a_log_prefix() {
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

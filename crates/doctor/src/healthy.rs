//! Recognises output that shows no failure, from healthy programs and machines.
//!
//! The text classifier was trained on problem reports and cannot judge such output.
//!
//! DECISION: a person describes a failure in free prose, a program in few fixed words. So text with few
//! grammatical words counts as program output. It shows a failure only if one of its lines has a word for a
//! failure.

use std::collections::BTreeSet;

use super::classifier::words;
use super::facts::{Facts, LineOrigin, LineSource};
use super::formats::{is_word, known_words, rows_in};
use super::log_prefix::{unit_of, without_prefix};
use super::pattern::Pattern;

/// One of so many words of a person's text is a word of grammar, or more are.
const PROSE: usize = 7;
/// Units from which a log is a machine's.
const UNITS: usize = 3;

/// True for a program's output without a word of failure, and for the kernel's log. A user's own words beside
/// a log describe a failure in any case.
pub(super) fn is_healthy(report: &[(LineOrigin, String)]) -> bool {
    // The end that a user or a service manager asks for.
    let is_requested_for = |line: &str| line.contains("15/TERM") || line.contains("SIGTERM");
    let of_failure = |word: String| known_words("failure").iter().any(|(start, _)| word.starts_with(start));
    let mut speaks = lines(report).filter(|line| !is_requested_for(line));
    let mut fails = || speaks.any(|line| words(without_prefix(line)).any(of_failure));
    is_output(report) && (!fails() || units(report).contains("kernel"))
}

/// True for a program's words, of which few are of grammar, and of which nobody tells.
fn is_output(report: &[(LineOrigin, String)]) -> bool {
    !is_reported(report) && has_little_grammar(lines(report))
}

fn is_reported(report: &[(LineOrigin, String)]) -> bool {
    report.iter().any(|(origin, text)| origin.source == LineSource::Context && !text.trim().is_empty())
}

fn has_little_grammar<'a>(lines: impl Iterator<Item = &'a str>) -> bool {
    let (mut all, mut grammar) = (0_usize, 0_usize);
    for word in lines.flat_map(|line| words(without_prefix(line))) {
        all += 1;
        grammar += usize::from(is_word("grammar", &word));
    }
    grammar == 0 || grammar.saturating_mul(PROSE) < all
}

/// True for the log of a machine: the words of all its units are of no single cause.
pub(super) fn is_of_machine(report: &[(LineOrigin, String)]) -> bool {
    units(report).len() >= UNITS
}

/// The units of a text of which most lines name one.
fn units(report: &[(LineOrigin, String)]) -> BTreeSet<&str> {
    let stamped = lines(report).filter_map(unit_of).count();
    let is_log = stamped.saturating_mul(2) > lines(report).count();
    lines(report).filter_map(unit_of).filter(|_| is_log).collect()
}

fn lines(report: &[(LineOrigin, String)]) -> impl Iterator<Item = &str> {
    report.iter().flat_map(|(_, text)| text.lines())
}

/// True for a program's lines that end in an assertion or a refusal without a size, and that nobody
/// describes: their words say what the program is, not why it failed.
pub(super) fn is_bare(facts: &Facts) -> bool {
    let asserts = facts.says(Pattern::Assertion) && !facts.ran_out();
    // A line with a phrase of the tables is a program's, whatever words of grammar it has.
    let is_known =
        |line: &&str| rows_in(without_prefix(line)).iter().any(|row| !row.pattern.only_presence_counts());
    let is_bare = || {
        let of_programs = facts.says(Pattern::BareRefused)
            || has_little_grammar(lines(&facts.report).filter(|line| !is_known(line)));
        facts.is_bare_refusal() && of_programs
    };
    (asserts || is_bare()) && !is_reported(&facts.report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Vec<(LineOrigin, String)> {
        vec![(LineOrigin::default(), text.to_owned())]
    }

    #[test]
    fn output_without_a_failure_is_distinguished_from_a_person_s_words() {
        for text in [
            "Total VRAM 12288 MB, total RAM 32086 MB\nDevice: cuda:0 NVIDIA GeForce RTX 3060\ngot prompt\n",
            "| GPU  Name  Persistence | Bus-Id  Disp | Volatile ECC |\n| 0  NVIDIA GeForce RTX 4090  On | 312MiB / 24564MiB |\n",
            "gpu.service: Main process exited, code=killed, status=15/TERM\n",
            "[ 2.223456] nvidia: module verification failed: signature missing\n[ 2.3] NVRM: loading NVIDIA UNIX Kernel Module\n",
        ] {
            assert!(is_healthy(&report(text)), "{text}");
        }
        let reported = (LineOrigin { source: LineSource::Context, file: None }, "RTX 3060".to_owned());
        let output = report("Total VRAM 12288 MB\n").remove(0);
        assert!(!is_healthy(&[output, reported]));
        for text in [
            "After sleep the server uses the host, and the card is idle.",
            "ERROR: engine core failed\nGPU cache usage 12\n",
            "llama runner process has terminated: exit status 2 error\n",
        ] {
            assert!(!is_healthy(&report(text)), "{text}");
        }
    }

    #[test]
    fn a_machine_s_log_is_of_several_units() {
        let log = |units: &[&str]| {
            units.iter().map(|unit| format!("Apr 03 12:00:01 box {unit}: gpu memory\n")).collect::<String>()
        };
        assert!(is_of_machine(&report(&log(&["kernel", "systemd[1]", "ollama[7]"]))));
        assert!(!is_of_machine(&report(&log(&["kernel", "ollama[7]", "ollama[7]"]))));
        assert!(!is_of_machine(&report("plain\nlines\n")));
    }
}

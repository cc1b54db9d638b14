//! Recognises texts that report no failure: logs of `serve`, documents, source and configuration files.
//!
//! DECISION: the formats and the rules read such texts, but the classifier does not. The classifier compares
//! words. These texts use the words of every cause, because they describe, document or handle all kinds of
//! failures.

use super::document::{evidence_of, lines_where};
use crate::formats::fits;
use crate::source_line::{is_source_line, is_yaml_line};

/// A file with fewer lines is not told from a report with a piece of code.
const FEWEST: usize = 5;
/// Share of the lines with the syntax of a source file from which a text is one: so many of so many.
const SOURCE: (usize, usize) = (2, 3);
/// State of a container or a pod, as `docker inspect` and `kubectl get` print it: no configuration, but what
/// happened.
const STATES: [&str; 3] = ["\"State\":", "containerStatuses", "\nstatus:"];

/// True for a text that the classifier does not judge.
pub(super) fn is_no_report(text: &str) -> bool {
    evidence_lines(text).is_some() || is_own_log(text)
}

/// The numbers of the lines that are evidence, first and last, in a document or a source file; `None` for any
/// other text.
pub(super) fn evidence_lines(text: &str) -> Option<Vec<(u64, u64)>> {
    evidence_of(text, |code| evidence_of_source(code).is_some()).or_else(|| evidence_of_source(text))
}

/// Lines of a source or configuration file that do not have its syntax: a report may quote a program before
/// its error.
fn evidence_of_source(text: &str) -> Option<Vec<(u64, u64)>> {
    if STATES.iter().any(|state| text.contains(state)) {
        return None;
    }
    let kinds = line_kinds(text);
    // Comments alone make no source: people fence a log with the marks of Python's strings.
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    let (source, foreign) = (count(LineKind::Source), count(LineKind::Foreign));
    let is_source = source + foreign >= FEWEST && SOURCE.1 * source >= SOURCE.0 * (source + foreign);
    let is_yaml = is_yaml(text);
    let mut kinds = kinds.iter();
    let fits = |line: &str| {
        let is_foreign = kinds.next() == Some(&LineKind::Foreign);
        is_foreign && !(is_yaml && is_yaml_line(line))
    };
    (is_source || is_yaml).then(|| lines_where(text, fits))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Source,
    /// In a comment or a string of several lines.
    Comment,
    Foreign,
    Blank,
}

fn line_kinds(text: &str) -> Vec<LineKind> {
    let (mut in_comment, mut is_frame) = (false, false);
    let kind_of = |line: &str| {
        let start = line.trim_start();
        let marks = line.matches("\"\"\"").count() + line.matches("\'\'\'").count();
        let opens = start.starts_with("/*");
        let is_comment = in_comment || opens || marks > 0;
        in_comment = match () {
            () if line.contains("*/") => false,
            () => opens || in_comment != (marks % 2 == 1),
        };
        // A traceback quotes the program's lines.
        let is_quoted = std::mem::replace(&mut is_frame, start.starts_with("File \""));
        match () {
            () if start.is_empty() => LineKind::Blank,
            () if is_comment => LineKind::Comment,
            () if !is_quoted && is_source_line(line) => LineKind::Source,
            () => LineKind::Foreign,
        }
    };
    text.lines().map(kind_of).collect()
}

/// Names with values, parents with names below them, and hardly anything else.
fn is_yaml(text: &str) -> bool {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let yaml = lines().filter(|line| is_yaml_line(line)).count();
    let parents = lines().filter(|line| line.trim_end().ends_with(':') && is_yaml_line(line)).count();
    let (indented, all) = (lines().filter(|line| line.starts_with("  ")).count(), lines().count());
    all >= FEWEST && parents >= 2 && 5 * indented >= all && 20 * yaml >= 17 * all
}

/// Most lines are ours; engines and other programs may write between them.
fn is_own_log(text: &str) -> bool {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let (ours, all) =
        lines.fold((0, 0), |(ours, all), line| (ours + usize::from(fits("own", line)), all + 1));
    2_usize.saturating_mul(ours) > all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_our_own_and_documents_are_no_reports() {
        let log = "http://127.0.0.1:8280\n2026-11-23T23:15:49.746Z  INFO ready alpha in 104 ms\n\n2026-11-23T23:15:50.746Z ERROR x\n";
        let json = "{\"level\":\"info\",\"message\":\"ready alpha\",\"time\":\"2026-11-23T23:15:49.746Z\"}\n";
        for text in [
            log,
            json,
            "# Title\ntext\n## A\n## B\nCUDA error: out of memory\n## C\n",
            "# T\n## A\n```\n# x\n```\n## B\n## C",
        ] {
            assert!(is_no_report(text), "{text}");
        }
        for text in [
            "",
            "CUDA error: out of memory",
            "# Expected\n# Current\n## a\n## b\n## c\n",
            "### What happened?\nout of memory\n### Version\n## a\n",
            "2026-11-23T23:15:49.746Z  INFO ours\nggml: failed\nggml: failed\n",
            "2024-01-01T00:00:00.000000Z  INFO text_generation_launcher: out of memory\n",
            "2026-11-23T23:15:49.746é",
        ] {
            assert!(!is_no_report(text), "{text}");
        }
    }

    #[test]
    fn of_source_and_configuration_only_foreign_lines_are_evidence() {
        for text in [
            "use std::fs;\n\n/// Out of memory.\nfn main() {\n    fail(\"CUDA error: out of memory\");\n}\n",
            "[serve]\nname = \"a\"\n# out of memory\nb = true\nc = [1]\n",
            "services:\n  llama:\n    image: x\n    # out of memory\n    command: y\n    volumes:\n    - a\n",
            "{\n  \"a\": 1,\n  \"b\": \"out of memory\",\n  \"c\": 2\n}\n",
        ] {
            assert_eq!(evidence_lines(text), Some(Vec::new()), "{text}");
        }
        let script =
            "def f(x):\n    return g(x)\n\nimport a,\nwith a:\n    x = [1]\nRuntimeError: CUDA error\n";
        assert_eq!(evidence_lines(script), Some(vec![(7, 7)]));
        for text in [
            "It stops:\n'''\nCUDA error: out of memory\n  in function alloc\nx\ny\nz\n'''\nWhy?\n",
            "MemTotal: 1 kB\nMemFree: 1 kB\nCached: 1 kB\nSwapFree: 1 kB\nSlab: 1 kB\n",
            "apiVersion: v1\nkind: Pod\nstatus:\n  containerStatuses:\n    reason: OOMKilled\n",
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    return g(x),\n  File \"b.py\", line 1, in g\n    return x,\nError\n",
        ] {
            assert_eq!(evidence_lines(text), None, "{text}");
        }
    }
}

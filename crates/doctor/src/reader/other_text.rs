//! Texts without a report of a failure: logs of `plimsoll serve`, and documents with chapters.
//!
//! DECISION: formats and rules read them, and the classifier does not. It compares words, and a server that tells of
//! loads, hosts and requests, or a manual that tells of every failure, uses the words of all causes. A manual also names
//! messages in its sentences, so of a document only the lines in its blocks of code are evidence.

/// Chapters of a document in Markdown; a report from an issue has headings of other levels.
const CHAPTERS: usize = 3;
/// Beginning and end of a block of code.
const FENCE: &str = "```";
/// A line's time, as `2026-11-23T23:15:49.746Z`.
const TIME: usize = 24;

/// True for a text that the classifier does not judge.
pub(super) fn is_no_report(text: &str) -> bool {
    is_document(text) || is_own_log(text)
}

/// The numbers of the lines in the blocks of code of a document, first and last; `None` for any other text.
///
/// Lines that `plimsoll doctor` has quoted are left out: they tell of another log.
pub(super) fn code_of_document(text: &str) -> Option<Vec<(u64, u64)>> {
    if !is_document(text) {
        return None;
    }
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        let is_fence = line.trim_start().starts_with(FENCE);
        in_code ^= is_fence;
        if !in_code || is_fence || is_quoted(line) {
            continue;
        }
        match blocks.last_mut().filter(|(_, last)| last + 1 == number) {
            Some((_, last)) => *last = number,
            None => blocks.push((number, number)),
        }
    }
    Some(blocks)
}

/// `    line 117: …`, as evidence is printed.
fn is_quoted(line: &str) -> bool {
    let number = line.trim_start().strip_prefix("line ").and_then(|rest| rest.split_once(": "));
    number.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_document(text: &str) -> bool {
    let (mut titles, mut chapters, mut in_code) = (0, 0, false);
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with(FENCE);
        // `# ` in a block of code is a comment or a shell's prompt.
        titles += usize::from(!in_code && line.starts_with("# "));
        chapters += usize::from(!in_code && line.starts_with("## "));
    }
    text.trim_start().starts_with("# ") && titles == 1 && chapters >= CHAPTERS
}

/// Most lines are ours; engines and other programs may write between them.
fn is_own_log(text: &str) -> bool {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let (ours, all) = lines.fold((0, 0), |(ours, all), line| (ours + usize::from(is_own(line)), all + 1));
    2_usize.saturating_mul(ours) > all
}

fn is_own(line: &str) -> bool {
    if line.starts_with('{') {
        return line.contains("\"level\":\"")
            && line.contains("\"message\":\"")
            && line.contains("\"time\":\"");
    }
    let Some((time, rest)) = line.split_at_checked(TIME) else { return false };
    let is_time = time.bytes().enumerate().all(|(at, byte)| match at {
        10 => byte == b'T',
        4 | 7 => byte == b'-',
        13 | 16 => byte == b':',
        19 => byte == b'.',
        23 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    });
    let level = rest.trim_start().split(' ').next().unwrap_or_default();
    is_time && ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_document_only_code_is_evidence_and_no_line_that_was_quoted() {
        let text = "# Title\nout of memory\n## A\n```console\n$ x\nCUDA error\n    line 117: y\nz\n```\n## B\n## C\n```\nlast";
        assert_eq!(code_of_document(text), Some(vec![(5, 6), (8, 8), (13, 13)]));
        assert_eq!(code_of_document("# Title\n## A\n## B\n## C\n"), Some(Vec::new()));
        assert_eq!(code_of_document("### A\n```\nout of memory\n```\n"), None);
        assert!(!is_quoted("line : x") && !is_quoted("line 7x: y") && is_quoted("line 7: "));
    }

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
}

//! Texts without a report of a failure: logs of `plimsoll serve`, and documents with chapters.
//!
//! DECISION: formats and rules read them as any text, and the classifier does not. It compares words, and a server that
//! tells of loads, hosts and requests, or a manual that tells of every failure, uses the words of all causes.

/// Chapters of a document in Markdown; a report from an issue has headings of other levels.
const CHAPTERS: usize = 3;
/// A line's time, as `2026-11-23T23:15:49.746Z`.
const TIME: usize = 24;

/// True for a text that the classifier does not judge.
pub(super) fn is_no_report(text: &str) -> bool {
    is_document(text) || is_own_log(text)
}

fn is_document(text: &str) -> bool {
    let titles = text.lines().filter(|line| line.starts_with("# ")).count();
    let starts_so = text.trim_start().starts_with("# ");
    starts_so && titles == 1 && text.lines().filter(|line| line.starts_with("## ")).count() >= CHAPTERS
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
    fn logs_of_our_own_and_documents_are_no_reports() {
        let log = "http://127.0.0.1:8280\n2026-11-23T23:15:49.746Z  INFO ready alpha in 104 ms\n\n2026-11-23T23:15:50.746Z ERROR x\n";
        let json = "{\"level\":\"info\",\"message\":\"ready alpha\",\"time\":\"2026-11-23T23:15:49.746Z\"}\n";
        for text in [log, json, "# Title\ntext\n## A\n## B\nCUDA error: out of memory\n## C\n"] {
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

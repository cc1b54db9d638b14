//! Recognises documents (manuals, READMEs, changelogs), as distinct from problem reports in Markdown.
//!
//! DECISION: a document quotes error messages in its prose and shows logs as examples. So only its code
//! blocks count as evidence. In a document that is mostly prose, the code blocks count as examples too. A
//! changelog, a manual page and a program's help text contain no evidence at all. A report from an issue
//! tracker is recognised by its template's headings.

use crate::formats::{fits, has_any, is_word};

/// Beginning and end of a block of code.
const FENCE: &str = "```";
/// Chapters from which a text with a title is a document unless it has a template's headings.
const CHAPTERS: usize = 3;
/// Headings and lines of a text in Markdown.
#[derive(Default)]
struct MarkdownOutline {
    has_title: bool,
    titles: usize,
    chapters: usize,
    headings: Vec<String>,
    /// Lines of sentences and of code, without headings and blank lines.
    prose: usize,
    code: usize,
    bullets: usize,
    /// A row of dashes below the head of a table.
    has_table: bool,
    /// The first line is a version alone.
    is_of_version: bool,
    /// A sentence is in the first person.
    is_reported: bool,
}

impl MarkdownOutline {
    fn of(text: &str) -> Self {
        let mut found = Self::default();
        let (mut in_code, mut starts) = (false, true);
        let mut lines = text.trim_start().lines().peekable();
        while let Some(line) = lines.next() {
            let is_fence = line.trim_start().starts_with(FENCE);
            in_code ^= is_fence;
            if is_fence || line.trim().is_empty() {
                continue;
            }
            if in_code {
                found.code += usize::from(!fits("quoted", line));
                continue;
            }
            let underlined = lines
                .peek()
                .is_some_and(|next| next.starts_with("===") && next.trim().trim_matches('=').is_empty());
            let level = if underlined { 1 } else { line.bytes().take_while(|byte| *byte == b'#').count() };
            // `# ` in a block of code is a comment or a shell's prompt.
            let is_heading = underlined || (1..=6).contains(&level) && line[level..].starts_with(' ');
            if is_heading {
                found.has_title |= starts && level == 1;
                found.titles += usize::from(level == 1);
                found.chapters += usize::from(level == 2);
                found.headings.push(line.trim_start_matches('#').trim().to_lowercase());
            } else if !line.starts_with("===") {
                found.prose += 1;
                found.has_table |= line.starts_with("|--")
                    && line.bytes().all(|byte| matches!(byte, b'|' | b'-' | b':' | b' '));
                found.is_of_version |=
                    found.prose == 1 && found.headings.is_empty() && fits("version", &line.to_lowercase());
                let words = line.split(|c: char| !c.is_alphabetic());
                found.is_reported |= words
                    .into_iter()
                    .any(|word| matches!(word, "I" | "my" | "My" | "we" | "We" | "our" | "me"));
                found.bullets += usize::from(line.trim_start().starts_with(['-', '*']));
            }
            // Pictures, badges and HTML may stand before the title.
            starts &= !is_heading && line.starts_with(['<', '[', '!']);
        }
        found
    }

    fn is_of_template(&self) -> bool {
        self.headings.iter().any(|heading| has_any("template", heading))
    }

    fn is_report(&self) -> bool {
        let is_free = |heading: &String| {
            heading.split(|c: char| !c.is_alphabetic()).any(|word| is_word("heading", word))
        };
        let is_clear = self.has_title && self.chapters >= CHAPTERS;
        self.is_of_template() || !is_clear && self.headings.iter().any(is_free)
    }

    /// Versions with their changes in lists.
    fn is_list_of_changes(&self) -> bool {
        let is_version = |heading: &&String| {
            heading.contains("unreleased") || heading.split(' ').any(|word| fits("version", word))
        };
        let first = self.headings.first();
        let reported = self.headings.iter().take(2).any(|heading| has_any("changes", heading));
        let versioned = self.is_of_version
            || first.filter(is_version).is_some()
            || self.headings.iter().filter(is_version).count() > 1;
        self.bullets >= 2 && (reported || versioned) && 3 * self.bullets >= self.prose
    }

    fn is_document(&self) -> bool {
        // A table below a title is a note, unless it is told by the one who measured.
        let has_parts = self.chapters > 0 || self.has_table && !self.is_reported;
        let is_titled = self.has_title && self.titles == 1 && has_parts;
        (is_titled || self.titles == 0 && self.chapters > 1) && !self.is_report()
    }
}

/// The numbers of the lines that are evidence in a document, first and last; `None` for any other text.
///
/// Lines that `plimsoll doctor` has quoted are left out, for they tell of another log, and so are blocks of
/// help and of source.
pub(super) fn evidence_of(text: &str, is_source: impl Fn(&str) -> bool) -> Option<Vec<(u64, u64)>> {
    if is_manual_page(text) {
        return Some(Vec::new());
    }
    if is_help(text) {
        return Some(lines_where(text, |line| !line.starts_with(['-', ' '])));
    }
    let outline = MarkdownOutline::of(text);
    if outline.is_list_of_changes() && !outline.is_of_template() {
        return Some(Vec::new());
    }
    if !outline.is_document() {
        return None;
    }
    if outline.code < outline.prose {
        return Some(Vec::new());
    }
    let mut in_code = false;
    let blocks = lines_where(text, |line| {
        let is_fence = line.trim_start().starts_with(FENCE);
        in_code ^= is_fence;
        in_code && !is_fence && !fits("quoted", line)
    });
    let speaks = |(first, last): &(u64, u64)| {
        let numbered = (1..).zip(text.lines()).filter(|(number, _)| (*first..=*last).contains(number));
        let block: String = numbered.map(|(_, line)| format!("{line}\n")).collect();
        !is_help(&block) && !is_source(&block)
    };
    Some(blocks.into_iter().filter(speaks).collect())
}

/// The lines that fit, as pairs of the first and the last number.
pub(super) fn lines_where(text: &str, mut fits: impl FnMut(&str) -> bool) -> Vec<(u64, u64)> {
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if !fits(line) {
            continue;
        }
        match blocks.last_mut().filter(|(_, last)| last + 1 == number) {
            Some((_, last)) => *last = number,
            None => blocks.push((number, number)),
        }
    }
    blocks
}

/// A page of `man`, as it is shown or in its source.
fn is_manual_page(text: &str) -> bool {
    let count = |fits: &dyn Fn(&str) -> bool| text.lines().filter(|line| fits(line.trim_end())).count();
    let shown =
        count(&|line| line == "NAME") > 0 && count(&|line| matches!(line, "SYNOPSIS" | "DESCRIPTION")) > 0;
    shown || count(&|line| fits("macro", line)) > 2
}

/// The options that a program lists with `--help`.
fn is_help(text: &str) -> bool {
    const FEWEST: usize = 8;
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let options = lines().filter(|line| fits("option", line)).count();
    options >= FEWEST && 4 * options >= lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Vec<(u64, u64)>> {
        evidence_of(text, |_| false)
    }

    #[test]
    fn of_a_document_only_code_is_evidence_and_no_line_that_was_quoted() {
        let text = "# Title\nout of memory\n## A\n```console\n$ x\nCUDA error\n    line 117: y\nz\n```\n## B\n## C\n```\nlast";
        assert_eq!(of(text), Some(vec![(5, 6), (8, 8), (13, 13)]));
        assert_eq!(of("# Title\n## A\n## B\n## C\n"), Some(Vec::new()));
        assert_eq!(of("### A\n```\nout of memory\n```\n"), None);
        assert!(!fits("quoted", "line : x") && !fits("quoted", "line 7x: y") && fits("quoted", "line 7: "));
    }

    #[test]
    fn manuals_readmes_help_and_lists_of_changes_have_no_evidence() {
        for text in [
            "# Changelog\n## Unreleased\n- CUDA error: out of memory is retried\n- b\n",
            "## What's Changed\n* Fix OOM by @a in https://github.com/a/b/pull/1\n* b by @c\n\n**Full Changelog**: https://x\n",
            "Version 1.2.3 (2026-04-03)\n==========\n- a\n- b\n",
            "## v0.3.1\n- out of memory\n- b\n",
            "v0.9.1\n\nThis release fixes memory.\n\n- CUDA error: out of memory\n- a leak\n",
            "# Trees\n| a | b |\n|---|---|\n| out of memory | c |\n",
            "<p align=\"center\">\n[![x](y)](z)\n# Name\ntext\ntext\n## Install\n```\ncargo install\n```\n",
            "MALLOC(3)   Manual   MALLOC(3)\n\nNAME\n       malloc\n\nSYNOPSIS\n       x\n",
            ".TH MALLOC 3\n.SH NAME\nmalloc\n.SH DESCRIPTION\nout of memory\n",
            "# Memory\nOne.\nTwo.\nThree.\n## A\n```\nCUDA error: out of memory\n```\n## B\n## C\n",
        ] {
            assert_eq!(of(text), Some(Vec::new()), "{text}");
        }
        let help = format!("error: invalid argument: --x\n{}", "  -c, --ctx N  size\n".repeat(8));
        assert_eq!(of(&help.replace("  -c", "-c")), Some(vec![(1, 1)]));
    }

    #[test]
    fn reports_in_markdown_are_no_documents() {
        for text in [
            "",
            "CUDA error: out of memory",
            "# Expected\n# Current\n## a\n## b\n## c\n",
            "### What happened?\nout of memory\n### Version\n## a\n",
            "# The server crashes\ntext\n## Log\n```\nx\n```\n",
            "# Bug\n## Steps to reproduce\n## Expected behavior\n## Environment\n## Logs\n",
            "# R35 (release), REVISION: 4.1\nNvMapMemAllocInternalTagged: 1075072515 error 12\n",
            "# My card\n| run | memory |\n|---|---|\n| 1 | 2 GiB |\nI see that it grows.\n",
            "- one\n- two\n- CUDA error: out of memory\n",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}

//! Writes `llms.txt` (llmstxt.org): the book's pages with one sentence each, for programs that read it.

use std::fs;
use std::io;
use std::path::Path;

pub(super) fn text(root: &Path) -> io::Result<String> {
    let book = root.join("docs");
    let readme = fs::read_to_string(root.join("README.md"))?;
    let mut text = format!("# Plimsoll\n\n> {}\n", opening(&readme));
    let summary = fs::read_to_string(book.join("SUMMARY.md"))?;
    for line in summary.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            let title = if title == "Plimsoll" { "Guide" } else { title };
            text += &format!("\n## {title}\n\n");
        } else if let Some((_, file)) = line.rsplit_once('(') {
            let page = fs::read_to_string(book.join(file.trim_end_matches(')')))?;
            text += &format!("{line}: {}\n", opening(&page));
        }
    }
    Ok(text)
}

/// The first sentence of a page's text, without links.
fn opening(page: &str) -> String {
    let is_text = |line: &&str| line.starts_with(|letter: char| letter.is_alphanumeric() || letter == '`');
    let lines =
        page.lines().filter(|line| !line.starts_with("```")).map(|line| line.trim_start_matches("- "));
    let line = lines.into_iter().find(is_text).unwrap_or_default();
    let sentence = line.find(". ").map_or(line, |end| &line[..=end]).trim_end_matches(':');
    let mut parts = sentence.split("](");
    let mut text = parts.next().unwrap_or_default().replace('[', "");
    for part in parts {
        text += &part.split_once(')').map_or(part, |(_, rest)| rest).replace('[', "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_opens_with_its_first_sentence() {
        assert_eq!(
            opening("# Plan\n\n<!-- test: serve -->\n`plan` sums. It needs no GPU.\n"),
            "`plan` sums."
        );
        assert_eq!(opening("# Run\n\nLines to [copy](a.md), and [more](b.md):\n"), "Lines to copy, and more");
        assert_eq!(opening("# Empty\n"), "");
    }

    #[test]
    fn every_page_of_the_book_is_listed_with_a_sentence() {
        let text = text(&crate::root()).unwrap();
        let summary = fs::read_to_string(crate::root().join("docs/SUMMARY.md")).unwrap();
        for line in summary.lines().filter(|line| line.starts_with("- [")) {
            let listed = text.lines().find_map(|listed| listed.strip_prefix(line)).unwrap_or_default();
            assert!(listed.len() > 10 && listed.starts_with(": "), "{line}{listed}");
        }
    }
}

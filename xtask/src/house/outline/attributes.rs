//! Attributes of Rust items, and those that mark a test.

use std::ops::Range;

use super::super::lexer::TokenKind;
use super::Reader;

impl Reader<'_> {
    /// From the line of the first attribute to the closing brace or the semicolon.
    pub(super) fn test_lines(&self) -> Vec<Range<usize>> {
        self.modules()
            .filter(|&at| self.is_declared_as_test(at))
            .map(|at| {
                let first = self.attributes_before(at).first().map_or(at, |found| found.start);
                let end = self.closing[at + 2];
                self.tokens[first].line..self.tokens[end].line + 1
            })
            .collect()
    }

    pub(super) fn is_declared_as_test(&self, module: usize) -> bool {
        let attributes = self.attributes_before(module);
        attributes.iter().any(|attribute| self.is_test_cfg(attribute))
    }

    /// The attributes of the item whose keyword is at `at`, as ranges of tokens within the brackets, in
    /// order.
    pub(super) fn attributes_before(&self, at: usize) -> Vec<Range<usize>> {
        let mut start = at;
        // Visibility: `pub` or `pub(…)`.
        if start > 0 && self.text(start - 1) == ")" {
            start = self.opening(start - 1).unwrap_or(start);
        }
        if start > 0 && self.text(start - 1) == "pub" {
            start -= 1;
        }
        let mut found = Vec::new();
        while start > 0 && self.text(start - 1) == "]" {
            let Some(open) = self.opening(start - 1) else {
                break;
            };
            if open == 0 || self.text(open - 1) != "#" {
                break;
            }
            found.push(open - 1..start);
            start = open - 1;
        }
        found.reverse();
        found
    }

    fn opening(&self, close: usize) -> Option<usize> {
        (0..close).rev().find(|&open| self.closing[open] == close)
    }

    /// `#[cfg(test)]`, or `test` among other conditions, but not within `not(…)`.
    fn is_test_cfg(&self, attribute: &Range<usize>) -> bool {
        let mut at = attribute.start + 2;
        if self.text(at) != "cfg" {
            return false;
        }
        while at < attribute.end {
            match self.text(at) {
                "not" => at = self.closing[at + 1],
                "test" => return true,
                _ => {}
            }
            at += 1;
        }
        false
    }

    pub(super) fn path_value(&self, attribute: &Range<usize>) -> Option<String> {
        let start = attribute.start + 2;
        let is_path = self.text(start) == "path" && self.text(start + 1) == "=";
        is_path.then(|| self.text(start + 2).trim_matches('"').to_owned())
    }

    /// The number of attributes `#[path(…)]` whose path satisfies `is_meant`.
    pub(super) fn attributes(&self, is_meant: impl Fn(&[&str]) -> bool) -> usize {
        let starts = (0..self.tokens.len()).filter(|&at| self.text(at) == "#" && self.text(at + 1) == "[");
        starts
            .filter(|&at| {
                let words: Vec<&str> = self.tokens[at + 2..]
                    .iter()
                    .take_while(|token| token.kind == TokenKind::Word || token.text == "::")
                    .map(|token| token.text)
                    .collect();
                is_meant(&words)
            })
            .count()
    }
}

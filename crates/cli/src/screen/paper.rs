//! Finds the width and the colours of the terminal, and breaks text lines at that width.
//!
//! Texts always have marks of colours, which the printer removes if the output is no terminal.

use std::fmt::{self, Write};

use clap::builder::styling::AnsiColor;
use plimsoll_report::wrapped;

use crate::terminal::{coloured, columns};

/// Columns without a terminal that states its own.
const PIPE: usize = 80;
/// Narrower than this, words are cut rather than wrapped; wider, lines are hard to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=110;

/// Blanks before the rest of a line that was broken.
const INDENT: usize = 6;

/// Output properties of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper(usize);

impl Paper {
    pub(crate) const PIPE: Self = Self(PIPE);

    /// Returns the terminal behind stdout, or a pipe.
    pub(crate) fn of_stdout() -> Self {
        Self::of(columns())
    }

    fn of(width: Option<u16>) -> Self {
        let width = width.map_or(PIPE, usize::from);
        Self(width.clamp(*WIDTHS.start(), *WIDTHS.end()))
    }

    pub(super) fn width(self) -> usize {
        self.0
    }

    /// Returns a text for stdout, broken into lines that fit the terminal. A pipe gets whole lines.
    pub(crate) fn fitted(text: &str) -> String {
        match columns() {
            Some(columns) => fitted_to(text, usize::from(columns)),
            None => text.to_owned(),
        }
    }

    /// Writes a line, broken at the width; later parts are indented.
    pub(super) fn line(self, text: &str, indent: usize, out: &mut String) -> fmt::Result {
        for line in wrapped(text, self.0, indent) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// Writes a warning: its first word is coloured.
    pub(super) fn warning(self, text: &str, out: &mut String) -> fmt::Result {
        let start = out.len();
        self.line(&format!("warning: {text}"), 9, out)?;
        out.replace_range(start..start + "warning".len(), &coloured("warning", AnsiColor::Yellow));
        Ok(())
    }
}

fn fitted_to(text: &str, columns: usize) -> String {
    let lines = text.lines().flat_map(|line| wrapped(line, columns.max(*WIDTHS.start()), INDENT));
    lines.map(|line| line + "\n").collect()
}

/// The words of a verdict that the user hoped for.
pub(super) fn good(text: &str) -> String {
    coloured(text, AnsiColor::Green)
}

/// The words of a verdict against the user.
pub(super) fn bad(text: &str) -> String {
    coloured(text, AnsiColor::Red)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_terminal_is_too_narrow_or_too_wide_and_colour_is_only_around_words() {
        assert_eq!(
            [None, Some(0), Some(80), Some(u16::MAX)].map(|width| Paper::of(width).width()),
            [80, 40, 80, 110]
        );
        let mut out = "before\n".to_owned();
        Paper::of(Some(40)).warning("one two three four five six seven eight", &mut out).unwrap();
        let (long, short) = ("x".repeat(30), "y".repeat(30));
        assert_eq!(fitted_to(&format!("a\n\n{long} {short}\n"), 40), format!("a\n\n{long}\n      {short}\n"));
        let word = coloured("warning", AnsiColor::Yellow);
        assert_eq!(out, format!("before\n{word}: one two three four five six\n         seven eight\n"));
    }
}

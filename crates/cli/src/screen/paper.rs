//! Width and colours of a terminal, and text lines that fit the width.
//!
//! Texts always have colour codes, which are removed if the output is no terminal.

use std::fmt::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use plimsoll_report::wrapped;
use terminal_size::{Width, terminal_size_of};

/// Columns where no terminal tells its own.
const PIPE: usize = 80;
/// Narrower than this, words are cut rather than wrapped; wider, lines are hard to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=110;

/// What a text is printed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper(usize);

impl Paper {
    pub(crate) const PIPE: Self = Self(PIPE);

    /// The terminal behind stdout, or a pipe.
    pub(crate) fn of_stdout() -> Self {
        Self::of(terminal_size_of(std::io::stdout()).map(|(Width(width), _)| width))
    }

    fn of(width: Option<u16>) -> Self {
        let width = width.map_or(PIPE, usize::from);
        Self(width.clamp(*WIDTHS.start(), *WIDTHS.end()))
    }

    pub(super) fn width(self) -> usize {
        self.0
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
        out.replace_range(start..start + "warning".len(), &styled("warning", AnsiColor::Yellow));
        Ok(())
    }
}

/// The words of a verdict that the user hoped for.
pub(super) fn good(text: &str) -> String {
    styled(text, AnsiColor::Green)
}

/// The words of a verdict against the user.
pub(super) fn bad(text: &str) -> String {
    styled(text, AnsiColor::Red)
}

fn styled(text: &str, colour: AnsiColor) -> String {
    let style: Style = colour.on_default().bold();
    format!("{style}{text}{style:#}")
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
        let plain = anstream::adapter::strip_str(&out).to_string();
        assert_eq!(plain, "before\nwarning: one two three four five six\n         seven eight\n");
        assert!(out.contains("\u{1b}[1m") && bad("no").ends_with("\u{1b}[0m"), "{out:?}");
    }
}

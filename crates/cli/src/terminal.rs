//! Writes all output of the program, with control characters from files, engines and servers shown as visible
//! escapes.
//!
//! DECISION: the door is the writer and not the callers, because a caller that forgets it prints no less.
//! `cargo xtask tidy` refuses other ways to stdout and stderr in this crate. Our colours are marked by
//! characters that Unicode leaves to a program's own use; [`plimsoll_base::one_line`] shows those of foreign
//! text.
//!
//! DECISION: a line feed may be ours or foreign. Words of the command line are known, so those with control
//! characters are shown wherever they stand in a text; [`crate::report`] knows which lines of an error are
//! ours.
//!
//! DECISION: data (JSON, a configuration, an engine's log) is written to a pipe or a file unchanged, because
//! the next program needs the exact bytes. A terminal is no such program, so it gets data through the same
//! door.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anstream::AutoStream;
use anstream::ColorChoice;
use clap::builder::styling::{AnsiColor, Style};
use plimsoll_base::{Order, is_control, one_line};
use terminal_size::{Width, terminal_size_of};

/// Streams that pass bytes on unchanged: output of a program on our stdout and stderr, and data for another
/// plimsoll process.
pub(crate) use std::io::{stderr as unchanged_stderr, stdout as unchanged_stdout};

/// Marks of a colour's beginning in a text, and of its end.
const COLOURS: [(char, AnsiColor); 3] =
    [('\u{fdd0}', AnsiColor::Green), ('\u{fdd1}', AnsiColor::Red), ('\u{fdd2}', AnsiColor::Yellow)];
const END: char = '\u{fdd3}';

/// A text in a bold colour, for a [`Printer`].
pub(crate) fn coloured(text: &str, colour: AnsiColor) -> String {
    let mark = COLOURS.iter().find(|(_, known)| *known == colour);
    mark.map_or_else(|| text.to_owned(), |(mark, _)| format!("{mark}{text}{END}"))
}

/// Writer that shows control characters. Tabs pass, and so do line feeds, except those in words of the
/// command line.
#[derive(Debug)]
pub(crate) struct Printer<W> {
    to: W,
    /// True if the text is this program's own, so that its escape sequences are colours.
    is_ours: bool,
    has_colour: bool,
    /// First bytes of a character whose other bytes have not been written yet.
    begun: Vec<u8>,
}

/// Stdout, for words.
pub(crate) fn stdout() -> Printer<io::StdoutLock<'static>> {
    let stream = io::stdout();
    let has_colour = AutoStream::choice(&stream) != ColorChoice::Never;
    Printer { to: stream.lock(), is_ours: true, has_colour, begun: Vec::new() }
}

/// Stderr, for words.
pub(crate) fn stderr() -> Printer<io::StderrLock<'static>> {
    let stream = io::stderr();
    let has_colour = AutoStream::choice(&stream) != ColorChoice::Never;
    Printer { to: stream.lock(), is_ours: true, has_colour, begun: Vec::new() }
}

/// Stdout, for data.
pub(crate) fn data() -> Box<dyn Write> {
    if stdout_is_terminal() {
        Box::new(Printer { is_ours: false, ..stdout() })
    } else {
        Box::new(io::stdout().lock())
    }
}

pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Columns of the terminal on stdout.
pub(crate) fn columns() -> Option<u16> {
    terminal_size_of(io::stdout()).map(|(Width(width), _)| width)
}

/// Clears the terminal on stdout, before what it shows is printed anew.
pub(crate) fn clear_screen() -> io::Result<()> {
    io::stdout().write_all(b"\x1b[H\x1b[2J")
}

/// Writes a line of progress over the one before, on the terminal on stderr. An empty one clears it.
pub(crate) fn progress(line: &str) -> io::Result<()> {
    // Erased first: a shorter line would leave the tail of the one before.
    write!(io::stderr().lock(), "\r\x1b[K{}", one_line(line))
}

/// Words of the command line with control characters, the longest first, and what is shown for each: whole
/// words, values behind `=`, and names within paths.
fn hostile_words() -> &'static [(String, String)] {
    static WORDS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    WORDS.get_or_init(|| pieces(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())))
}

fn pieces(words: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let mut pieces: Vec<String> = Vec::new();
    for word in words {
        let value = word.split_once('=').map(|(_, value)| value.to_owned());
        pieces.extend(word.split('/').map(str::to_owned).chain(value));
        pieces.push(word);
    }
    // A piece that begins with a line feed could be found across a line break of ours.
    pieces.retain(|piece| piece.contains(is_control) && !piece.starts_with(is_control));
    pieces.order_by_key(|piece| Reverse(piece.len()));
    pieces.dedup();
    pieces
        .into_iter()
        .map(|piece| (one_line(&piece).into_owned(), piece))
        .map(|(shown, piece)| (piece, shown))
        .collect()
}

/// The text with words of the command line in one line each.
pub(crate) fn with_words_shown(text: &str) -> Cow<'_, str> {
    replaced(text, hostile_words())
}

fn replaced<'a>(text: &'a str, words: &[(String, String)]) -> Cow<'a, str> {
    let mut text = Cow::Borrowed(text);
    for (word, shown) in words {
        if text.contains(word.as_str()) {
            text = Cow::Owned(text.replace(word, shown));
        }
    }
    text
}

/// Help or a mistake as clap words it, with its styles. A text that quotes control characters of the command
/// line is shown without styles.
pub(crate) fn of_clap(plain: &str, styled: &impl Display, to_stderr: bool) -> io::Result<()> {
    let foreign = |letter: char| is_control(letter) && letter != '\n';
    let is_foreign = plain.contains(foreign) || hostile_words().iter().any(|(word, _)| plain.contains(word));
    match (is_foreign, to_stderr) {
        (true, true) => stderr().write_all(plain.as_bytes()),
        (true, false) => stdout().write_all(plain.as_bytes()),
        (false, true) => write!(anstream::stderr(), "{styled}"),
        (false, false) => write!(anstream::stdout(), "{styled}"),
    }
}

impl<W: Write> Printer<W> {
    fn shown(&self, text: &str, out: &mut Vec<u8>) -> io::Result<()> {
        let text = if self.is_ours { with_words_shown(text) } else { Cow::Borrowed(text) };
        for letter in text.chars() {
            let colour =
                COLOURS.iter().find(|(mark, _)| self.is_ours && *mark == letter).map(|(_, colour)| colour);
            let style: Option<Style> = colour.map(|colour| colour.on_default().bold());
            match (style, letter) {
                (Some(style), _) if self.has_colour => write!(out, "{style}")?,
                (None, END) if self.is_ours && self.has_colour => write!(out, "{:#}", Style::new().bold())?,
                (Some(_), _) => {}
                (None, END) if self.is_ours => {}
                (None, '\n' | '\t') => write!(out, "{letter}")?,
                (None, letter) if is_control(letter) => write!(out, "{}", letter.escape_default())?,
                (None, letter) => write!(out, "{letter}")?,
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for Printer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut given = std::mem::take(&mut self.begun);
        given.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(given.len());
        let mut rest = &given[..];
        while let Err(error) = str::from_utf8(rest) {
            let (valid, broken) = rest.split_at(error.valid_up_to());
            self.shown(&String::from_utf8_lossy(valid), &mut out)?;
            let Some(length) = error.error_len() else {
                self.begun = broken.to_vec();
                rest = &[];
                break;
            };
            // No character; alone, a byte such as 9b may be an escape (ECMA-48).
            let (bad, behind) = broken.split_at(length);
            bad.iter().try_for_each(|byte| write!(out, "\\x{byte:02x}"))?;
            rest = behind;
        }
        self.shown(&String::from_utf8_lossy(rest), &mut out)?;
        self.to.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(pieces: &[&[u8]], has_colour: bool) -> String {
        let mut printer = Printer { to: Vec::new(), is_ours: true, has_colour, begun: Vec::new() };
        pieces.iter().for_each(|piece| printer.write_all(piece).unwrap());
        String::from_utf8(printer.to).unwrap()
    }

    #[test]
    fn escapes_are_shown_however_they_arrive() {
        let title = b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x7f\r";
        assert_eq!(printed(&[title], true), "\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{1b}[31mred\\u{7f}\\r");
        // C1 as a character, in one piece and in two, and as a byte that is no character.
        assert_eq!(printed(&["\u{9b}2J".as_bytes()], true), "\\u{9b}2J");
        assert_eq!(printed(&[b"\xc2", b"\x9b2J"], true), "\\u{9b}2J");
        assert_eq!(printed(&[b"a\x9b2J\xff\xc3"], true), "a\\x9b2J\\xff");
        assert_eq!(printed(&["a\u{202e}b\u{2028}c".as_bytes()], true), "a\\u{202e}b\\u{2028}c");
        assert_eq!(printed(&["größer\n\tb\n".as_bytes()], false), "größer\n\tb\n");
    }

    #[test]
    fn only_own_colours_are_sent_and_only_to_a_terminal() {
        let text = coloured("fits", AnsiColor::Green);
        let sent = printed(&[text.as_bytes()], true);
        assert!(
            sent.starts_with("\u{1b}[1m") && sent.ends_with("\u{1b}[0m") && sent.contains("fits"),
            "{sent:?}"
        );
        assert_eq!(printed(&[text.as_bytes()], false), "fits");
        let foreign = plimsoll_base::one_line(&text).into_owned();
        assert_eq!(printed(&[foreign.as_bytes()], true), "\\u{fdd0}fits\\u{fdd3}");
    }

    #[test]
    fn words_of_the_command_line_stay_in_their_line_and_other_breaks_stay() {
        let words = ["./d/a\nb.gguf", "--card=x\ny", "plain", "\n", "\nhint: ", "c\td"];
        let words = pieces(words.into_iter().map(str::to_owned));
        for (text, shown) in [
            (
                "cannot read `./d/a\nb.gguf`\nhint: write it\n",
                "cannot read `./d/a\\nb.gguf`\nhint: write it\n",
            ),
            ("d/a\nb.gguf and a\nb.gguf", "d/a\\nb.gguf and a\\nb.gguf"),
            ("x\ny: no card", "x\\ny: no card"),
            ("c\td\nplain\n", "c\\td\nplain\n"),
            ("two\nlines\n", "two\nlines\n"),
        ] {
            assert_eq!(replaced(text, &words), shown);
        }
    }
}

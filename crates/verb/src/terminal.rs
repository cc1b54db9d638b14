//! Writes all output of the program, with control characters from files, engines and servers shown as visible
//! escapes.
//!
//! DECISION: the door is the writer and not the callers, because a caller that forgets it prints no less.
//! `cargo xtask tidy` refuses other ways to stdout and stderr in the command line. Our colours are marked by
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
pub use std::io::{stderr as unchanged_stderr, stdout as unchanged_stdout};

/// Marks of a colour's beginning in a text, and of its end.
const COLOURS: [(char, AnsiColor); 3] =
    [('\u{fdd0}', AnsiColor::Green), ('\u{fdd1}', AnsiColor::Red), ('\u{fdd2}', AnsiColor::Yellow)];
const END: char = '\u{fdd3}';

/// A text in a bold colour, for a [`Printer`].
pub fn coloured(text: &str, colour: AnsiColor) -> String {
    let mark = COLOURS.iter().find(|(_, known)| *known == colour);
    mark.map_or_else(|| text.to_owned(), |(mark, _)| format!("{mark}{text}{END}"))
}

/// Writer that shows control characters. Tabs pass, and so do line feeds, except those in words of the
/// command line.
#[derive(Debug)]
pub struct Printer<W> {
    to: W,
    /// True if the text is this program's own, so that its escape sequences are colours.
    is_ours: bool,
    has_colour: bool,
    /// First bytes of a character whose other bytes have not been written yet.
    begun: Vec<u8>,
}

/// Stdout, for words.
pub fn stdout() -> Printer<io::StdoutLock<'static>> {
    let stream = io::stdout();
    let has_colour = AutoStream::choice(&stream) != ColorChoice::Never;
    Printer::new(stream.lock(), has_colour)
}

/// Stderr, for words.
pub fn stderr() -> Printer<io::StderrLock<'static>> {
    let stream = io::stderr();
    let has_colour = AutoStream::choice(&stream) != ColorChoice::Never;
    Printer::new(stream.lock(), has_colour)
}

/// Stdout, for data.
pub fn data() -> Box<dyn Write> {
    if stdout_is_terminal() {
        Box::new(Printer { is_ours: false, ..stdout() })
    } else {
        Box::new(io::stdout().lock())
    }
}

pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Columns of the terminal on stdout.
pub fn columns() -> Option<u16> {
    terminal_size_of(io::stdout()).map(|(Width(width), _)| width)
}

/// Clears the terminal on stdout, before what it shows is printed anew.
pub fn clear_screen() -> io::Result<()> {
    io::stdout().write_all(b"\x1b[H\x1b[2J")
}

/// Writes a line of progress over the one before, on the terminal on stderr. An empty one clears it.
pub fn progress(line: &str) -> io::Result<()> {
    // Erased first: a shorter line would leave the tail of the one before.
    write!(io::stderr().lock(), "\r\x1b[K{}", one_line(line))
}

/// Words of the command line with control characters, the longest first, and what is shown for each: whole
/// words, values behind `=`, and names within paths.
#[derive(Debug)]
pub struct HostileWords(Vec<(String, String)>);

fn hostile_words() -> &'static HostileWords {
    static WORDS: OnceLock<HostileWords> = OnceLock::new();
    WORDS.get_or_init(|| {
        HostileWords::of(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
    })
}

impl HostileWords {
    /// Those among the words of a command line.
    pub fn of(words: impl Iterator<Item = String>) -> Self {
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
        let shown = |piece: String| (one_line(&piece).into_owned(), piece);
        Self(pieces.into_iter().map(shown).map(|(shown, piece)| (piece, shown)).collect())
    }

    /// The text with each of the words in one line.
    pub fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (word, shown) in &self.0 {
            if text.contains(word.as_str()) {
                text = Cow::Owned(text.replace(word, shown));
            }
        }
        text
    }
}

/// The text with words of the command line in one line each.
pub fn with_words_shown(text: &str) -> Cow<'_, str> {
    hostile_words().shown(text)
}

/// Help or a mistake as clap words it, with its styles. A text that quotes control characters of the command
/// line is shown without styles.
pub fn of_clap(plain: &str, styled: &impl Display, to_stderr: bool) -> io::Result<()> {
    let foreign = |letter: char| is_control(letter) && letter != '\n';
    let is_foreign =
        plain.contains(foreign) || hostile_words().0.iter().any(|(word, _)| plain.contains(word));
    match (is_foreign, to_stderr) {
        (true, true) => stderr().write_all(plain.as_bytes()),
        (true, false) => stdout().write_all(plain.as_bytes()),
        (false, true) => write!(anstream::stderr(), "{styled}"),
        (false, false) => write!(anstream::stdout(), "{styled}"),
    }
}

impl<W> Printer<W> {
    /// A printer of this program's own texts.
    pub fn new(to: W, has_colour: bool) -> Self {
        Self { to, is_ours: true, has_colour, begun: Vec::new() }
    }

    pub fn into_inner(self) -> W {
        self.to
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

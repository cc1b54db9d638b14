//! Format of one log line: cut to a bounded length, without control characters, as text or as JSON.

use std::cell::Cell;
use std::fmt::{self, Write};

use jiff::Timestamp;
use plimsoll_config::LogFormat;
use serde_json::{Map, Value};
use tracing::Level;
use tracing::field::{Field, Visit};

/// Bytes of a message or of one field. A path or an error may quote a client's megabyte.
const LONGEST: usize = 8 << 10;
/// Room for a usual message, so that its pieces do not enlarge its text step by step.
const USUAL: usize = 120;
/// Length of `2026-11-23T04:30:00`.
const SECOND_TEXT: usize = 19;
/// Name of the message among the fields of an event (`tracing_core::field`).
const MESSAGE: &str = "message";

/// Appearance of the lines of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineStyle {
    /// Level and message, for commands that run in the foreground.
    Bare,
    /// The same after the time (RFC 3339).
    Timed,
    /// The same after the priority that journald reads (sd-daemon(3)); it adds the time itself.
    Journal,
    Json,
}

impl From<LogFormat> for LineStyle {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Timed,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Contents of a line: its message, and the fields that only JSON shows.
#[derive(Debug, Default)]
pub(super) struct LineText {
    message: String,
    fields: Option<Map<String, Value>>,
}

impl LineText {
    /// Reads the message of an event, and its other fields if they are shown.
    pub(super) fn of(event: &tracing::Event<'_>, with_fields: bool) -> Self {
        let mut text = Self { message: String::new(), fields: with_fields.then(Map::new) };
        event.record(&mut text);
        text
    }

    pub(super) fn message(message: impl fmt::Display) -> Self {
        Self { message: one_line(format_args!("{message}")), fields: None }
    }

    /// A line of the output of a model's engine.
    pub(super) fn of_engine(style: LineStyle, model: &str, text: &str) -> Self {
        match style {
            LineStyle::Json => {
                let model = Map::from_iter([("model".to_owned(), one_line(format_args!("{model}")).into())]);
                Self { message: one_line(format_args!("{text}")), fields: Some(model) }
            }
            _ => Self::message(format_args!("[{model}] {text}")),
        }
    }

    /// The line in bytes, with its line break; the output of an engine has no level.
    pub(super) fn in_style(&self, style: LineStyle, time: Timestamp, level: Option<Level>) -> Vec<u8> {
        let mut line = String::with_capacity(self.message.len() + 40);
        // Writing to a string does not fail.
        let _ = match style {
            LineStyle::Bare => Ok(()),
            LineStyle::Timed => write_time(&mut line, time),
            LineStyle::Journal => write!(line, "<{}>", priority(level)),
            LineStyle::Json => write!(line, "{}", self.json(time, level)),
        };
        if style != LineStyle::Json {
            line += level.map_or("", label);
            line += &self.message;
        }
        line.push('\n');
        line.into_bytes()
    }

    fn json(&self, time: Timestamp, level: Option<Level>) -> Value {
        let mut object = self.fields.clone().unwrap_or_default();
        object.insert("time".to_owned(), format!("{time:.3}").into());
        object.insert(MESSAGE.to_owned(), self.message.as_str().into());
        if let Some(level) = level {
            object.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
        }
        Value::Object(object)
    }

    fn put(&mut self, field: &Field, value: Value) {
        if let Some(fields) = &mut self.fields {
            fields.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == MESSAGE {
            self.message = one_line(format_args!("{value:?}"));
        } else if self.fields.is_some() {
            self.put(field, one_line(format_args!("{value:?}")).into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// The line that tells of lines that are missing.
pub(super) fn dropped(style: LineStyle, count: u64, why: &str) -> Vec<u8> {
    let text = LineText::message(format_args!("{count} log lines were dropped, because {why}"));
    text.in_style(style, Timestamp::now(), Some(Level::WARN))
}

/// The level, at the same width as the others.
fn label(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR ",
        Level::WARN => " WARN ",
        Level::INFO => " INFO ",
        Level::DEBUG => "DEBUG ",
        Level::TRACE => "TRACE ",
    }
}

/// Severities of syslog(3).
fn priority(level: Option<Level>) -> u8 {
    match level {
        Some(Level::ERROR) => 3,
        Some(Level::WARN) => 4,
        Some(Level::DEBUG | Level::TRACE) => 7,
        _ => 6,
    }
}

/// Writes the time to the millisecond. Lines of one second share its text, because to divide a time into year,
/// month and day costs as much as the rest of a request's line.
fn write_time(line: &mut String, time: Timestamp) -> fmt::Result {
    thread_local! {
        static SECOND: Cell<(i64, [u8; SECOND_TEXT])> = const { Cell::new((i64::MIN, [0; SECOND_TEXT])) };
    }
    let (second, millisecond) =
        (time.as_millisecond().div_euclid(1000), time.as_millisecond().rem_euclid(1000));
    let (kept, text) = SECOND.get();
    if let Ok(text) = str::from_utf8(&text)
        && kept == second
    {
        return write!(line, "{text}.{millisecond:03}Z ");
    }
    let start = line.len();
    write!(line, "{time:.3} ")?;
    // A year of more than four digits has a longer text.
    if let Some(text) =
        line.as_bytes()[start..].first_chunk().filter(|_| line.len() - start == SECOND_TEXT + 6)
    {
        SECOND.set((second, *text));
    }
    Ok(())
}

/// The text without what a terminal or a reader of lines would take for more than text, cut to a bounded length.
fn one_line(text: fmt::Arguments<'_>) -> String {
    let mut line = BoundedText { text: String::with_capacity(USUAL), cut: 0 };
    // Writing to a string does not fail.
    let _ = line.write_fmt(text);
    let BoundedText { text, cut } = line;
    // All bytes, because a loop without an early end is vectorised.
    if cut == 0 && text.bytes().fold(true, |is_plain, byte| is_plain & (b' '..=b'~').contains(&byte)) {
        return text;
    }
    escaped(&text, cut)
}

fn escaped(text: &str, mut cut: usize) -> String {
    let mut line = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        if line.len() >= LONGEST {
            cut += text.len() - at;
            break;
        }
        match is_unsafe(letter) {
            true => line.extend(letter.escape_default()),
            false => line.push(letter),
        }
    }
    if cut > 0 {
        let _ = write!(line, "… ({cut} bytes more)");
    }
    line
}

/// The beginning of a text, and the number of bytes that it lacks.
struct BoundedText {
    text: String,
    cut: usize,
}

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Nothing follows a gap.
        let room = if self.cut == 0 { LONGEST - self.text.len() } else { 0 };
        let kept = if text.len() <= room { text } else { &text[..text.floor_char_boundary(room)] };
        self.text.push_str(kept);
        self.cut += text.len() - kept.len();
        Ok(())
    }
}

/// Control characters, line separators, and marks that turn the direction of text (CVE-2021-42574).
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(style: LineStyle, message: &str) -> String {
        let time = "2026-11-23T04:30:00.1234567Z".parse().unwrap();
        let line = LineText::message(message).in_style(style, time, Some(Level::WARN));
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_line_has_the_form_that_its_reader_expects() {
        assert_eq!(text(LineStyle::Bare, "a b"), " WARN a b\n");
        assert_eq!(text(LineStyle::Timed, "ä"), "2026-11-23T04:30:00.123Z  WARN ä\n");
        for time in ["2026-11-23T04:30:00.9996Z", "2026-11-23T04:30:01Z", "1969-12-31T23:59:59.001Z"] {
            let time: Timestamp = time.parse().unwrap();
            for time in [time, Timestamp::MIN, Timestamp::MAX] {
                let line = LineText::message("").in_style(LineStyle::Timed, time, None);
                assert_eq!(String::from_utf8(line).unwrap(), format!("{time:.3} \n"));
            }
        }
        assert_eq!(text(LineStyle::Journal, "a"), "<4> WARN a\n");
        let json: Value = serde_json::from_str(&text(LineStyle::Json, "a\n\"b\"")).unwrap();
        let expected = serde_json::json!({
            "time": "2026-11-23T04:30:00.123Z", "level": "warn", "message": "a\\n\"b\"",
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn nothing_makes_a_second_line_or_speaks_to_the_terminal() {
        for style in [LineStyle::Bare, LineStyle::Timed, LineStyle::Journal, LineStyle::Json] {
            let hostile = "a\nb\r\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}1m\u{2028}\u{202e}\0\t";
            let engine =
                LineText::of_engine(style, hostile, hostile).in_style(style, Timestamp::UNIX_EPOCH, None);
            for line in [text(style, hostile), String::from_utf8(engine).unwrap()] {
                assert_eq!(line.matches('\n').count(), 1, "{line:?}");
                assert!(!line.trim_end_matches('\n').chars().any(is_unsafe), "{line:?}");
            }
        }
    }

    #[test]
    fn a_megabyte_is_cut_and_its_length_told() {
        for piece in ["x", "\n", "ä"] {
            let line = text(LineStyle::Timed, &piece.repeat(1 << 20));
            assert!(line.len() < LONGEST + 100 && line.contains(" bytes more)"), "{}", line.len());
        }
        let whole = text(LineStyle::Bare, &"x".repeat(LONGEST));
        assert!(!whole.contains("bytes more"));
    }
}

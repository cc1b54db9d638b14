//! Formats one log line as text or JSON: cut to a bounded length, without control characters.

use plimsoll_base::{counted, is_control};
use std::cell::Cell;
use std::fmt::{self, Write};
use std::mem;

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
        match style {
            LineStyle::Json => line += &self.json(time, level).to_string(),
            _ => {
                begin(&mut line, style, time, level);
                line += &self.message;
            }
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

/// Appends the line of an event in a style that shows the message alone, as [`LineText`] has it, and without
/// its copies.
pub(super) fn write_message(
    line: &mut String,
    style: LineStyle,
    time: Timestamp,
    event: &tracing::Event<'_>,
) {
    begin(line, style, time, Some(*event.metadata().level()));
    let start = line.len();
    let mut message = BoundedText { start, text: mem::take(line), cut: 0 };
    event.record(&mut message);
    let BoundedText { text, cut, .. } = message;
    *line = text;
    if cut > 0 || !is_plain(&line[start..]) {
        let escaped = escaped(&line[start..], cut);
        line.truncate(start);
        line.push_str(&escaped);
    }
    line.push('\n');
}

/// Prefix of the message of a text line.
fn begin(line: &mut String, style: LineStyle, time: Timestamp, level: Option<Level>) {
    // Writing to a string does not fail.
    let _ = match style {
        LineStyle::Bare | LineStyle::Json => Ok(()),
        LineStyle::Timed => write_time(line, time),
        LineStyle::Journal => write!(line, "<{}>", priority(level)),
    };
    line.push_str(level.map_or("", label));
}

impl Visit for BoundedText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == MESSAGE {
            let _ = write!(self, "{value:?}");
        }
    }

    // The other fields are shown by JSON alone.
    fn record_str(&mut self, _: &Field, _: &str) {}
    fn record_u64(&mut self, _: &Field, _: u64) {}
    fn record_bool(&mut self, _: &Field, _: bool) {}
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

/// The line that reports lines that are missing.
pub(super) fn dropped(style: LineStyle, count: u64, why: &str) -> Vec<u8> {
    let were = if count == 1 { "was" } else { "were" };
    let lines = counted(count, "log line");
    let text = LineText::message(format_args!("{lines} {were} dropped, because {why}"));
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

/// Writes the time to the millisecond. Lines of one second share its text, because to divide a time into
/// year, month and day costs as much as the rest of a request's line.
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
        let digit =
            |power| u8::try_from(millisecond / power % 10).map_or('0', |digit| char::from(b'0' + digit));
        line.push_str(text);
        line.extend(['.', digit(100), digit(10), digit(1)]);
        line.push_str("Z ");
        return Ok(());
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

/// The text without what a terminal or a reader of lines would take for more than text, cut to a bounded
/// length.
fn one_line(text: fmt::Arguments<'_>) -> String {
    let mut line = BoundedText { start: 0, text: String::with_capacity(USUAL), cut: 0 };
    // Writing to a string does not fail.
    let _ = line.write_fmt(text);
    let BoundedText { text, cut, .. } = line;
    if cut == 0 && is_plain(&text) { text } else { escaped(&text, cut) }
}

fn is_plain(text: &str) -> bool {
    // All bytes, because a loop without an early end is vectorised.
    text.bytes().fold(true, |is_plain, byte| is_plain & (b' '..=b'~').contains(&byte))
}

/// The beginning of the second line of an error that says what to do.
const HINT: &str = "\nhint: ";

fn escaped(text: &str, mut cut: usize) -> String {
    let joined;
    let text = if text.contains(HINT) {
        joined = text.replace(HINT, "; hint: ");
        &joined
    } else {
        text
    };
    let mut line = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        if line.len() >= LONGEST {
            cut += text.len() - at;
            break;
        }
        if is_control(letter) { line.extend(letter.escape_default()) } else { line.push(letter) }
    }
    if cut > 0 {
        let _ = write!(line, "… ({cut} bytes more)");
    }
    line
}

/// The beginning of a text, behind `start`, and the number of bytes that it lacks.
struct BoundedText {
    start: usize,
    text: String,
    cut: usize,
}

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Usual, and inlined: a line has ten pieces.
        if self.cut == 0 && self.text.len() - self.start + text.len() <= LONGEST {
            self.text.push_str(text);
            return Ok(());
        }
        // Nothing follows a gap.
        let room = if self.cut == 0 { LONGEST - (self.text.len() - self.start) } else { 0 };
        let kept = &text[..text.floor_char_boundary(room)];
        self.text.push_str(kept);
        self.cut += text.len() - kept.len();
        Ok(())
    }
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
                assert!(!line.trim_end_matches('\n').chars().any(is_control), "{line:?}");
            }
        }
    }

    #[test]
    fn a_hint_follows_its_error_in_the_same_line() {
        assert_eq!(
            one_line(format_args!("no engine was found\nhint: install one\n")),
            "no engine was found; hint: install one\\n"
        );
    }

    /// Keeps the lines of events as they are written without copies, and as they are with them.
    struct TwoWays(std::sync::Mutex<Vec<[String; 2]>>);

    impl tracing::Subscriber for TwoWays {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn event(&self, event: &tracing::Event<'_>) {
            for style in [LineStyle::Bare, LineStyle::Timed, LineStyle::Journal] {
                let (time, level) = (Timestamp::UNIX_EPOCH, *event.metadata().level());
                let mut line = "before".to_owned();
                write_message(&mut line, style, time, event);
                let copied = LineText::of(event, false).in_style(style, time, Some(level));
                let lines = [line, format!("before{}", String::from_utf8(copied).unwrap())];
                self.0.lock().unwrap().push(lines);
            }
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
            tracing::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
        fn enter(&self, _: &tracing::Id) {}
        fn exit(&self, _: &tracing::Id) {}
    }

    #[test]
    fn a_line_without_copies_is_the_same() {
        let both = std::sync::Arc::new(TwoWays(std::sync::Mutex::default()));
        let messages = ["", "plain", "a\nb\u{1b}[2J\u{202e}", "ä\0"].map(str::to_owned);
        let long = [LONGEST - 1, LONGEST, LONGEST + 1, 1 << 20].map(|length| "x".repeat(length));
        tracing::subscriber::with_default(std::sync::Arc::clone(&both), || {
            for message in messages.iter().chain(&long).chain(&["ä".repeat(LONGEST)]) {
                tracing::info!(model = "m\n", status = 200_u64, complete = true, "{message}");
                tracing::warn!(error = ?message, "{} and {message}", "x\r");
            }
        });
        for [line, copied] in both.0.lock().unwrap().iter() {
            assert_eq!(line, copied);
            assert!(line.len() < LONGEST + 100 && line.matches('\n').count() == 1);
        }
    }

    #[test]
    fn a_megabyte_is_cut_and_its_length_reported() {
        for piece in ["x", "\n", "ä"] {
            let line = text(LineStyle::Timed, &piece.repeat(1 << 20));
            assert!(line.len() < LONGEST + 100 && line.contains(" bytes more)"), "{}", line.len());
        }
        let whole = text(LineStyle::Bare, &"x".repeat(LONGEST));
        assert!(!whole.contains("bytes more"));
    }
}

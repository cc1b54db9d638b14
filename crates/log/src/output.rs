//! Sends the program's log lines to stderr and, for the server, to a file.
//!
//! The calling thread formats a line, and another thread writes it, so a slow reader never delays the
//! program.

use std::cell::Cell;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use jiff::Timestamp;
use plimsoll_config::{LogFormat, LogLevel};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, callsite};
use tracing_subscriber::filter::Targets;

use super::file::LogFile;
use super::line::{LineStyle, LineText, dropped, write_message};
use super::queue::LineQueue;

/// The longest line whose memory the next one of its thread uses again.
const KEPT_LINE: usize = 1 << 10;

thread_local! {
    static LINE: Cell<String> = const { Cell::new(String::new()) };
}

/// The log of this program; clones share it. The default is one without lines.
#[derive(Clone, Debug, Default)]
pub struct LogOutput(Option<Arc<StartedOutput>>);

#[derive(Debug)]
struct StartedOutput {
    stderr: LineQueue,
    file: OnceLock<LogFile>,
    terms: RwLock<LogTerms>,
}

/// Choice of lines and their appearance on stderr, and which of them a configuration may still change.
#[derive(Clone, Debug)]
struct LogTerms {
    targets: Targets,
    style: LineStyle,
    has_level: bool,
    has_format: bool,
}

/// Waits for the last lines, for a limited time, when it is dropped.
#[derive(Debug)]
pub struct FlushLog(LogOutput);

impl Drop for FlushLog {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Settings of the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions {
    /// Level without any choice of the user's.
    pub usual: LogLevel,
    /// Only failures, until a configuration chooses a level: the program reports all else itself.
    pub only_errors: bool,
    pub level: Option<LogLevel>,
    pub format: Option<LogFormat>,
    /// The program is a server, whose lines have a time.
    pub is_server: bool,
}

impl LogOutput {
    /// Sends all events of the program to stderr; `RUST_LOG` selects them if the command line does not.
    pub fn start(options: LogOptions) -> io::Result<(Self, FlushLog)> {
        let of_environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
        let of_environment = of_environment.and_then(|text| Targets::from_str(&text).ok());
        let chosen = options.level.map(targets).or(of_environment);
        let terms = LogTerms {
            has_level: chosen.is_some(),
            has_format: options.format.is_some(),
            targets: chosen
                .unwrap_or_else(|| if options.only_errors { errors() } else { targets(options.usual) }),
            style: if options.is_server { server_style(options.format) } else { LineStyle::Bare },
        };
        let style = terms.style;
        let lost =
            move |count| dropped(style, count, "the program that reads stderr was too slow or has ended");
        let stderr = LineQueue::start("stderr", io::stderr(), lost)?;
        let started = StartedOutput { stderr, file: OnceLock::new(), terms: RwLock::new(terms) };
        let output = Self(Some(Arc::new(started)));
        // Only a test that starts it twice finds another one.
        let _ = tracing::subscriber::set_global_default(output.clone());
        Ok((output.clone(), FlushLog(output)))
    }

    /// Applies settings of a configuration, unless the command line or the environment has others. Returns
    /// the format.
    pub fn configure(&self, level: Option<LogLevel>, format: Option<LogFormat>) -> LogFormat {
        let Some(started) = &self.0 else { return LogFormat::default() };
        let mut terms = started.terms.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = level.filter(|_| !terms.has_level) {
            terms.targets = targets(level);
        }
        if format.is_some() && !terms.has_format {
            terms.style = server_style(format);
        }
        let format = if terms.style == LineStyle::Json { LogFormat::Json } else { LogFormat::Text };
        // Released first: each place that logs asks again whether it is wanted.
        drop(terms);
        callsite::rebuild_interest_cache();
        format
    }

    /// Sends further lines to `file` as well.
    pub fn add_file(&self, file: LogFile) {
        if let Some(started) = &self.0 {
            // The server opens one file.
            let _ = started.file.set(file);
        }
    }

    /// Writes what was logged, within a limited time; later lines are lost.
    pub fn finish(&self) {
        if let Some(started) = &self.0 {
            // First the file, whose thread may report a failure on stderr.
            started.file.get().map(LogFile::finish);
            started.stderr.finish();
        }
    }

    /// Opens the file again, because it may have been moved away.
    pub fn reopen(&self) {
        if let Some(file) = self.0.as_ref().and_then(|started| started.file.get()) {
            file.reopen();
        }
    }
}

impl Subscriber for LogOutput {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.as_ref().is_some_and(|started| {
            let terms = started.terms.read().unwrap_or_else(PoisonError::into_inner);
            terms.targets.would_enable(metadata.target(), metadata.level())
        })
    }

    fn event(&self, event: &Event<'_>) {
        let Some(started) = &self.0 else { return };
        let style = started.terms.read().unwrap_or_else(PoisonError::into_inner).style;
        let (now, level, file) = (Timestamp::now(), Some(*event.metadata().level()), started.file.get());
        if style != LineStyle::Json && file.is_none() {
            let mut line = LINE.take();
            write_message(&mut line, style, now, event);
            started.stderr.push(line.as_bytes());
            line.clear();
            line.shrink_to(KEPT_LINE);
            return LINE.set(line);
        }
        let text = LineText::of(event, style == LineStyle::Json);
        started.stderr.push(&text.in_style(style, now, level));
        if let Some(file) = file {
            file.push(|style| text.in_style(style, now, level));
        }
    }

    // The program has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn errors() -> Targets {
    Targets::new().with_default(tracing::level_filters::LevelFilter::ERROR)
}

/// Other crates' details help only their own developers.
fn targets(level: LogLevel) -> Targets {
    use tracing::level_filters::LevelFilter;
    let targets = Targets::new();
    match level {
        LogLevel::Warn => targets.with_default(LevelFilter::WARN),
        LogLevel::Info => targets.with_default(LevelFilter::INFO),
        LogLevel::Debug => {
            targets.with_default(LevelFilter::INFO).with_target("plimsoll", LevelFilter::DEBUG)
        }
    }
}

fn server_style(format: Option<LogFormat>) -> LineStyle {
    match format {
        Some(LogFormat::Json) => LineStyle::Json,
        _ if is_journal() => LineStyle::Journal,
        _ => LineStyle::Timed,
    }
}

/// True if journald reads stderr: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)). The variable
/// alone passes to children whose stderr is another file.
fn is_journal() -> bool {
    let stream = super::file::of_stderr();
    std::env::var("JOURNAL_STREAM").is_ok_and(|named| stream.is_some_and(|stream| stream == named))
}

//! Writes the results of subcommands to stdout or a file, and their failures to stderr with an exit status.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::{fmt, fs};

use serde::Serialize;
use serde_json::json;

use crate::terminal;

/// Status where the question has no answer yet: too little was seen.
pub const NO_VERDICT: u8 = 3;
/// Status of a program that SIGPIPE ends, as a shell shows it.
const CLOSED_PIPE: u8 = 141;

/// Separator between the words of an error and its remedy.
const HINT: &str = "\nhint: ";
/// Prefix of a further line of an error. A break before anything else is one of foreign text.
const OWN_LINES: [&str; 3] = ["hint: ", "warning: ", "  "];

/// A failure on its way to stderr.
///
/// DECISION: one type for all subcommands, and any error becomes one by `?`. Errors are typed in the
/// libraries, where callers tell them apart; here they are only printed. Bad input is marked at the place
/// that reads it.
#[derive(Debug)]
pub struct ErrorReport {
    error: Box<dyn Error>,
    status: u8,
}

impl<E: Error + 'static> From<E> for ErrorReport {
    fn from(error: E) -> Self {
        let error = Box::new(error);
        Self { error, status: 1 }
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl ErrorReport {
    /// A failure in words.
    pub fn new(text: impl Into<String>) -> Self {
        let error = Box::from(text.into());
        Self { error, status: 1 }
    }

    /// The failure as what it was, if it was that.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// The failure with another exit status.
    pub fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    pub fn status(&self) -> u8 {
        self.status
    }

    /// A fault of the user's input, which ends with status 2.
    pub fn input(error: impl Into<Self>) -> Self {
        error.into().with_status(2)
    }

    /// A failed act on a file: `cannot write` with its path.
    pub fn of_file(act: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(format!("{act} `{}`: {error}", path.display()))
    }

    /// A failed act without an operand, such as the start of a run-time.
    pub fn of(act: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| FailedAct { act, error }.into()
    }

    /// Prints the error and its causes, innermost last, and returns the status to exit with. With `as_json`
    /// stdout gets it too, as a document.
    pub fn print(&self, as_json: bool) -> ExitCode {
        // A reader such as `head` closes the pipe when it has enough; that is no error.
        if self.is_closed_pipe() {
            return ExitCode::from(CLOSED_PIPE);
        }
        let because: Vec<String> = self.because().iter().map(|cause| own_lines(cause)).collect();
        let text = own_lines(&self.to_string());
        if as_json {
            let (text, remedy) = text
                .split_once(HINT)
                .map_or((&*text, None), |(text, remedy)| (text, Some(remedy.replace(HINT, "; "))));
            print_error_as_json(self.status, text, remedy.as_deref(), &because);
        }
        let mut stderr = terminal::stderr();
        let _ = writeln!(stderr, "plimsoll: {text}");
        for cause in because {
            let _ = writeln!(stderr, "  because {cause}");
        }
        ExitCode::from(self.status)
    }

    /// The causes, innermost last.
    fn because(&self) -> Vec<String> {
        let (mut because, mut stated) = (Vec::new(), self.to_string());
        let mut cause = self.error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many errors already print their cause; a repetition would only be noise.
            if !stated.contains(&text) {
                because.push(text.clone());
            }
            stated = text;
            cause = error.source();
        }
        because
    }

    fn is_closed_pipe(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&*self.error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return error.kind() == io::ErrorKind::BrokenPipe;
            }
            cause = error.source();
        }
        false
    }
}

/// An error's text, in which foreign text begins no line.
pub fn own_lines(text: &str) -> String {
    let text = terminal::with_words_shown(text);
    let mut lines = text.split('\n');
    let mut shown = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let is_own = OWN_LINES.iter().any(|begin| line.starts_with(begin));
        shown += if is_own { "\n" } else { "\\n" };
        shown += line;
    }
    shown
}

/// Prints a failure as the one document on stdout.
pub fn print_error_as_json(status: u8, text: &str, remedy: Option<&str>, because: &[String]) {
    let code = match status {
        2 => "bad_input",
        NO_VERDICT => "no_verdict",
        _ => "failed",
    };
    let error = json!({ "error": { "code": code, "text": text, "remedy": remedy, "because": because } });
    // The text on stderr says the same to a reader who has closed stdout.
    let _ = print_data(format!("{error:#}\n"));
}

#[derive(Debug, thiserror::Error)]
#[error("{act}: {error}")]
struct FailedAct {
    act: &'static str,
    #[source]
    error: io::Error,
}

/// Writes words to stdout.
pub fn print(text: impl AsRef<str>) -> Result<(), ErrorReport> {
    let written = terminal::stdout().write_all(text.as_ref().as_bytes());
    written.map_err(ErrorReport::of("cannot write to stdout"))
}

/// Writes data to stdout, which another program or a file gets as it is.
pub fn print_data(data: impl AsRef<[u8]>) -> Result<(), ErrorReport> {
    let mut stdout = terminal::data();
    let written = stdout.write_all(data.as_ref()).and_then(|()| stdout.flush());
    written.map_err(ErrorReport::of("cannot write to stdout"))
}

/// Writes a document to stdout: as JSON, or in words.
pub fn print_as(
    json: Option<&Path>,
    document: &impl Serialize,
    words: impl FnOnce() -> String,
) -> Result<(), ErrorReport> {
    let Some(path) = json else {
        return print(words());
    };
    let document = serde_json::to_string_pretty(document)? + "\n";
    // Only the document on stdout, so that it can be piped into another program.
    if path == Path::new("-") {
        return print_data(document);
    }
    // The file first: a closed stdout must not cost the result of hours.
    write_file(path, document)?;
    print(words())
}

/// Writes a file.
pub fn write_file(path: &Path, text: impl AsRef<[u8]>) -> Result<(), ErrorReport> {
    fs::write(path, text).map_err(ErrorReport::of_file("cannot write", path))
}

/// Success where the answer is good, failure where it is not.
pub fn status(is_good: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_good))
}

//! Error reports of failed subcommands: lines on stderr and an exit status.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Status where the question has no answer yet: too little was seen.
pub(crate) const NO_VERDICT: u8 = 3;
/// Status of a program that SIGPIPE ends, as a shell shows it.
const CLOSED_PIPE: u8 = 141;

/// Exit status of a failed subcommand.
pub(crate) trait ExitStatus: Error {
    /// Returns true where the user's input is at fault.
    fn is_input(&self) -> bool {
        false
    }

    /// Returns the status to exit with: 2 for bad input, 1 for any other failure.
    fn status(&self) -> u8 {
        if self.is_input() { 2 } else { 1 }
    }
}

/// An error that is to be printed on stderr.
#[derive(Debug)]
pub(crate) struct ErrorReport {
    error: Box<dyn Error>,
    status: u8,
}

impl<E: ExitStatus + 'static> From<E> for ErrorReport {
    fn from(error: E) -> Self {
        let status = error.status();
        Self {
            error: Box::new(error),
            status,
        }
    }
}

impl ErrorReport {
    /// Prints the error and its causes, innermost last, and returns the status to exit with.
    pub(crate) fn print(&self) -> ExitCode {
        // A reader such as `head` closes the pipe when it has enough; that is no error.
        if self.is_closed_pipe() {
            return ExitCode::from(CLOSED_PIPE);
        }
        let mut stderr = anstream::stderr().lock();
        let _ = writeln!(stderr, "plimsoll: {}", self.error);
        let mut said = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many errors already print their cause; a repetition would only be noise.
            if !said.contains(&text) {
                let _ = writeln!(stderr, "  because {text}");
            }
            said = text;
            cause = error.source();
        }
        // The status comes from the outermost error: it knows whether the input or the machine is at fault.
        ExitCode::from(self.status)
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

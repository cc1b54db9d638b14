//! The edge: how a failed command speaks to the person who typed it.
//!
//! Libraries return typed errors that carry operand and remedy; here they become lines on stderr and an exit
//! status. 2 is bad input, 1 is everything else, as in `plimsoll plan`.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// The status of a program that SIGPIPE ends, as a shell shows it.
const CLOSED_PIPE: u8 = 141;

/// A failure on its way to stderr.
#[derive(Debug)]
pub(crate) struct Report {
    error: Box<dyn Error>,
    status: u8,
}

impl Report {
    /// What the user asked for could not be done.
    pub(crate) fn failure(error: impl Error + 'static) -> Self {
        Self {
            error: Box::new(error),
            status: 1,
        }
    }

    /// What the user asked for makes no sense as it is written.
    pub(crate) fn input(error: impl Error + 'static) -> Self {
        Self {
            error: Box::new(error),
            status: 2,
        }
    }

    /// A failure with a status of its own.
    pub(crate) fn with_status(error: impl Error + 'static, status: u8) -> Self {
        Self {
            error: Box::new(error),
            status,
        }
    }

    /// Prints the error and what caused it, innermost last, and returns the status to exit with.
    pub(crate) fn print(&self) -> ExitCode {
        // Whoever stopped reading has what they wanted: `plimsoll plan | head`.
        if self.is_closed_pipe() {
            return ExitCode::from(CLOSED_PIPE);
        }
        let mut stderr = anstream::stderr().lock();
        let _ = writeln!(stderr, "plimsoll: {}", self.error);
        let mut said = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many errors already print their cause; saying it twice helps nobody.
            if !said.contains(&text) {
                let _ = writeln!(stderr, "  because {text}");
            }
            said = text;
            cause = error.source();
        }
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

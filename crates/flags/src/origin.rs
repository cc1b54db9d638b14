//! Records where a setting was given (file and line, argument, or variable), for errors and warnings.

use std::fmt;
use std::sync::Arc;

use plimsoll_base::one_line;

/// Place of a setting.
///
/// Settings and entries are compared without it, so that a line added at the top of a file changes no model
/// below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlagOrigin {
    /// A line of a file, from 1; 0 is the file as a whole.
    File { name: Arc<str>, line: u32 },
    // Without a number: `plimsoll plan` puts arguments of its own in front of the user's.
    /// The command line.
    CommandLine,
    /// A variable of the environment.
    Environment(Arc<str>),
}

impl FlagOrigin {
    pub fn file(name: &Arc<str>, line: u32) -> Self {
        Self::File { name: Arc::clone(name), line }
    }

    /// The line, if it is one of a file.
    pub fn line(&self) -> Option<u32> {
        match self {
            Self::File { line, .. } => Some(*line),
            Self::CommandLine | Self::Environment(_) => None,
        }
    }
}

impl fmt::Display for FlagOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Line 0 is the file as a whole: an unreadable text has no line.
            Self::File { name, line: 0 } => f.write_str(&one_line(name)),
            Self::File { name, line } => write!(f, "{}:{line}", one_line(name)),
            Self::CommandLine => f.write_str("command line"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}

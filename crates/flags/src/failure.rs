//! Errors in llama-server flags: the place of the flag, the fault and the remedy.

use super::origin::FlagOrigin;

/// Error: a flag cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct FlagError {
    pub origin: FlagOrigin,
    pub problem: FlagProblem,
}

/// Fault of one flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagProblem {
    #[error("unknown flag `{argument}`; {}", meant(*.nearest))]
    FindFlag { argument: String, nearest: Option<&'static str> },
    #[error("{flag} needs a value; write `{flag} VALUE`")]
    TakeValue { flag: &'static str },
    #[error("`{value}` is not a valid value for {flag}; write {expected}")]
    ReadValue { flag: &'static str, value: String, expected: &'static str },
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "`llama-server --help` lists the known flags".to_owned(),
        |name| format!("did you mean {name}?"),
    )
}

/// Shortens a quoted text in a message, so that hostile input does not fill a log.
pub fn quoted(text: &str) -> String {
    // A line of a terminal; a flag may hold megabytes of JSON.
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

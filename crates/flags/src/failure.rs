//! Errors in llama-server flags, each with the place of the flag, the fault and the remedy.

use super::origin::FlagOrigin;
use crate::table;

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
    #[error("unknown flag `{argument}`; {}", meant(argument, *.nearest))]
    FindFlag { argument: String, nearest: Option<&'static str> },
    #[error("{flag} needs a value; write `{flag} VALUE`")]
    TakeValue { flag: &'static str },
    #[error("`{value}` is not a valid value for {flag}; write {expected}")]
    ReadValue { flag: &'static str, value: String, expected: &'static str },
    /// A number with more behind it, of which `std::stoi` reads only the beginning.
    #[error("`{written}`: llama-server reads this as {number}; write {remedy}")]
    ReadPart { written: String, number: i32, remedy: String },
}

fn meant(argument: &str, nearest: Option<&str>) -> String {
    if let Some((flag, value)) = argument.split_once(char::is_whitespace).filter(|(flag, _)| is_flag(flag)) {
        return format!("write flag and value as two arguments: \"{flag}\", \"{}\"", quoted(value.trim()));
    }
    if let Some((flag, value)) = joined(argument) {
        return format!("write the value as a separate argument: `{flag} {}`", quoted(value));
    }
    if let Some(flag) = argument.strip_suffix('=').filter(|flag| is_flag(flag)) {
        return format!("write the value as a separate argument: `{flag} VALUE`");
    }
    nearest.map_or_else(
        || "`llama-server --help` lists the known flags".to_owned(),
        |name| format!("did you mean {name}?"),
    )
}

/// A flag and its value where they are written as one word, which llama-server does not read:
/// `--ctx-size=4096`, `-c4096`.
pub fn joined(argument: &str) -> Option<(&str, &str)> {
    let digits = argument.find(|c: char| c.is_ascii_digit()).map(|at| argument.split_at(at));
    let parts = argument.split_once('=').or(digits)?;
    (!parts.1.is_empty() && is_flag(parts.0)).then_some(parts)
}

fn is_flag(word: &str) -> bool {
    table::by_argument(word).is_some()
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

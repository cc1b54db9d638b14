//! What can be wrong with flags or a configuration: always the place, what it is, and what to do.

use super::origin::Origin;

/// A flag that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("{origin}: unknown flag `{argument}`{}", meant(*.nearest))]
    FindFlag {
        origin: Origin,
        argument: String,
        nearest: Option<&'static str>,
    },
    #[error("{origin}: {flag} needs a value; write `{flag} {expected}`")]
    TakeValue {
        origin: Origin,
        flag: &'static str,
        expected: &'static str,
    },
    #[error("{origin}: `{value}` is no value for {flag}; write {expected}")]
    ReadValue {
        origin: Origin,
        flag: &'static str,
        value: String,
        expected: &'static str,
    },
}

impl FlagError {
    pub fn origin(&self) -> &Origin {
        match self {
            Self::FindFlag { origin, .. }
            | Self::TakeValue { origin, .. }
            | Self::ReadValue { origin, .. } => origin,
        }
    }
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `llama-server --help` lists them".to_owned(),
        |name| format!("; did you mean {name}?"),
    )
}

/// Shortens what is quoted in a message, so that hostile input does not fill a log.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A configuration that cannot be used, as `FILE:LINE: what; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct ConfigError {
    pub origin: Origin,
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the format of the file is not known; name it .ini, .yaml or .toml")]
    TellFormat,
}

//! What can be wrong with flags or a configuration: always the place, what it is, and what to do.

use super::origin::Origin;

/// A flag that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct FlagError {
    pub origin: Origin,
    pub problem: FlagProblem,
}

/// What is wrong with a flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagProblem {
    #[error("unknown flag `{argument}`; {}", meant(*.nearest))]
    FindFlag {
        argument: String,
        nearest: Option<&'static str>,
    },
    #[error("{flag} needs a value; write `{flag} VALUE`")]
    TakeValue { flag: &'static str },
    #[error("`{value}` is no value for {flag}; write {expected}")]
    ReadValue {
        flag: &'static str,
        value: String,
        expected: &'static str,
    },
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "`llama-server --help` lists them".to_owned(),
        |name| format!("did you mean {name}?"),
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

impl ConfigError {
    pub(crate) fn new(origin: Origin, problem: Problem) -> Self {
        Self { origin, problem }
    }
}

impl From<FlagError> for ConfigError {
    fn from(FlagError { origin, problem }: FlagError) -> Self {
        Self::new(origin, Problem::ReadFlag(problem))
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the format of the file is not known; name it .ini, .yaml, .yml or .toml")]
    TellFormat,
    #[error("the file cannot be read as text: {why}; {remedy}")]
    ReadText { why: &'static str, remedy: &'static str },
    #[error("{why}; {remedy}")]
    ReadLine { why: &'static str, remedy: &'static str },
    #[error("{0}")]
    ParseYaml(String),
    #[error("{0}")]
    ParseToml(String),
    #[error("unknown key `{key}` in {place}; {}", .nearest.as_ref().map_or("remove it".to_owned(), |near| format!("did you mean `{near}`?")))]
    FindKey {
        key: String,
        place: String,
        nearest: Option<String>,
    },
    #[error("`{value}` is no value for `{key}`; write {expected}")]
    ReadValue {
        key: String,
        value: String,
        expected: &'static str,
    },
    #[error("`{key}` takes two values, which a preset cannot give; start the model by a command instead")]
    PassTwoValues { key: String },
    #[error("model `{model}` has no model; {remedy}")]
    FindModel { model: String, remedy: &'static str },
    #[error("model `{model}` has no command; add `cmd`, or `model` and `flags`")]
    FindCommand { model: String },
    #[error("the name `{name}` is taken by `{other}` at {first}; names and aliases must differ")]
    NameModel {
        name: String,
        other: String,
        first: Origin,
    },
    #[error("macro `{name}` {why}; {remedy}")]
    ExpandMacro {
        name: String,
        why: &'static str,
        remedy: &'static str,
    },
    #[error("the command cannot be split: {why}; {remedy}")]
    SplitCommand { why: &'static str, remedy: &'static str },
    #[error("{0}")]
    ReadFlag(FlagProblem),
}

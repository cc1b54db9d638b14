//! Configuration errors: the place in the file, the fault and the remedy.

use std::sync::Arc;

use plimsoll_base::Order;
use plimsoll_flags::{FlagError, FlagOrigin, FlagProblem, Warning};

use super::roster::{Configuration, RefusedModel};

/// Error in a configuration, printed as `FILE:LINE: what; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct ConfigError {
    pub origin: FlagOrigin,
    pub problem: ConfigProblem,
}

impl ConfigError {
    pub(crate) fn at(file: &Arc<str>, line: u32, problem: ConfigProblem) -> Self {
        Self::new(FlagOrigin::file(file, line), problem)
    }

    pub(crate) fn new(origin: FlagOrigin, problem: ConfigProblem) -> Self {
        Self { origin, problem }
    }
}

impl ConfigError {
    /// True if the mistake lies in the words of one setting, whatever the others are.
    pub(crate) fn is_of_its_own_words(&self) -> bool {
        matches!(self.problem, ConfigProblem::ReadFlag(_) | ConfigProblem::SplitCommand { .. })
    }
}

impl From<FlagError> for ConfigError {
    fn from(FlagError { origin, problem }: FlagError) -> Self {
        Self::new(origin, ConfigProblem::ReadFlag(problem))
    }
}

/// All mistakes that were found in a file, in the order of its lines; at least one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{}", lines(.first, .others), besides(&.rest.warnings))]
pub struct ConfigMistakes {
    /// Boxed, since every reader of a file returns it.
    pub first: Box<ConfigError>,
    pub others: Vec<ConfigError>,
    /// What could be read of the file.
    pub rest: Box<Configuration>,
}

impl ConfigMistakes {
    /// The configuration, if there are none.
    pub(crate) fn none_in(rest: Configuration, found: Vec<ConfigError>) -> Result<Configuration, Self> {
        let mut found = found.into_iter();
        let Some(first) = found.next() else { return Ok(rest) };
        let mut mistakes = Self { first: Box::new(first), others: found.collect(), rest: Box::new(rest) };
        mistakes.order();
        Err(mistakes)
    }

    /// The mistakes of a file, if there are any, and those of single models together.
    pub fn of_all(of_file: Option<Self>, refused: &[RefusedModel]) -> Option<Self> {
        let of_models = refused.iter().flat_map(RefusedModel::errors).cloned();
        let of_file =
            of_file.into_iter().flat_map(|mistakes| std::iter::once(*mistakes.first).chain(mistakes.others));
        Self::none_in(Configuration::default(), of_file.chain(of_models).collect()).err()
    }

    /// Adds mistakes that only the machine knows, such as files that are missing; a line that is wrong already says no
    /// more.
    pub fn extend(&mut self, more: Vec<ConfigError>) {
        let known: Vec<FlagOrigin> =
            std::iter::once(&*self.first).chain(&self.others).map(|error| error.origin.clone()).collect();
        self.others.extend(more.into_iter().filter(|error| !known.contains(&error.origin)));
        self.order();
    }

    fn order(&mut self) {
        let mut all = vec![(*self.first).clone()];
        all.append(&mut self.others);
        all.order_by_key(|mistake| mistake.origin.line());
        // A line that holds for several models is a mistake once.
        all.dedup();
        let mut all = all.into_iter();
        if let Some(first) = all.next() {
            (*self.first, self.others) = (first, all.collect());
        }
    }
}

impl From<ConfigError> for ConfigMistakes {
    fn from(first: ConfigError) -> Self {
        Self { first: Box::new(first), others: Vec::new(), rest: Box::default() }
    }
}

/// Mistakes that are printed; one screen holds no more.
const MOST_SHOWN: usize = 40;

/// One mistake as it is; several as a list.
fn lines(first: &ConfigError, others: &[ConfigError]) -> String {
    if others.is_empty() {
        return first.to_string();
    }
    let count = others.len() + 1;
    let shown = std::iter::once(first).chain(others).take(MOST_SHOWN);
    let text = shown.fold(format!("{count} mistakes:"), |text, mistake| format!("{text}\n  {mistake}"));
    match count.saturating_sub(MOST_SHOWN) {
        0 => text,
        more => format!("{text}\n  and {more} more"),
    }
}

/// The warnings that matter, each in a line.
fn besides(warnings: &[Warning]) -> String {
    let told = warnings.iter().filter(|warning| !warning.is_cosmetic).take(MOST_SHOWN);
    told.map(|warning| format!("\nwarning: {warning}")).collect()
}

/// Fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigProblem {
    #[error("the format of the file is not known; its name must end in .ini, .yaml, .yml or .toml")]
    TellFormat,
    #[error("the file cannot be read as text: {why}; {remedy}")]
    ReadText { why: &'static str, remedy: &'static str },
    #[error("{why}; {remedy}")]
    ReadLine { why: &'static str, remedy: &'static str },
    /// The parser's own message.
    #[error("{0}")]
    Parse(String),
    #[error("unknown key `{key}` in {place}; {}", .nearest.as_ref().map_or("remove it".to_owned(), |near| format!("did you mean `{near}`?")))]
    FindKey { key: String, place: String, nearest: Option<String> },
    #[error("`{key}` is {kind}; write {expected}")]
    ReadKind { key: String, kind: &'static str, expected: &'static str },
    #[error("`{value}` is not a valid value for `{key}`; write {expected}")]
    ReadValue { key: String, value: String, expected: &'static str },
    #[error(
        "`{key}` takes two values, which a preset cannot express; start the model with `command` instead"
    )]
    PassTwoValues { key: String },
    #[error(
        "`{key}` contains an empty API key, which would admit requests without a key; write the key, or \
            remove the \
         entry"
    )]
    BlankKey { key: &'static str },
    #[error("the section of model `{model}` names no model file; {remedy}")]
    FindModel { model: String, remedy: &'static str },
    #[error("model `{model}` has no command; add {remedy}")]
    FindCommand { model: String, remedy: &'static str },
    #[error("the name `{name}` is already used by `{other}` at {first}; names and aliases must be unique")]
    NameModel { name: String, other: String, first: FlagOrigin },
    #[error("macro `{name}`: {why}; {remedy}")]
    ExpandMacro { name: String, why: &'static str, remedy: String },
    #[error("the command cannot be split into arguments: {why}; {remedy}")]
    SplitCommand { why: &'static str, remedy: &'static str },
    #[error("{0}")]
    ReadFlag(FlagProblem),
}

//! Errors of a configuration, each with the place in the file, the fault and the remedy.

use std::sync::Arc;

use plimsoll_base::{Order, one_line};
use plimsoll_flags::{FlagError, FlagOrigin, FlagProblem, Warning};

use super::roster::{Configuration, RefusedModel};

/// Error in a configuration, printed as `FILE:LINE: what; remedy` in one line, whatever it quotes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {}", one_line(&.problem.to_string()))]
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
    /// True if the other says the same of another line of the file.
    fn is_repeated_by(&self, other: &Self) -> bool {
        let file = |error: &Self| match &error.origin {
            FlagOrigin::File { name, line: 1.. } => Some(Arc::clone(name)),
            _ => None,
        };
        self.problem == other.problem && file(self).is_some() && file(self) == file(other)
    }

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
    /// The part of the file that could be read.
    pub rest: Box<Configuration>,
}

impl ConfigMistakes {
    /// The configuration, if it has no mistakes.
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

    /// Adds mistakes that only the machine knows, such as files that are missing; a line that is wrong
    /// already says no more.
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

/// Lines of mistakes that are printed; one screen holds no more. Places that a line names.
const MOST_SHOWN: usize = 40;
const MOST_PLACES: usize = 3;

/// One mistake as it is; several as a list.
fn lines(first: &ConfigError, others: &[ConfigError]) -> String {
    if others.is_empty() {
        return first.to_string();
    }
    let count = others.len() + 1;
    let mut groups: Vec<Vec<&ConfigError>> = Vec::new();
    for mistake in std::iter::once(first).chain(others) {
        match groups.iter_mut().find(|group| group.iter().all(|other| other.is_repeated_by(mistake))) {
            Some(group) => group.push(mistake),
            None => groups.push(vec![mistake]),
        }
    }
    let shown = groups.iter().take(MOST_SHOWN);
    let text =
        shown.fold(format!("{count} mistakes:"), |text, group| format!("{text}\n  {}", repeated(group)));
    match groups.iter().skip(MOST_SHOWN).map(Vec::len).sum::<usize>() {
        0 => text,
        more => format!("{text}\n  and {more} more"),
    }
}

/// Equal mistakes of one file in a line: the first places, and how many there are.
fn repeated(group: &[&ConfigError]) -> String {
    let [first, others @ ..] = group else { return String::new() };
    if others.is_empty() {
        return first.to_string();
    }
    let places = others.iter().take(MOST_PLACES - 1).filter_map(|other| other.origin.line());
    let places: String = places.map(|line| format!(", {line}")).collect();
    let more = match group.len().saturating_sub(MOST_PLACES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let problem = first.problem.to_string();
    format!("{}{places}{more} ({} times): {}", first.origin, group.len(), one_line(&problem))
}

/// The warnings that matter, each in a line.
fn besides(warnings: &[Warning]) -> String {
    let reported = warnings.iter().filter(|warning| !warning.is_cosmetic).take(MOST_SHOWN);
    reported.map(|warning| format!("\nwarning: {warning}")).collect()
}

/// Fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigProblem {
    #[error("the format of the file is not known; its name must end in .ini, .yaml, .yml or .toml")]
    NotifyFormat,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(line: u32, name: &str) -> ConfigError {
        let problem = ConfigProblem::ExpandMacro {
            name: name.to_owned(),
            why: "the variable is not set",
            remedy: "set it".to_owned(),
        };
        ConfigError::at(&"c.yaml".into(), line, problem)
    }

    #[test]
    fn equal_mistakes_are_one_line_with_their_number_and_first_places() {
        let others: Vec<ConfigError> =
            (2..=94).map(|number| mistake(number * 3, "env.MODELS")).chain([mistake(300, "x")]).collect();
        let text = lines(&mistake(3, "env.MODELS"), &others);
        assert_eq!(
            text,
            "95 mistakes:\n  c.yaml:3, 6, 9 and 91 more (94 times): macro `env.MODELS`: the variable is not set; set it\n  \
                c.yaml:300: macro `x`: the variable is not set; set it"
        );
        let two = lines(&mistake(3, "a"), &[mistake(5, "a")]);
        assert_eq!(two, "2 mistakes:\n  c.yaml:3, 5 (2 times): macro `a`: the variable is not set; set it");
    }

    #[test]
    fn different_mistakes_are_lines_of_their_own_up_to_a_screen() {
        let others: Vec<ConfigError> = (2..=50).map(|line| mistake(line, &format!("m{line}"))).collect();
        let text = lines(&mistake(1, "m1"), &others);
        assert_eq!(text.lines().count(), 1 + MOST_SHOWN + 1);
        assert!(text.ends_with("\n  and 10 more") && !text.contains("times"), "{text}");
    }

    #[test]
    fn a_mistake_is_one_line_whatever_it_quotes() {
        let text = mistake(3, "a\nplimsoll: ok").to_string();
        assert_eq!(text, "c.yaml:3: macro `a\\nplimsoll: ok`: the variable is not set; set it");
    }
}

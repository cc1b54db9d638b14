//! Command-line options of `cargo xtask test`.

use super::steps::{LONG_STEPS, STEPS};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    #[error("no step `{name}`; the steps are {}", steps.join(", "))]
    Step { name: String, steps: Vec<&'static str> },
    #[error("`{0}` is no option of test; there is --long")]
    Unknown(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Run what takes longer than CI may: the tests whose names start with `long_`.
    pub(super) long: bool,
    /// All steps if empty.
    pub(super) only: Vec<String>,
}

impl Options {
    pub(super) fn read(words: &[&str]) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for word in words {
            match *word {
                "--long" => options.long = true,
                word if word.starts_with('-') => return Err(OptionError::Unknown(word.to_owned())),
                word => options.only.push(word.to_owned()),
            }
        }
        let known = if options.long { LONG_STEPS } else { STEPS };
        let steps: Vec<&str> = known.iter().map(|step| step.name).collect();
        match options.only.iter().find(|name| !steps.contains(&name.as_str())) {
            Some(name) => Err(OptionError::Step { name: name.clone(), steps }),
            None => Ok(options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_checked_against_the_mode() {
        let options = Options::read(&["tests", "--long"]).unwrap();
        assert!(options.long && options.only == ["tests"]);
        assert!(matches!(Options::read(&["--long", "lints"]), Err(OptionError::Step { .. })));
        assert!(matches!(Options::read(&["test"]), Err(OptionError::Step { .. })));
        assert_eq!(Options::read(&["--fast"]), Err(OptionError::Unknown("--fast".into())));
    }
}

//! Reader of llama-server flags from a command line or the environment (`common/arg.cpp:
//! common_params_parse_ex @ b10605`).
//!
//! Values stay text; they are interpreted when [`ModelParams`](crate::ModelParams) is built.

use std::collections::HashMap;

use super::{Options, Setting};
use crate::failure::{FlagError, FlagProblem, quoted};
use crate::origin::FlagOrigin;
use crate::table;
use crate::table::{FLAGS, Flag, FlagArity, FoundFlag};
use crate::value::{FlagValue, truth};

impl Options {
    /// Reads a command line without its program.
    pub fn from_argv(argv: &[String]) -> Result<Self, FlagError> {
        Self::from_argv_at(argv, |_| FlagOrigin::CommandLine)
    }

    /// Reads a command line; `origin` returns the place of each argument.
    pub fn from_argv_at(argv: &[String], origin: impl Fn(usize) -> FlagOrigin) -> Result<Self, FlagError> {
        let (options, faults) = Self::known_in(argv, origin);
        faults.into_iter().next().map_or(Ok(options), Err)
    }

    /// Reads the known flags of a command line as its program does, and returns all faults, for programs that
    /// run already or that resemble a llama-server.
    pub fn known_in(argv: &[String], origin: impl Fn(usize) -> FlagOrigin) -> (Self, Vec<FlagError>) {
        let (mut known, mut faults) = (Self::default(), Vec::new());
        let mut reader = ArgumentReader { argv, origin, next: 0 };
        while let Some((at, argument)) = reader.advance() {
            match reader.read(argument, at) {
                Ok((setting, spelling)) => {
                    faults.extend(setting.read_in_part(spelling));
                    known.push(setting);
                }
                Err(fault) => faults.push(fault),
            }
        }
        (known, faults)
    }

    /// Reads the variables that llama-server reads; it lets its command line win over them.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, FlagError> {
        // Most environments have none of them, and the names of 300 flags are made for nothing.
        let variables: HashMap<String, String> =
            variables.into_iter().filter(|(name, _)| is_variable(name)).collect();
        if variables.is_empty() {
            return Ok(Self::default());
        }
        let set = FLAGS.iter().filter_map(|flag| variable(flag, &variables));
        set.filter_map(Result::transpose).collect()
    }
}

impl Setting {
    /// The fault of a number of which llama-server reads only the beginning.
    fn read_in_part(&self, spelling: &str) -> Option<FlagError> {
        let FlagValue::Text(text) = &self.value else { return None };
        let problem = self.flag.whole_number(spelling, text).err()?;
        Some(FlagError { origin: self.origin.clone(), problem })
    }
}

/// Reader of the settings of a command line, one after the other.
struct ArgumentReader<'a, F> {
    argv: &'a [String],
    origin: F,
    next: usize,
}

impl<'a, F: Fn(usize) -> FlagOrigin> ArgumentReader<'a, F> {
    fn advance(&mut self) -> Option<(usize, &'a str)> {
        let at = self.next;
        self.next += 1;
        Some((at, self.argv.get(at)?))
    }

    /// The setting that begins with `argument`, and the spelling of its flag.
    fn read(&mut self, argument: &str, at: usize) -> Result<(Setting, &'static str), FlagError> {
        let Some(FoundFlag { flag, spelling, negative }) = table::by_argument(argument) else {
            // The word after an unknown flag may be its value: do not complain of that as well. Values of
            // unknown flags would be reported as unknown flags themselves.
            while self.argv.get(self.next).is_some_and(|next| !next.starts_with('-')) {
                self.next += 1;
            }
            return Err(FlagError {
                origin: (self.origin)(at),
                problem: FlagProblem::FindFlag {
                    argument: quoted(argument),
                    nearest: table::nearest(argument),
                },
            });
        };
        let value = match flag.takes {
            FlagArity::Nothing => FlagValue::Bare,
            FlagArity::Switch => FlagValue::Switch(!negative),
            // Older builds had `-fa` without a value, and many scripts still use it.
            FlagArity::OptionalValue if self.at_a_flag() => FlagValue::Bare,
            FlagArity::Value | FlagArity::OptionalValue | FlagArity::Number => {
                FlagValue::Text(self.take(spelling, at)?)
            }
            FlagArity::TwoValues => FlagValue::Pair(self.take(spelling, at)?, self.take(spelling, at)?),
        };
        Ok((Setting { flag, value, origin: (self.origin)(at) }, spelling))
    }

    fn at_a_flag(&self) -> bool {
        let next = self.argv.get(self.next);
        // `-fa -1` is a value: llama.cpp reads it as auto.
        next.is_none_or(|next| next.starts_with('-') && next != "-1")
    }

    fn take(&mut self, flag: &'static str, at: usize) -> Result<String, FlagError> {
        let value = self.argv.get(self.next).cloned();
        self.next += 1;
        value.ok_or_else(|| FlagError { origin: (self.origin)(at), problem: FlagProblem::TakeValue { flag } })
    }
}

/// True for a name that begins as the variables of flags do.
pub fn is_variable(name: &str) -> bool {
    ["LLAMA_", "HF_", "MTMD_", "__PRESET_"].iter().any(|beginning| name.starts_with(beginning))
}

/// `common_arg::get_value_from_env`: the negative variable says no by being there, whatever it holds.
fn variable(
    flag: &'static Flag,
    variables: &HashMap<String, String>,
) -> Option<Result<Option<Setting>, FlagError>> {
    // The negative variable is looked up first: it wins where both are set.
    let negative = flag.negative_env().filter(|name| variables.contains_key(name));
    let (name, text) = match (negative, flag.env) {
        (Some(name), _) => (name, "0"),
        (None, Some(name)) => (name.to_owned(), variables.get(name)?.as_str()),
        (None, None) => return None,
    };
    let origin = FlagOrigin::Environment(name.into());
    let value = match (flag.takes, truth(text)) {
        (FlagArity::Nothing, Some(true)) => FlagValue::Bare,
        // A bare flag is set by a true variable only; there is no spelling for "not".
        (FlagArity::Nothing, _) => return Some(Ok(None)),
        (FlagArity::Switch, Some(on)) => FlagValue::Switch(on),
        (FlagArity::Switch, None) => {
            let problem =
                FlagProblem::ReadValue { flag: flag.name(), value: quoted(text), expected: "1 or 0" };
            return Some(Err(FlagError { origin, problem }));
        }
        (FlagArity::Value | FlagArity::OptionalValue | FlagArity::Number, _) => {
            FlagValue::Text(text.to_owned())
        }
        // No variable carries two values in llama.cpp either.
        (FlagArity::TwoValues, _) => return Some(Ok(None)),
    };
    Some(Ok(Some(Setting { flag, value, origin })))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::KnownFlag;

    #[test]
    fn the_variables_of_flags_are_known_by_their_beginnings() {
        for flag in FLAGS.iter() {
            let names = flag.env.map(str::to_owned).into_iter().chain(flag.negative_env());
            assert!(names.into_iter().all(|name| is_variable(&name)), "{}", flag.name());
        }
    }

    /// Any spelling of any flag, with values that look like values.
    fn flag_with_values() -> impl Strategy<Value = Vec<String>> {
        let flags: Vec<&'static Flag> = FLAGS.iter().filter(|flag| flag.known != KnownFlag::Preset).collect();
        (proptest::sample::select(flags), any::<proptest::sample::Index>(), "[a-z0-9=,/]{1,9}", "[0-9]{1,4}")
            .prop_map(|(flag, spelling, first, second)| {
                let spellings: Vec<&str> = flag.names.iter().chain(&flag.negations).copied().collect();
                let mut argv = vec![spelling.get(&spellings).to_string()];
                match flag.takes {
                    FlagArity::Nothing | FlagArity::Switch => {}
                    FlagArity::Value | FlagArity::OptionalValue => argv.push(first),
                    FlagArity::Number => argv.push(second),
                    FlagArity::TwoValues => argv.extend([first, second]),
                }
                argv
            })
    }

    proptest! {
        #[test]
        fn written_options_parse_to_the_same_options(lines in prop::collection::vec(flag_with_values(), 0..12)) {
            let options = Options::from_argv(&lines.concat()).unwrap();
            prop_assert_eq!(options.settings().len(), lines.len());
            prop_assert_eq!(Options::from_argv(&options.to_argv()).unwrap(), options);
        }

        #[test]
        fn merging_over_keeps_ours_and_adds_theirs(
            above in prop::collection::vec(flag_with_values(), 0..6),
            below in prop::collection::vec(flag_with_values(), 0..6),
        ) {
            let above = Options::from_argv(&above.concat()).unwrap();
            let below = Options::from_argv(&below.concat()).unwrap();
            let merged = above.clone().merged_over(&below);
            for setting in above.settings() {
                prop_assert!(merged.settings().contains(setting));
            }
            for setting in below.settings() {
                let replaced = above.settings().iter().any(|ours| ours.flag == setting.flag);
                prop_assert_eq!(replaced, !merged.settings().contains(setting) || above.settings().contains(setting));
            }
        }

        #[test]
        fn any_command_line_is_read_or_refused(argv in prop::collection::vec(".{0,12}", 0..8)) {
            let (known, unknown) = Options::known_in(&argv, |_| FlagOrigin::CommandLine);
            prop_assert_eq!(Options::from_argv(&argv).is_err(), !unknown.is_empty());
            prop_assert!(known.settings().len() + unknown.len() <= argv.len());
        }
    }

    #[test]
    fn a_number_of_a_running_engine_is_read_as_it_reads_it() {
        let argv = ["-c", "8k", "--odd", "-b", "5x"].map(str::to_owned);
        let (known, faults) = Options::known_in(&argv, |_| FlagOrigin::CommandLine);
        let params = known.params(crate::ProgramKind::LlamaServer).unwrap();
        assert_eq!((params.context, params.batch, faults.len()), (8, 5, 3));
        assert_eq!(Options::from_argv(&argv).unwrap_err(), faults[0]);
    }

    #[test]
    fn the_known_part_of_a_strange_command_line_is_read() {
        let argv = ["--strange", "value", "-c", "5", "--no-fmoe"].map(str::to_owned);
        let (known, unknown) = Options::known_in(&argv, |_| FlagOrigin::CommandLine);
        assert_eq!(known.to_argv(), ["--ctx-size", "5"]);
        assert_eq!(unknown.len(), 2);
        assert_eq!(unknown[1].origin, FlagOrigin::CommandLine);
    }
}

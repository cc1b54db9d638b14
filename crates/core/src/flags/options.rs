//! Flags as they were given: an ordered list of settings, each knowing its row of the table and where it stood.
//!
//! Order and repetition are kept, because llama-server lets the last `-c` win but adds up every `-ot`. What the
//! settings mean together is [`Wish`](super::Wish); what they look like on a command line is `to_argv`.

use super::origin::Origin;
use super::table::Flag;

/// What a flag was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing: the flag alone.
    Bare,
    /// One of an on-off pair: `--mmap` or `--no-mmap`.
    Switch(bool),
    Text(String),
    Pair(String, String),
}

/// One flag with its value.
#[derive(Clone, Debug)]
pub struct Setting {
    pub flag: &'static Flag,
    pub value: Value,
    pub origin: Origin,
}

/// Equal if they ask for the same, wherever they were written.
impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.flag == other.flag && self.value == other.value
    }
}

/// Flags in the order they were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    settings: Vec<Setting>,
}

impl Options {
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// Returns the settings as a command line, each in the spelling llama.cpp itself writes: the last of the row.
    pub fn to_argv(&self) -> Vec<String> {
        let mut argv = Vec::with_capacity(self.settings.len() * 2);
        for Setting { flag, value, .. } in &self.settings {
            argv.extend(flag.spelling(value).map(str::to_owned));
            match value {
                Value::Bare | Value::Switch(_) => {}
                Value::Text(text) => argv.push(text.clone()),
                Value::Pair(first, second) => argv.extend([first.clone(), second.clone()]),
            }
        }
        argv
    }
}

//! Holds llama-server flags in the order in which the user gave them.
//!
//! Each flag has its row of the flag table, and its origin: command line, file or environment variable. Order
//! and repetition are kept, because the last `-c` wins but every `-ot` counts.

mod meaning;
mod read;

pub use self::read::is_variable;

use plimsoll_base::Order;

use super::origin::FlagOrigin;
use super::table::Flag;
use super::value::FlagValue;

/// One flag with its value and its place.
#[derive(Clone, Debug)]
pub struct Setting {
    pub flag: &'static Flag,
    pub value: FlagValue,
    pub origin: FlagOrigin,
}

/// Settings are equal if flag and value are equal, whatever their place.
impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.flag == other.flag && self.value == other.value
    }
}

/// Flags in the order in which they were given.
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

    pub fn push(&mut self, setting: Setting) {
        self.settings.push(setting);
    }

    /// Keeps the settings for which `keep` holds.
    pub fn retain(&mut self, keep: impl FnMut(&Setting) -> bool) {
        self.settings.retain(keep);
    }

    /// The setting of a flag that counts where only one can: the last. `name` is any spelling with its
    /// dashes.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.settings
            .iter()
            // llama-server lets the last of several settings win.
            .rev()
            .find(|setting| setting.flag.names.contains(&name) || setting.flag.negations.contains(&name))
    }

    /// The text of a flag's last setting.
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.value {
            FlagValue::Text(text) => Some(text),
            FlagValue::Bare | FlagValue::Switch(_) | FlagValue::Pair(..) => None,
        }
    }

    /// Merges these settings over others: a setting here replaces every setting of the same flag there.
    #[must_use]
    pub fn merged_over(mut self, base: &Self) -> Self {
        let below = base.settings.iter();
        // Settings below come first, so that order-dependent flags keep the base's order.
        let mut settings: Vec<Setting> = below
            // All settings of the flag below go, even of a list such as `-ot`: the router replaces, it does
            // not append.
            .filter(|setting| !self.settings.iter().any(|ours| ours.flag == setting.flag))
            .cloned()
            .collect();
        settings.append(&mut self.settings);
        Self { settings }
    }

    /// Orders the settings as llama.cpp's preset map does, by the first spelling: the order its router passes
    /// them.
    pub fn sort(&mut self) {
        // `common_preset` keeps its options in a std::map; children see them in that order.
        self.settings.order_by_key(|setting| setting.flag.names.first());
    }

    /// Returns the settings as a command line, each in the spelling llama.cpp itself writes: the last of the
    /// row.
    pub fn to_argv(&self) -> Vec<String> {
        let mut argv = Vec::with_capacity(self.settings.len() * 2);
        for Setting { flag, value, .. } in &self.settings {
            argv.extend(flag.spelling(value).map(str::to_owned));
            match value {
                // The spelling itself carries the value of a switch.
                FlagValue::Bare | FlagValue::Switch(_) => {}
                FlagValue::Text(text) => argv.push(text.clone()),
                FlagValue::Pair(first, second) => argv.extend([first.clone(), second.clone()]),
            }
        }
        argv
    }
}

impl FromIterator<Setting> for Options {
    fn from_iter<I: IntoIterator<Item = Setting>>(settings: I) -> Self {
        Self { settings: settings.into_iter().collect() }
    }
}

//! Compares Plimsoll's table of llama-server's flags (`crates/flags`) with an engine's `--help`, to find new
//! and removed flags.

use std::collections::BTreeSet;

use plimsoll_flags::table::{FLAGS, KnownFlag};
use serde::{Deserialize, Serialize};

/// More spellings are no help text.
const MOST: usize = 4096;

/// Spellings that one side lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FlagDrift {
    /// The engine has them, the table has not.
    pub(super) new: Vec<String>,
    /// The table has them as today's, the engine has not.
    pub(super) gone: Vec<String>,
}

pub(super) fn compare(help: &str) -> FlagDrift {
    let theirs = spellings(help);
    let all: BTreeSet<&str> =
        FLAGS.iter().flat_map(|flag| flag.names.iter().chain(&flag.negations).copied()).collect();
    let is_gone = |flag: &&plimsoll_flags::table::Flag| {
        flag.known == KnownFlag::Today && !flag.names.iter().any(|name| theirs.contains(*name))
    };
    FlagDrift {
        new: theirs.iter().filter(|name| !all.contains(name.as_str())).cloned().collect(),
        gone: FLAGS.iter().filter(is_gone).map(|flag| flag.name().to_owned()).collect(),
    }
}

/// `-fa,   --flash-attn [on|off|auto]       set Flash Attention use`: the words with a dash, before the text.
fn spellings(help: &str) -> BTreeSet<String> {
    let lines = help.lines().filter(|line| line.starts_with('-') && !line.starts_with("-----"));
    let words = lines.flat_map(|line| {
        let words = line.split_whitespace().take_while(|word| {
            // The flag's value stands between its names and the text.
            word.starts_with('-')
                || word.starts_with(['[', '<', '{'])
                || word.chars().all(|c| c.is_uppercase())
        });
        words.filter(|word| word.starts_with('-')).map(|word| word.trim_end_matches(',').to_owned())
    });
    words.filter(|word| word.len() > 1 && word.len() < 64).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_gone_flags_are_listed() {
        let help = "----- common params -----\n\n-fa,   --flash-attn [on|off|auto]       set -x Flash Attention\n\
                    -c,    --ctx-size N                     size\n--brand-new <0|1>   does --more\n                 --indented\n";
        let drift = compare(help);
        assert_eq!(drift.new, ["--brand-new"]);
        assert!(
            drift.gone.contains(&"--batch-size".to_owned()) && !drift.gone.contains(&"--ctx-size".to_owned())
        );
    }

    #[test]
    fn a_help_that_is_none_ends_soon() {
        assert!(compare("").new.is_empty());
        let endless: String = (0..100_000).map(|number| format!("--flag-{number}\n")).collect();
        assert_eq!(compare(&endless).new.len(), MOST);
    }
}

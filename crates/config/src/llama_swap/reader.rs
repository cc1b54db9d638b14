//! Reader of values in llama-swap's YAML (texts, numbers, lists), which collects mistakes and warnings.

use std::collections::HashSet;
use std::sync::Arc;

use plimsoll_flags::{FlagOrigin, Warning, quoted};

use super::{Unused, nearest};
use crate::failure::{ConfigError, ConfigProblem};
use crate::native::of_idle;
use crate::roster::Configuration;
use crate::yaml::{Node, Pair, YamlTree};

/// Counts of the findings so far.
pub(super) struct ReaderMark {
    mistakes: usize,
    unexpanded: usize,
    warnings: usize,
}

pub(super) struct LlamaSwapReader<'a> {
    pub(super) file: &'a Arc<str>,
    pub(super) text: &'a str,
    pub(super) roster: Configuration,
    /// Names of the macros that the present model may use.
    pub(super) macros: Vec<String>,
    /// Values in which a variable or a macro could not be inserted. Their text is not the user's, so no other
    /// mistake is reported for such a line.
    pub(super) unexpanded: Vec<ConfigError>,
    /// A few for each node of the document at most, whose nodes are limited.
    mistakes: Vec<ConfigError>,
}

impl<'a> LlamaSwapReader<'a> {
    pub(super) fn new(file: &'a Arc<str>, text: &'a str) -> Self {
        let roster = Configuration::default();
        Self { file, text, roster, macros: Vec::new(), unexpanded: Vec::new(), mistakes: Vec::new() }
    }

    pub(super) fn done(mut self) -> (Configuration, Vec<ConfigError>) {
        let found = self.mistakes_since(ReaderMark { mistakes: 0, unexpanded: 0, warnings: 0 });
        (self.roster, found)
    }

    /// The present state, to tell the mistakes of one entry from those before it.
    pub(super) fn mark(&self) -> ReaderMark {
        ReaderMark {
            mistakes: self.mistakes.len(),
            unexpanded: self.unexpanded.len(),
            warnings: self.roster.warnings.len(),
        }
    }

    /// Takes the mistakes since then.
    pub(super) fn mistakes_since(&mut self, mark: ReaderMark) -> Vec<ConfigError> {
        let mut all = self.unexpanded.split_off(mark.unexpanded);
        let lines: HashSet<Option<u32>> = all.iter().map(|mistake| mistake.origin.line()).collect();
        let others = self.mistakes.split_off(mark.mistakes);
        all.extend(others.into_iter().filter(|mistake| !lines.contains(&mistake.origin.line())));
        // A warning would quote what no variable or macro was inserted in.
        let warnings = self.roster.warnings.split_off(mark.warnings);
        let is_kept = |line: Option<u32>| line.is_none() || !lines.contains(&line);
        self.roster.warnings.extend(warnings.into_iter().filter(|warning| is_kept(warning.origin.line())));
        all
    }

    /// The value, or its default after a mistake, which is kept for the end.
    pub(super) fn kept<T: Default>(&mut self, read: Result<T, ConfigError>) -> T {
        read.unwrap_or_else(|mistake| {
            self.mistakes.push(mistake);
            T::default()
        })
    }
}

impl LlamaSwapReader<'_> {
    pub(super) fn warn(&mut self, line: u32, text: String, hint: &str) {
        self.note(line, text, hint, false);
    }

    pub(super) fn note(&mut self, line: u32, text: String, hint: &str, is_cosmetic: bool) {
        let warning = Warning::new(FlagOrigin::file(self.file, line), text);
        self.roster.warnings.push(warning.hint(hint).cosmetic(is_cosmetic));
    }

    pub(super) fn fault(&self, line: u32, why: &'static str, remedy: &'static str) -> ConfigError {
        ConfigError::at(self.file, line, ConfigProblem::ReadLine { why, remedy })
    }

    pub(super) fn bad(&self, key: &str, node: &Node, expected: &'static str) -> ConfigError {
        let key = key.to_owned();
        let problem = match &node.tree {
            YamlTree::Scalar(text) => ConfigProblem::ReadValue { key, value: quoted(text), expected },
            YamlTree::Null => ConfigProblem::ReadKind { key, kind: "empty", expected },
            YamlTree::List(_) => ConfigProblem::ReadKind { key, kind: "a list", expected },
            YamlTree::Map(_) => ConfigProblem::ReadKind { key, kind: "a map", expected },
        };
        ConfigError::at(self.file, node.line, problem)
    }

    pub(super) fn pairs<'n>(&self, node: &'n Node, key: &str) -> Result<&'n [Pair], ConfigError> {
        node.pairs().ok_or_else(|| self.bad(key, node, "a map"))
    }

    pub(super) fn text<'n>(&self, parent: &'n Node, key: &str) -> Result<Option<&'n str>, ConfigError> {
        match parent.get(key) {
            None => Ok(None),
            Some(Node { tree: YamlTree::Scalar(text), .. }) => Ok(Some(text)),
            Some(node) => Err(self.bad(key, node, "a text")),
        }
    }

    pub(super) fn number(&self, parent: &Node, key: &str) -> Result<Option<i64>, ConfigError> {
        let Some(text) = self.text(parent, key)? else {
            return Ok(None);
        };
        let number = text
            .trim()
            .parse::<i64>()
            .ok()
            // -1 means "as the global setting" in llama-swap.
            .filter(|number| (-1..=0x7fff_ffff).contains(number));
        match (number, parent.get(key)) {
            (Some(number), _) => Ok(Some(number)),
            (None, Some(node)) if key == "concurrencyLimit" => {
                Err(self.bad(key, node, "a whole number of at least 0"))
            }
            (None, Some(node)) => Err(self.bad(key, node, "a whole number of seconds, for example 300")),
            (None, None) => Ok(None),
        }
    }

    pub(super) fn truth(&self, parent: &Node, key: &str) -> Result<bool, ConfigError> {
        match (self.text(parent, key)?, parent.get(key)) {
            (Some("true"), _) => Ok(true),
            (Some("false"), _) | (None, _) => Ok(false),
            (Some(_), Some(node)) => Err(self.bad(key, node, "true or false")),
            (Some(_), None) => Ok(false),
        }
    }

    pub(super) fn texts(&self, parent: &Node, key: &str) -> Result<Vec<(String, u32)>, ConfigError> {
        let Some(node) = parent.get(key) else {
            return Ok(Vec::new());
        };
        let YamlTree::List(items) = &node.tree else {
            let expected = if key == "env" { "a list: `- NAME=VALUE`" } else { "a list of strings" };
            return Err(self.bad(key, node, expected));
        };
        let text = |item: &Node| match &item.tree {
            YamlTree::Scalar(text) => Ok((text.clone(), item.line)),
            YamlTree::Null | YamlTree::List(_) | YamlTree::Map(_) => Err(self.bad(key, item, "a text")),
        };
        items.iter().map(text).collect()
    }

    /// Warns of keys that are not read; `without_effect` has the known ones with the reason.
    pub(super) fn warn_of_unread(&mut self, node: &Node, read: &[&str], without_effect: &[Unused]) {
        for pair in node.pairs().unwrap_or_default() {
            let key = pair.key.as_str();
            // A key of `x-…` holds anchors for others to use.
            if read.contains(&key) || key.starts_with("x-") {
                continue;
            }
            match without_effect.iter().find(|(known, ..)| *known == key) {
                Some((key, why, is_cosmetic)) => {
                    self.note(pair.line, format!("`{key}` has no effect"), why, *is_cosmetic);
                }
                None => {
                    let known = read.iter().copied().chain(without_effect.iter().map(|(known, ..)| *known));
                    let near = of_idle(key).or_else(|| nearest(key, known));
                    let hint = near.map_or("remove it".to_owned(), |name| format!("did you mean `{name}`?"));
                    self.warn(pair.line, format!("unknown key `{}`", quoted(key)), &hint);
                }
            }
        }
    }
}

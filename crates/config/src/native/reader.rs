//! Reader of a TOML file that reports all mistakes at once: after a mistake it skips that setting and
//! continues.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::document::ConfigDocument;
use super::lines::LineIndex;
use crate::failure::ConfigError;

/// Reported mistakes; the document is read anew after each.
const MOST: usize = 50;
/// The same of a file that is longer than a hundred models.
const MOST_OF_LONG: (usize, usize) = (64 << 10, 5);

/// A document, without the settings that could not be read.
pub(super) struct ReadDocument {
    pub(super) document: ConfigDocument,
    pub(super) mistakes: Vec<SettingMistake>,
    /// True where a mistake leaves the meaning of the rest open.
    pub(super) is_torn: bool,
}

/// A setting that could not be read.
pub(super) struct SettingMistake {
    pub(super) error: ConfigError,
    at: usize,
    /// The model to whose section it belongs.
    model: Option<String>,
}

impl SettingMistake {
    /// True for a setting of the model whose section lies in this part of the text.
    pub(super) fn is_of(&self, name: &str, section: &Range<usize>) -> bool {
        self.model.as_ref().map_or(section.contains(&self.at), |model| model == name)
    }

    /// The model, if its section could not be read at all.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl ReadDocument {
    /// Reads a document. It is empty after a mistake that leaves the meaning of the rest open.
    pub(super) fn of(lines: &LineIndex<'_>) -> Self {
        let (table, errors) = DeTable::parse_recoverable(lines.text);
        let most = if lines.text.len() > MOST_OF_LONG.0 { MOST_OF_LONG.1 } else { MOST };
        let (span, mut table) = (table.span(), table.into_inner());
        let mut read = Self { document: ConfigDocument::default(), mistakes: Vec::new(), is_torn: true };
        let mut left = most;
        for error in &errors {
            read.notify(lines, error, None);
            left -= 1;
            // A line with a torn header, or an open bracket, changes the meaning of all that follow.
            if left == 0 || !is_of_one_line(lines, error) {
                return read;
            }
        }
        loop {
            let root = Spanned::new(span.clone(), table.clone());
            let error = match ConfigDocument::deserialize(Deserializer::from(root)) {
                Ok(document) => return Self { document, is_torn: false, ..read },
                Err(error) => error,
            };
            let path = error.span().and_then(|span| setting_at(&table, span.start)).map(|(_, path)| path);
            let model = match path.as_deref() {
                Some([table, name, ..]) if table == "models" => Some(name.clone()),
                _ => None,
            };
            read.notify(lines, &error, model);
            left = left.saturating_sub(1);
            if left == 0 || !path.is_some_and(|path| leave_out(&mut table, &path)) {
                return read;
            }
        }
    }

    /// Adds a mistake, but for a second one of the same line.
    fn notify(&mut self, lines: &LineIndex<'_>, error: &Error, model: Option<String>) {
        let mistake = SettingMistake { error: lines.explain(error), at: start(error), model };
        if !self.mistakes.iter().any(|other| other.error.origin == mistake.error.origin) {
            self.mistakes.push(mistake);
        }
    }
}

fn start(error: &Error) -> usize {
    error.span().map_or(0, |span| span.start)
}

/// True for a mistake in the value of a line `key = value`, so that the lines after it mean what they say.
fn is_of_one_line(lines: &LineIndex<'_>, error: &Error) -> bool {
    let Some((before, after)) = lines.text.split_at_checked(start(error)) else { return false };
    let line = [before.rsplit('\n').next(), after.split('\n').next()].map(Option::unwrap_or_default).concat();
    let Some((key, value)) = line.split_once('=') else { return false };
    let is_key = key.trim().chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    is_key
        && !value.trim_start().starts_with(['[', '{'])
        && !["\"\"\"", "'''"].iter().any(|mark| value.contains(mark))
}

/// The path of the smallest setting whose key or value is at a position, and its length.
fn setting_at(table: &DeTable<'_>, at: usize) -> Option<(usize, Vec<String>)> {
    let found = table.iter().filter_map(|(key, value)| {
        // A table may be spread over the file, so its parts are searched wherever it begins.
        let inner = match value.get_ref() {
            DeValue::Table(inner) => setting_at(inner, at),
            _ => None,
        };
        let (length, mut path) = inner.or_else(|| {
            let spans = [key.span(), value.span()];
            let hit = spans.into_iter().filter(|span| span.contains(&at) || span.start == at);
            hit.map(|span| (span.len(), Vec::new())).min()
        })?;
        path.insert(0, key.get_ref().clone().into_owned());
        Some((length, path))
    });
    found.min()
}

fn leave_out(table: &mut DeTable<'_>, path: &[String]) -> bool {
    match path {
        [] => false,
        [key] => table.remove(key.as_str()).is_some(),
        [key, rest @ ..] => match table.get_mut(key.as_str()).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => leave_out(inner, rest),
            _ => false,
        },
    }
}

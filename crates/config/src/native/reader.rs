//! Reader of a TOML file that reports all mistakes at once: after a mistake it skips that setting and continues.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::document::ConfigDocument;
use super::lines::LineIndex;
use crate::failure::ConfigError;

/// Mistakes that are told; the document is read anew after each.
const MOST: usize = 50;
/// The same of a file that is longer than a hundred models.
const MOST_OF_LONG: (usize, usize) = (64 << 10, 5);

/// A document, without the settings that could not be read.
pub(super) struct ReadDocument {
    pub(super) document: ConfigDocument,
    pub(super) mistakes: Vec<ConfigError>,
    /// Positions of what was left out.
    pub(super) damaged: Vec<usize>,
}

impl ReadDocument {
    /// Reads a document. It is empty after a mistake that leaves the meaning of the rest open.
    pub(super) fn of(lines: &LineIndex<'_>) -> Self {
        let (table, errors) = DeTable::parse_recoverable(lines.text);
        let most = if lines.text.len() > MOST_OF_LONG.0 { MOST_OF_LONG.1 } else { MOST };
        let (span, mut table) = (table.span(), table.into_inner());
        let mut read =
            Self { document: ConfigDocument::default(), mistakes: Vec::new(), damaged: Vec::new() };
        for error in &errors {
            read.tell(lines, error);
            // A line with a torn header, or an open bracket, changes the meaning of all that follow.
            if read.damaged.len() == most || !is_of_one_line(lines, error) {
                return read;
            }
        }
        loop {
            let root = Spanned::new(span.clone(), table.clone());
            let error = match ConfigDocument::deserialize(Deserializer::from(root)) {
                Ok(document) => return Self { document, ..read },
                Err(error) => error,
            };
            read.tell(lines, &error);
            let at = error.span().and_then(|span| setting_at(&table, span.start));
            if read.damaged.len() == most || !at.is_some_and(|(_, path)| leave_out(&mut table, &path)) {
                return read;
            }
        }
    }

    /// Adds a mistake, but for a second one of the same line.
    fn tell(&mut self, lines: &LineIndex<'_>, error: &Error) {
        let mistake = lines.explain(error);
        self.damaged.push(start(error));
        if !self.mistakes.iter().any(|other| other.origin == mistake.origin) {
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

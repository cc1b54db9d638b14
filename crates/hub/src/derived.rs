//! Records models that clients derived from others while the server ran: a name, and changes of its requests.
//!
//! Each has a note in the folder of downloads, and no file of its own.

use std::fs;
use std::io;
use std::path::Path;

use plimsoll_base::{Bytes, Order};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::notes;

/// Derived models of a folder.
const MOST: usize = 256;
/// The longest note.
const LONGEST: Bytes = Bytes::kib(64);
/// The longest name: as a file's name, a character may become three.
const LONGEST_NAME: usize = 80;

/// A name of its own for a model that the server has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedModel {
    pub name: String,
    /// The model whose engine answers; never a derived one.
    pub of: String,
    /// Parameters of requests that do not set them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub default: Map<String, Value>,
    /// The system message of conversations that begin without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
}

/// Error: a derived model is not noted.
#[derive(Debug, thiserror::Error)]
pub enum DeriveError {
    #[error(
        "a model's name has up to {LONGEST_NAME} letters, digits and the characters `.`, `_`, `-`, `/` and `:`"
    )]
    Name,
    #[error("the settings of a derived model are longer than {LONGEST}; shorten them")]
    TooLong,
    #[error("there are {MOST} models derived from others already, which is the limit; delete one first")]
    TooMany,
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl DerivedModel {
    /// The derived models of a folder, by name. Another note is passed over.
    pub fn all(folder: &Path) -> Vec<Self> {
        let mut models: Vec<Self> = notes::all(folder).filter_map(|path| Self::read(folder, &path)).collect();
        models.order_by(|a, b| a.name.cmp(&b.name));
        models.truncate(MOST);
        models
    }

    fn read(folder: &Path, note: &Path) -> Option<Self> {
        let text = plimsoll_file::read(note, LONGEST).ok()?;
        let model: Self = serde_json::from_slice(&text).ok()?;
        (is_name(&model.name) && note == notes::path(folder, &model.name)).then_some(model)
    }

    /// Notes the model, over an older one of its name.
    pub fn note(&self, folder: &Path) -> Result<(), DeriveError> {
        if !is_name(&self.name) {
            return Err(DeriveError::Name);
        }
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        if u64::try_from(text.len()).map_or(true, |length| length > LONGEST.get()) {
            return Err(DeriveError::TooLong);
        }
        let others = Self::all(folder);
        if others.len() >= MOST && others.iter().all(|other| other.name != self.name) {
            return Err(DeriveError::TooMany);
        }
        Ok(notes::write(folder, &self.name, &text)?)
    }

    /// Removes the note; the model that it is of stays.
    pub fn remove(&self, folder: &Path) -> io::Result<()> {
        fs::remove_file(notes::path(folder, &self.name))
    }
}

/// True for a name that Ollama's clients can write. In particular it is no pattern.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn derived(name: &str, system: &str) -> DerivedModel {
        let Value::Object(default) = json!({ "temperature": 0.5 }) else { unreachable!() };
        DerivedModel {
            name: name.to_owned(),
            of: "u/r:Q4".to_owned(),
            default,
            system: Some(system.to_owned()),
        }
    }

    #[test]
    fn a_derived_model_is_noted_replaced_read_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(DerivedModel::all(folder).is_empty());
        derived("me/mine:7b", "old").note(folder).unwrap();
        let new = derived("me/mine:7b", "new");
        new.note(folder).unwrap();
        derived("a", "x").note(folder).unwrap();
        assert_eq!(DerivedModel::all(folder), [derived("a", "x"), new.clone()]);
        new.remove(folder).unwrap();
        assert_eq!(DerivedModel::all(folder), [derived("a", "x")]);
        assert!(crate::DownloadedModel::all(folder).is_empty());
    }

    #[test]
    fn names_sizes_and_numbers_are_bounded_and_foreign_notes_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for name in ["", "a*", "a b", "a\nb", "ä", &"/".repeat(81)] {
            let error = derived(name, "x").note(folder).unwrap_err();
            assert!(matches!(error, DeriveError::Name), "{name}: {error}");
        }
        let long = derived("long", &"x".repeat(70_000)).note(folder).unwrap_err();
        assert!(matches!(long, DeriveError::TooLong), "{long}");
        for number in 0..MOST {
            derived(&format!("m{number}"), "x").note(folder).unwrap();
        }
        let error = derived("more", "x").note(folder).unwrap_err();
        assert!(matches!(error, DeriveError::TooMany), "{error}");
        derived("m7", "y").note(folder).expect("one of the same name");
        for (file, text) in [
            ("m0", json!({ "name": "*", "of": "a" })),
            ("m1", json!({ "name": "m2", "of": "a" })),
            ("m3", json!({ "name": "m3", "files": ["x"] })),
            ("m4", json!([])),
        ] {
            fs::write(notes::path(folder, file), text.to_string()).unwrap();
        }
        assert_eq!(DerivedModel::all(folder).len(), MOST - 4);
    }
}

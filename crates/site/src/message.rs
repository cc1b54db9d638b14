//! Reads what a page asks of a [`Session`](crate::Session): one line of JSON, and for a part of a file its
//! bytes.

use plimsoll_plan::QuestionText;
use serde::Deserialize;

use crate::SessionError;

/// Message of a page. An example of each is in docs/site.md.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Lists the cards that are known by name.
    Cards {},
    /// Reads a card as `plimsoll plan --card` does, for an error before any plan.
    CheckCard { card: String },
    /// Begins to read the header of a file of `length` bytes. `like` is a file whose vocabulary is probably
    /// the same, so that it is not fetched again; `engine` decides which tensor types are known.
    Open { length: u64, like: Option<usize>, engine: Option<String> },
    /// Gives the bytes of an open file from `start`, which follow the line.
    Take { file: usize, start: u64 },
    /// Forgets files.
    Close { files: Vec<usize> },
    /// Lists the models of a repository from its files, paths with sizes, and chooses one by its tag.
    Choose { files: Vec<(String, Option<u64>)>, tag: Option<String> },
    /// Names all files of the model that this is the only or the first file of.
    Siblings { path: String },
    /// Plans, for the document of `plimsoll plan --json`.
    Plan { models: NamedFiles, question: QuestionText },
    /// Plans, for the document and for HTML.
    Answer { models: NamedFiles, question: QuestionText },
}

/// Open files of each model that an engine loads, the first file of a set first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NamedFiles {
    pub main: Vec<usize>,
    pub draft: Vec<usize>,
    pub projector: Vec<usize>,
}

impl Message {
    /// Reads the line, and returns the bytes behind it.
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), SessionError> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 1..]));
        Ok((serde_json::from_slice(line).map_err(SessionError::ReadMessage)?, rest))
    }
}

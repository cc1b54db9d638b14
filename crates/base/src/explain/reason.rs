//! Explains a decision as a tree of reasons: statements, their values, and their causes.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::Bytes;

/// A value in a reason, such as a size or a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Fact {
    Bytes(Bytes),
    Count(u64),
    Text(String),
}

impl From<Bytes> for Fact {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<u64> for Fact {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&str> for Fact {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A statement, the values that it is based on, and the statements that it follows from.
///
/// `code` is stable and meant for programs; `text` is one sentence for people, without a full stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub code: &'static str,
    pub text: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    // Sorted, so that the JSON of two runs can be compared line by line.
    pub facts: BTreeMap<&'static str, Fact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<Reason>,
}

impl Reason {
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), facts: BTreeMap::new(), because: Vec::new() }
    }

    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl Into<Fact>) -> Self {
        self.facts.insert(name, value.into());
        self
    }

    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.because.push(reason);
        self
    }

    #[must_use]
    pub fn because_all(mut self, reasons: impl IntoIterator<Item = Reason>) -> Self {
        self.because.extend(reasons);
        self
    }
}

/// Prints the tree as indented lines, the root first.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Recursion is bounded: trees are built by our own code and a few levels deep.
        fn lines(reason: &Reason, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if depth > 0 {
                writeln!(f)?;
            }
            write!(f, "{:indent$}{}", "", reason.text, indent = depth * 2)?;
            reason.because.iter().try_for_each(|child| lines(child, depth + 1, f))
        }
        lines(self, 0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_an_indented_tree_and_serialises_without_empty_parts() {
        let reason = Reason::new("does_not_fit", "alpha does not fit on H200")
            .fact("need", Bytes::mib(2))
            .because(Reason::new("weights", "weights take 2 MiB"));
        assert_eq!(reason.to_string(), "alpha does not fit on H200\n  weights take 2 MiB");
        assert_eq!(
            serde_json::to_string(&reason).unwrap(),
            r#"{"code":"does_not_fit","text":"alpha does not fit on H200","facts":{"need":2097152},"because":[{"code":"weights","text":"weights take 2 MiB"}]}"#
        );
    }
}

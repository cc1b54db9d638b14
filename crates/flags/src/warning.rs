//! Warnings about settings that another program would read differently, each with its place.

use std::fmt;

use super::origin::FlagOrigin;

/// Something that the file says and we do otherwise, or that its own program would do otherwise than it
/// reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub origin: FlagOrigin,
    pub text: String,
    pub hint: Option<String>,
}

impl Warning {
    pub fn new(origin: FlagOrigin, text: impl Into<String>) -> Self {
        Self {
            origin,
            text: text.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

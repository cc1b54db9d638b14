//! Warns about settings whose effect differs from what their name suggests, with the place of each setting.

use std::fmt;

use plimsoll_base::one_line;

use super::origin::FlagOrigin;

/// Warning: a setting in the file has another effect than written, here or in its own program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub origin: FlagOrigin,
    pub text: String,
    pub hint: Option<String>,
    /// Nothing behaves otherwise: only what is shown or logged differs.
    pub is_cosmetic: bool,
}

impl Warning {
    pub fn new(origin: FlagOrigin, text: impl Into<String>) -> Self {
        Self { origin, text: text.into(), hint: None, is_cosmetic: false }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn cosmetic(self, is_cosmetic: bool) -> Self {
        Self { is_cosmetic, ..self }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It is one line, whatever it quotes.
        write!(f, "{}: {}", self.origin, one_line(&self.text))?;
        match &self.hint {
            Some(hint) => write!(f, "; {}", one_line(hint)),
            None => Ok(()),
        }
    }
}

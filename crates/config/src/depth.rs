//! What the user wants of a model whose need passes the cards, or grows with depth.

use schemars::JsonSchema;
use serde::Deserialize;

/// What becomes of a model that fits on no card at its full context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TooLarge {
    /// It is refused, with the context that would fit.
    #[default]
    Refuse,
    /// It gets the largest context that fits, but none below `--fit-ctx`.
    LowerContext,
    /// It is loaded where it fits before it grows, and requests that would go deeper than that are refused.
    LimitDepth,
}

impl TooLarge {
    /// What [`TooLarge::read`] takes, for messages.
    pub const EXPECTED: &'static str = "refuse, lower-context or limit-depth";

    /// Reads one word; `None` if it is none of ours.
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "refuse" => Some(Self::Refuse),
            "lower-context" => Some(Self::LowerContext),
            "limit-depth" => Some(Self::LimitDepth),
            _ => None,
        }
    }
}

//! Reads the setting `too-large`: what to do with models that do not fit with their full context.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Handling of a model that fits on no card at its full context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
    /// Words that the setting takes, for messages.
    pub const EXPECTED: &'static str = "one of refuse, lower-context and limit-depth";
}

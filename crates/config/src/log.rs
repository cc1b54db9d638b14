//! Defines the levels and formats of the server's log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The least important lines that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Only trouble.
    Warn,
    /// Also requests, and what takes or frees memory.
    #[default]
    Info,
    /// Also each decision's circumstances.
    Debug,
}

/// Format of the log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Sentences.
    #[default]
    Text,
    /// One JSON object for each line.
    Json,
}

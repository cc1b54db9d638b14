//! What can be wrong with a configuration: always the place, what it is, and what to do.

use super::origin::Origin;

/// A configuration that cannot be used, as `FILE:LINE: what; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct ConfigError {
    pub origin: Origin,
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the format of the file is not known; name it .ini, .yaml or .toml")]
    TellFormat,
}

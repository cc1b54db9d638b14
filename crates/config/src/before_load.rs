//! Reads the setting `reclaim-before-load`: whether host memory is freed before a load, where the GPU shares
//! it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reclaim of host memory before a model is loaded, on machines whose GPU shares it, and the privileges for
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimBeforeLoad {
    /// Nothing is done.
    #[default]
    Off,
    /// Steps without root: the page cache of model files is dropped, and guarded programs release idle
    /// memory.
    User,
    /// Also steps that need root, by `sudo -n plimsoll reclaim-step`.
    Sudo,
    /// Also steps that need root, by the systemd unit of `plimsoll reclaim --print-unit`.
    Systemd,
}

impl ReclaimBeforeLoad {
    /// Words that the setting takes, for messages.
    pub const EXPECTED: &'static str = "one of off, user, sudo and systemd";
}

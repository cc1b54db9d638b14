//! What the server may do to memory before it loads a model.

use schemars::JsonSchema;
use serde::Deserialize;

/// Whether memory that a model will need is made free before it is loaded, where cards take the host's memory; and who takes the
/// steps for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimBeforeLoad {
    /// Nothing is done.
    #[default]
    Off,
    /// Only what needs no root: the page cache of model files is given back, and programs under guard are asked for what they hold
    /// idle.
    User,
    /// Also what needs root, by `sudo -n plimsoll reclaim-step`.
    Sudo,
    /// Also what needs root, by the systemd unit of `plimsoll reclaim --print-unit`.
    Systemd,
}

impl ReclaimBeforeLoad {
    /// What [`ReclaimBeforeLoad::read`] takes, for messages.
    pub const EXPECTED: &'static str = "off, user, sudo or systemd";

    /// Reads one word; `None` if it is none of ours.
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Self::Off),
            "user" => Some(Self::User),
            "sudo" => Some(Self::Sudo),
            "systemd" => Some(Self::Systemd),
            _ => None,
        }
    }
}

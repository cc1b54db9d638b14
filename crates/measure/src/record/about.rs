//! Header of a memory recording: machine, program and start time.

use plimsoll_base::Bytes;
use serde::{Deserialize, Serialize};

/// The first line. Fields of a later version are ignored, and missing ones are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// `plimsoll.watch/1`.
    pub schema: String,
    pub plimsoll: String,
    pub host: String,
    pub kernel: String,
    pub started_unix_ms: u64,
    pub every_ms: u64,
    pub page_size: Bytes,
    pub memory: Bytes,
    /// The program that was started, or the process that was watched.
    pub command: Vec<String>,
    pub pid: Option<u32>,
    pub cards: Vec<CardAbout>,
    /// Sources that could not be read, with the reason.
    pub notes: Vec<String>,
}

/// Description of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CardAbout {
    pub uuid: String,
    pub name: String,
    pub total: Bytes,
}

impl About {
    pub const SCHEMA: &'static str = "plimsoll.watch/1";
}

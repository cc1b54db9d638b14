//! The cards as the test describes them.

use std::fs;

use plimsoll_wire::env::FAKE_NVML_CARDS;
use serde::Deserialize;

use crate::abi::{ERROR_NOT_SUPPORTED, Return};

/// `{"uuid", "name", "total", "free", "cc": [9, 0], "pci", "mig", "processes": [{"pid", "used"}], "graphics": […]}`;
/// without `total`, memory is not supported; `null` processes are not supported, or fail with `processes_code`; all but `uuid` may
/// be absent. `!CODE` instead of cards makes `nvmlInit_v2` fail with that code.
#[derive(Debug, Deserialize)]
struct Described {
    uuid: String,
    #[serde(default = "nameless")]
    name: String,
    total: Option<u64>,
    free: Option<u64>,
    #[serde(default = "hopper")]
    cc: (i32, i32),
    #[serde(default)]
    pci: String,
    mig: Option<bool>,
    #[serde(default = "nobody")]
    processes: Option<Vec<Process>>,
    processes_code: Option<Return>,
    #[serde(default = "nobody")]
    graphics: Option<Vec<Process>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) used: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// Total and free; None where the driver does not support the question.
    pub(crate) memory: Option<(u64, u64)>,
    pub(crate) compute_capability: (i32, i32),
    pub(crate) pci: String,
    pub(crate) mig: Option<bool>,
    pub(crate) processes: Option<Vec<Process>>,
    /// What the question for processes fails with, if there are none.
    pub(crate) processes_code: Return,
    pub(crate) graphics: Option<Vec<Process>>,
}

fn nameless() -> String {
    "Fake GPU".to_owned()
}

fn hopper() -> (i32, i32) {
    (9, 0)
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the field's type")]
fn nobody() -> Option<Vec<Process>> {
    Some(Vec::new())
}

/// What the test says now.
fn text() -> String {
    let text = std::env::var(FAKE_NVML_CARDS).unwrap_or_default();
    match text.strip_prefix('@') {
        Some(path) => fs::read_to_string(path).unwrap_or_default(),
        None => text,
    }
}

/// What `nvmlInit_v2` fails with.
pub(crate) fn broken() -> Option<Return> {
    text().strip_prefix('!')?.trim().parse().ok()
}

/// The cards now. What cannot be read is no card, as with a driver that sees none.
pub(crate) fn cards() -> Vec<Card> {
    let text = text();
    let described: Vec<Described> = serde_json::from_str(&text).unwrap_or_default();
    described.into_iter().map(Card::from).collect()
}

impl From<Described> for Card {
    fn from(described: Described) -> Self {
        Self {
            memory: described
                .total
                .map(|total| (total, described.free.unwrap_or(total))),
            uuid: described.uuid,
            name: described.name,
            compute_capability: described.cc,
            pci: described.pci,
            mig: described.mig,
            processes: described.processes,
            processes_code: described.processes_code.unwrap_or(ERROR_NOT_SUPPORTED),
            graphics: described.graphics,
        }
    }
}

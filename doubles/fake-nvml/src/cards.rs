//! Reads the test's description of the cards that the fake NVML shows.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::abi::{ERROR_NOT_SUPPORTED, Return};

/// `{"uuid", "name", "total", "free", "cc": [9, 0], "pci", "mig", "processes": [{"pid", "used"}], "graphics":
/// […]}`; without `total`, memory is not supported; `"usage"` names the file in which processes of fake-cuda
/// say what they hold of their first card, and these are its processes besides; `null` processes are not
/// supported, or fail with `processes_code`; all but `uuid` may be absent. `!CODE` instead of cards makes
/// `nvmlInit_v2` fail with that code.
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
    usage: Option<PathBuf>,
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
    let text = std::env::var("PLIMSOLL_FAKE_NVML_CARDS").unwrap_or_default();
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

/// What the processes of fake-cuda hold of their first card: records of ten words, of which the first is the
/// process, the second when it was started, and the third its bytes. Records of the dead stay, so only who
/// runs is listed.
fn holders(usage: &Path) -> Vec<Process> {
    const WORDS: usize = 10;
    let bytes = fs::read(usage).unwrap_or_default();
    let (words, _torn) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
    let (records, _torn) = words.as_chunks::<WORDS>();
    let process = |record: &[u64; WORDS]| {
        let pid = u32::try_from(record[0]).ok()?;
        (record[2] > 0 && runs(pid)).then_some(Process { pid, used: Some(record[2]) })
    };
    records.iter().filter_map(process).collect()
}

/// A zombie holds no memory any more.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

impl From<Described> for Card {
    fn from(mut described: Described) -> Self {
        let holders = described.usage.as_deref().map(holders).unwrap_or_default();
        let occupied: u64 = holders.iter().filter_map(|holder| holder.used).sum();
        if let Some(processes) = &mut described.processes {
            processes.extend(holders);
        }
        Self {
            memory: described
                .total
                .map(|total| (total, described.free.unwrap_or(total).saturating_sub(occupied))),
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

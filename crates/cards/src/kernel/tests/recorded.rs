//! Tests with recorded device files of real cards (`../shared/fixtures/cards`), which run only where those
//! files exist.
//!
//! A fresh clone has none of them; the trees that other tests write have the same files.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::Sysroot;

/// A recorded card: its name, board, VRAM, the part in use, GTT and the part in use, in bytes.
type Row = (&'static str, &'static str, Option<Board>, [Option<u64>; 4], Option<&'static str>);

const NONE: [Option<u64>; 4] = [None; 4];
const OWN: Option<Board> = Some(Board::Own);
const SHARED: Option<Board> = Some(Board::Shared);
const NO_FILE: Option<&str> = Some("mem_info_vram_total cannot be read");
const OTHER_PROGRAM: Option<&str> = Some("only to programs on that machine, and not in files");
const NO_MEMINFO: Option<&str> = Some("proc/meminfo cannot be read");

/// Folder, name, board, memory, and what the note on it says.
const CARDS: &[Row] = &[
    ("amd/hd7870", "AMD Radeon HD 7800 Series", OWN, NONE, Some("the driver radeon does not report it")),
    (
        "amd/phoenix",
        "AMD Radeon 780M Graphics",
        SHARED,
        pools(4294967296, 1272893440, 31433977856, 211398656),
        NO_MEMINFO,
    ),
    (
        "amd/r7-240",
        "AMD Radeon R7 200 Series",
        OWN,
        pools(2147483648, 495321088, 4069261312, 116916224),
        None,
    ),
    ("amd/r9-280", "AMD Radeon HD 7900 Series", OWN, NONE, NO_FILE),
    ("amd/rx5500xt", "AMD Radeon RX 5500/5500M / Pro 5300/5300M/5500M", OWN, NONE, NO_FILE),
    ("amd/rx5700xt", "AMD Radeon RX 5600 OEM/5600 XT / 5700/5700 XT", OWN, NONE, NO_FILE),
    ("amd/rx580", "AMD Radeon RX 580 Series", OWN, pools(4294967296, 536870912, 8342712320, 92377088), None),
    ("amd/rx6600", "AMD Radeon RX 6600/6600 XT/6600M", OWN, NONE, NO_FILE),
    ("amd/rx6600xt", "AMD Radeon RX 6600/6600 XT/6600M", OWN, NONE, NO_FILE),
    (
        "amd/rx6900xt",
        "AMD Radeon RX 6900 XT",
        OWN,
        pools(17163091968, 668274688, 16786171904, 62369792),
        None,
    ),
    ("amd/rx7600s", "AMD Radeon RX 7600/7600 XT/7600M XT/7600S/7700S / PRO W7600", OWN, NONE, NO_FILE),
    ("amd/rx7700s", "AMD Radeon RX 7600/7600 XT/7600M XT/7600S/7700S / PRO W7600", OWN, NONE, NO_FILE),
    ("amd/rx7800xt", "AMD Radeon RX 7700 XT / 7800 XT", OWN, NONE, NO_FILE),
    ("amd/rx7900xtx", "AMD Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M", OWN, NONE, NO_FILE),
    ("amd/rx9070", "AMD Radeon RX 9070/9070 XT/9070 GRE", OWN, NONE, NO_FILE),
    ("amd/rx9070xt", "AMD Radeon RX 9070/9070 XT/9070 GRE", OWN, NONE, NO_FILE),
    (
        "amd/strixpoint",
        "AMD Radeon 890M Graphics",
        SHARED,
        pools(536870912, 514580480, 16441004032, 3946811392),
        NO_MEMINFO,
    ),
    ("amd/vangogh", "AMD Custom GPU 0405", SHARED, NONE, NO_FILE),
    ("amd/vega56", "AMD Radeon RX Vega", OWN, pools(8573157376, 16613376, 8342863872, 12337152), None),
    ("intel/a380-i915", "Intel Arc A380", OWN, NONE, OTHER_PROGRAM),
    ("intel/a380-xe", "Intel Arc A380", OWN, NONE, OTHER_PROGRAM),
    ("intel/b580", "Intel Arc B580", OWN, NONE, OTHER_PROGRAM),
    ("intel/b580-6.16", "Intel Arc B580", OWN, NONE, OTHER_PROGRAM),
    ("intel/cometlake", "Intel UHD Graphics", SHARED, NONE, NO_MEMINFO),
    ("intel/tigerlake", "Intel Iris Xe Graphics", SHARED, NONE, NO_MEMINFO),
];

/// Folder, number of GPUs, name, and total and used memory of the first one.
type Machine = (&'static str, &'static str, usize, &'static str, Option<u64>, Option<u64>);

const MACHINES: &[Machine] = &[
    ("topo-mi210-xgmi-pcie", "nodes", 8, "AMD Instinct MI210", None, None),
    ("topo-mi300-cpx", "topology/nodes", 63, "AMD Instinct MI300X", None, None),
    (
        "topology-parsing",
        "topology/nodes",
        2,
        "AMD Instinct MI25/MI25x2/V340/V320",
        Some(17163091968),
        Some(14102528),
    ),
    (
        "topology-parsing-mi308",
        "topology/nodes",
        32,
        "AMD Instinct MI308X",
        Some(51539607552),
        Some(2907979776),
    ),
];

const fn pools(vram: u64, vram_used: u64, gtt: u64, gtt_used: u64) -> [Option<u64>; 4] {
    [Some(vram), Some(vram_used), Some(gtt), Some(gtt_used)]
}

fn recorded() -> Option<PathBuf> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.map(|folder| folder.join("shared/fixtures/cards")).find(|folder| folder.is_dir())
}

/// A machine whose folder `place` is a copy of `from`.
fn machine(from: &Path, place: &str) -> (tempfile::TempDir, KernelSurvey) {
    let root = tempfile::tempdir().unwrap();
    copy(from, &root.path().join(place));
    let survey = KernelSurvey::of(&Sysroot::captured(root.path()).unwrap());
    (root, survey)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::write(to, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn bytes(pool: MemoryPool) -> [Option<u64>; 2] {
    [pool.total.map(Bytes::get), pool.used.map(Bytes::get)]
}

#[test]
fn each_recorded_card_is_read_and_what_is_missing_has_a_reason() {
    let Some(folder) = recorded() else { return };
    for (name, product, board, pools, note) in CARDS {
        let (_root, survey) = machine(&folder.join("lact").join(name), "sys/class/drm");
        let [card] = survey.cards.as_slice() else { panic!("{name}: {survey:?}") };
        assert_eq!((card.name.as_str(), card.board), (*product, *board), "{name}");
        assert_eq!([bytes(card.vram), bytes(card.gtt)].concat(), *pools, "{name}");
        assert!(card.address.is_some() && card.pci.is_some(), "{name}: {card:?}");
        assert_eq!(card.free.is_some(), pools[0].is_some(), "{name}: {card:?}");
        let notes = card.notes.join("\n");
        assert!(note.map_or(notes.is_empty(), |note| notes.contains(note)), "{name}: {notes}");
    }
    let kinds = ["amd", "intel"].map(|kind| fs::read_dir(folder.join("lact").join(kind)).unwrap().count());
    assert_eq!(kinds.iter().sum::<usize>(), CARDS.len(), "a recorded card is missing here");
}

#[test]
fn each_recorded_machine_for_compute_is_read() {
    let Some(folder) = recorded() else { return };
    for (name, below, count, product, total, used) in MACHINES {
        let from = folder.join("kfd").join(name).join(below);
        let (_root, survey) = machine(&from, "sys/class/kfd/kfd/topology/nodes");
        assert_eq!(survey.cards.len(), *count, "{name}");
        let first = &survey.cards[0];
        assert_eq!(first.name, *product, "{name}");
        assert_eq!(bytes(first.vram), [*total, *used], "{name}");
        assert_eq!(first.notes.is_empty(), total.is_some(), "{name}: {first:?}");
        let mut ids: Vec<&str> = survey.cards.iter().map(|card| card.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{name}: {ids:?}");
    }
}

#[test]
fn a_padded_unique_number_is_an_identity() {
    let Some(folder) = recorded() else { return };
    let (_root, survey) = machine(&folder.join("lact/amd/rx6900xt"), "sys/class/drm");
    assert_eq!(survey.cards[0].uuid.as_deref(), Some("GPU-946d7e1ef9b172dd"));
}

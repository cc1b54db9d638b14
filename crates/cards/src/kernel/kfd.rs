//! Reads AMD's compute driver (KFD): its GPUs (`/sys/class/kfd/kfd/topology`) and the memory of processes
//! that use ROCm.
//!
//! Its numbers are its own: nodes are joined with cards by render node and PCI address.

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, Order};

use super::card::MemoryPool;
use super::fdinfo::saturating_sum;
use super::files::CardFiles;

const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
const PROCESSES: &str = "sys/class/kfd/kfd/proc";
const MOST_NODES: usize = 1024;
const MOST_BANKS: usize = 64;

/// A GPU, or a partition of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KfdNode {
    pub(super) number: u32,
    /// Number in the names of the files of a process's memory.
    pub(super) gpu: Option<u64>,
    pub(super) vendor: Option<u16>,
    pub(super) device: Option<u16>,
    pub(super) render_minor: Option<u32>,
    pub(super) address: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) memory: MemoryPool,
}

/// The nodes that compute, in the order of their numbers.
pub(super) fn nodes(files: &impl CardFiles) -> Vec<KfdNode> {
    let mut numbers: Vec<u32> = files.list(NODES).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.order();
    numbers.truncate(MOST_NODES);
    numbers.into_iter().filter_map(|number| node(files, number)).collect()
}

fn node(files: &impl CardFiles, number: u32) -> Option<KfdNode> {
    let folder = format!("{NODES}/{number}");
    let properties = Properties::read(&files.text(&format!("{folder}/properties"))?);
    // A node without vector units is a processor.
    properties.number("simd_count").filter(|count| *count > 0)?;
    Some(KfdNode {
        number,
        gpu: files.number(&format!("{folder}/gpu_id")).filter(|gpu| *gpu != 0),
        vendor: properties.number("vendor_id").and_then(|id| u16::try_from(id).ok()),
        device: properties.number("device_id").and_then(|id| u16::try_from(id).ok()),
        render_minor: properties
            .number("drm_render_minor")
            .and_then(|minor| u32::try_from(minor).ok())
            .filter(|minor| *minor != 0),
        address: address(&properties),
        uuid: properties.number("unique_id").and_then(uuid),
        architecture: properties.number("gfx_target_version").and_then(architecture),
        memory: memory(files, &folder),
    })
}

/// Lines of a name and a number.
struct Properties(BTreeMap<String, u64>);

impl Properties {
    fn read(text: &str) -> Self {
        let pairs = text.lines().take(256).filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        });
        Self(pairs.collect())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }
}

/// `location_id` holds bus, device and function, as PCI packs them.
fn address(properties: &Properties) -> Option<String> {
    let place = properties.number("location_id").filter(|place| *place != 0 && *place <= 0xffff)?;
    let domain = properties.number("domain").unwrap_or_default();
    (domain <= 0xffff_ffff).then(|| {
        let (bus, device, function) = (place >> 8, (place >> 3) & 0x1f, place & 7);
        format!("{domain:04x}:{bus:02x}:{device:02x}.{function}")
    })
}

/// ROCm's name for a card with a number of its own; APUs have none.
pub(super) fn uuid(unique: u64) -> Option<String> {
    (unique != 0).then(|| format!("GPU-{unique:016x}"))
}

/// 90402 is `gfx942`, and 90010 is `gfx90a`.
fn architecture(version: u64) -> Option<String> {
    let (major, minor, step) = (version / 10_000, version / 100 % 100, version % 100);
    ((3..100).contains(&major) && minor < 16 && step < 16).then(|| format!("gfx{major}{minor:x}{step:x}"))
}

/// Heaps of the card's own memory, public and private; the others are scratch and registers.
fn memory(files: &impl CardFiles, node: &str) -> MemoryPool {
    let folder = format!("{node}/mem_banks");
    let (mut total, mut used) = (None, None);
    for bank in files.list(&folder).into_iter().take(MOST_BANKS) {
        let Some(text) = files.text(&format!("{folder}/{bank}/properties")) else { continue };
        let properties = Properties::read(&text);
        if !matches!(properties.number("heap_type"), Some(1 | 2)) {
            continue;
        }
        let add = |sum: &mut Option<Bytes>, bytes: Option<u64>| {
            if let Some(bytes) = bytes {
                *sum = Some(saturating_sum(sum.unwrap_or_default(), Bytes::new(bytes)));
            }
        };
        add(&mut total, properties.number("size_in_bytes").filter(|size| *size > 0));
        add(&mut used, files.number(&format!("{folder}/{bank}/used_memory")));
    }
    MemoryPool::new(total, used)
}

/// Memory of each process on the GPUs of these numbers: `proc/PID/vram_GPU`.
///
/// DECISION: a process that is not in `/proc` keeps its memory. The numbers are the host's, so in a container
/// others than its own have no folder, and the driver removes an entry once the memory is back.
pub(super) fn processes(files: &impl CardFiles) -> BTreeMap<(u32, u64), Bytes> {
    let mut used = BTreeMap::new();
    for process in files.list(PROCESSES) {
        let Ok(pid) = process.parse::<u32>() else { continue };
        for file in files.list(&format!("{PROCESSES}/{process}")) {
            let gpu = file.strip_prefix("vram_").and_then(|gpu| gpu.parse().ok());
            let bytes = gpu.and_then(|_| files.number(&format!("{PROCESSES}/{process}/{file}")));
            if let (Some(gpu), Some(bytes)) = (gpu, bytes) {
                used.insert((pid, gpu), Bytes::new(bytes));
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_as_compilers_write_them() {
        for (version, name) in
            [(90402, "gfx942"), (90010, "gfx90a"), (110_501, "gfx1151"), (110_000, "gfx1100")]
        {
            assert_eq!(architecture(version).as_deref(), Some(name));
        }
        for version in [0, 1, 91_600, 10_000_000, u64::MAX] {
            assert_eq!(architecture(version), None, "{version}");
        }
    }

    #[test]
    fn a_place_is_an_address_and_a_unique_number_an_identity() {
        let at = |text: &str| address(&Properties::read(text));
        assert_eq!(at("location_id 17152\ndomain 0\n").as_deref(), Some("0000:43:00.0"));
        assert_eq!(at("location_id 2561\ndomain 1\n").as_deref(), Some("0001:0a:00.1"));
        assert_eq!((at("location_id 0\n"), at("location_id 65536\n")), (None, None));
        assert_eq!(uuid(0x12), Some("GPU-0000000000000012".to_owned()));
        assert_eq!(uuid(0), None);
    }
}

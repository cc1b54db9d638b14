//! Reads a machine's memory state once, from the live system or from captured copies of its files.
//!
//! Unreadable files are recorded with the reason.

use plimsoll_base::Bytes;

use super::{BuddyInfo, CgroupLimit, Chip, Driver, MemInfo, PageTypeInfo, Release, ZoneInfo, cgroup, nvmap};

// DECISION: files are read through this trait, so this crate does no input.
/// Source of files by their paths from the root, without a leading slash.
pub trait ProcTree {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unseen>;
    /// The names in a folder; empty if it does not exist.
    fn list(&self, path: &str) -> Vec<String>;
    /// Page size of the machine, if known.
    fn page(&self) -> Option<Bytes>;
}

/// Reason why a file was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    Missing,
    /// It is there and this user may not read it.
    Forbidden,
    /// Reading it failed, or it is larger than any such file.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSnapshot {
    pub page: Bytes,
    pub memory: MemInfo,
    pub blocks: Option<BuddyInfo>,
    pub zones: Option<ZoneInfo>,
    pub types: Option<PageTypeInfo>,
    /// Limits of the groups above the reading process.
    pub limits: Vec<CgroupLimit>,
    pub chip: Option<Chip>,
    pub release: Option<Release>,
    /// NvMap's own figure for the largest request.
    pub nvmap_allocatable: Option<Bytes>,
    /// Files that exist and could not be read.
    pub unseen: Vec<(&'static str, Unseen)>,
}

const GPUS: &str = "proc/driver/nvidia/gpus";
/// Cards of one machine that are looked at.
const MOST_GPUS: usize = 64;

impl HostSnapshot {
    pub fn gather(tree: &impl ProcTree) -> Self {
        let mut reader = SnapshotReader { tree, unseen: Vec::new() };
        let memory = reader.text("proc/meminfo").map(|text| MemInfo::read(&text)).unwrap_or_default();
        let blocks = reader.text("proc/buddyinfo").map(|text| BuddyInfo::read(&text));
        let release = reader.text("etc/nv_tegra_release").and_then(|text| Release::read(&text));
        let compatible = reader.bytes("proc/device-tree/compatible");
        let chip = compatible
            .and_then(|bytes| Chip::of_compatible(&bytes))
            // GB10 boots by ACPI and has no device tree.
            .or_else(|| chip_of_driver(tree));
        Self {
            page: tree.page().unwrap_or_else(|| page_size(&memory, blocks.as_ref())),
            zones: reader.text("proc/zoneinfo").map(|text| ZoneInfo::read(&text)),
            types: reader.text("proc/pagetypeinfo").map(|text| PageTypeInfo::read(&text)),
            limits: limits(tree),
            nvmap_allocatable: reader
                .text("sys/kernel/debug/nvmap/iovmm/free_size")
                .and_then(|text| nvmap::most_allocatable(&text)),
            memory,
            blocks,
            chip,
            release,
            unseen: reader.unseen,
        }
    }

    /// The driver that allocates host memory for the GPU; `None` for a discrete GPU, or none.
    pub fn driver(&self) -> Option<Driver> {
        // The file exists on Jetsons only, and all of them up to Orin use NvMap.
        let by_release = self.release.map(|_| Driver::Nvmap);
        self.chip.map(Chip::driver).or(by_release)
    }
}

/// The limits of control groups alone, which cost fewer files than a whole snapshot.
pub fn limits(tree: &impl ProcTree) -> Vec<CgroupLimit> {
    let text = |path: &str| Some(String::from_utf8_lossy(&tree.read(path).ok()?).into_owned());
    let own = text("proc/self/cgroup").unwrap_or_default();
    cgroup::limits(&own, text)
}

/// The name that nvidia.ko gives a card, where the device tree has no chip: GB10 starts by ACPI.
fn chip_of_driver(tree: &impl ProcTree) -> Option<Chip> {
    let cards = tree.list(GPUS).into_iter().take(MOST_GPUS);
    cards
        .filter_map(|card| tree.read(&format!("{GPUS}/{card}/information")).ok())
        .find_map(|text| Chip::of_information(&String::from_utf8_lossy(&text)))
}

/// Page size, computed from the same free memory in bytes and in pages, because captured files do not contain
/// it.
fn page_size(memory: &MemInfo, blocks: Option<&BuddyInfo>) -> Bytes {
    const USUAL: Bytes = Bytes::kib(4);
    let (Some(free), Some(blocks)) = (memory.free, blocks) else {
        return USUAL;
    };
    // Both files count the same free pages, so the right page size makes them agree.
    let distance = |page: &Bytes| blocks.free(*page).get().abs_diff(free.get());
    let sizes = [USUAL, Bytes::kib(16), Bytes::kib(64)];
    sizes.into_iter().min_by_key(distance).unwrap_or(USUAL)
}

struct SnapshotReader<'a, T> {
    tree: &'a T,
    unseen: Vec<(&'static str, Unseen)>,
}

impl<T: ProcTree> SnapshotReader<'_, T> {
    fn bytes(&mut self, path: &'static str) -> Option<Vec<u8>> {
        match self.tree.read(path) {
            Ok(bytes) => Some(bytes),
            // Most files are absent on most machines; only unreadable ones are worth reporting.
            Err(Unseen::Missing) => None,
            Err(why) => {
                self.unseen.push((path, why));
                None
            }
        }
    }

    fn text(&mut self, path: &'static str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A tree in memory; a file without text may not be read.
    #[derive(Debug, Default)]
    pub(in super::super) struct Written(pub BTreeMap<String, Option<String>>);

    impl Written {
        pub(in super::super) fn of(files: &[(&str, &str)]) -> Self {
            let file = |(path, text): &(&str, &str)| ((*path).to_owned(), Some((*text).to_owned()));
            Self(files.iter().map(file).collect())
        }
    }

    impl ProcTree for Written {
        fn read(&self, path: &str) -> Result<Vec<u8>, Unseen> {
            match self.0.get(path) {
                Some(Some(text)) => Ok(text.clone().into_bytes()),
                Some(None) => Err(Unseen::Forbidden),
                None => Err(Unseen::Missing),
            }
        }

        fn list(&self, path: &str) -> Vec<String> {
            let inside = self.0.keys().filter_map(|file| file.strip_prefix(path)?.strip_prefix('/'));
            inside.filter_map(|rest| Some(rest.split('/').next()?.to_owned())).collect()
        }

        fn page(&self) -> Option<Bytes> {
            None
        }
    }

    impl HostSnapshot {
        pub(in super::super) fn empty() -> Self {
            Self::gather(&Written::default())
        }
    }

    #[test]
    fn forbidden_files_are_recorded_as_unseen_and_absent_ones_are_not() {
        let mut tree = Written::of(&[("proc/meminfo", "MemTotal: 8 kB\n")]);
        tree.0.insert("proc/pagetypeinfo".to_owned(), None);
        let snapshot = HostSnapshot::gather(&tree);
        assert_eq!(snapshot.unseen, [("proc/pagetypeinfo", Unseen::Forbidden)]);
        assert_eq!((snapshot.memory.total, snapshot.driver()), (Some(Bytes::kib(8)), None));
    }

    #[test]
    fn the_chip_decides_the_driver() {
        let orin = Written::of(&[("proc/device-tree/compatible", "nvidia,p3767-0005\0nvidia,tegra234\0")]);
        assert_eq!(HostSnapshot::gather(&orin).driver(), Some(Driver::Nvmap));
        let spark =
            Written::of(&[("proc/driver/nvidia/gpus/000f:01:00.0/information", "Model: NVIDIA GB10\n")]);
        assert_eq!(HostSnapshot::gather(&spark).driver(), Some(Driver::NvidiaUnified));
        let unknown = Written::of(&[("etc/nv_tegra_release", "# R36 (release), REVISION: 5.0\n")]);
        assert_eq!(HostSnapshot::gather(&unknown).driver(), Some(Driver::Nvmap));
        let server =
            Written::of(&[("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: NVIDIA H200\n")]);
        assert_eq!(HostSnapshot::gather(&server).driver(), None);
    }

    #[test]
    fn the_size_of_a_page_follows_from_free_memory_said_twice() {
        for (kib, free) in [(4, "4000 kB"), (64, "64100 kB"), (4, "0 kB")] {
            let tree = Written::of(&[
                ("proc/meminfo", &format!("MemFree: {free}\n")),
                ("proc/buddyinfo", "Node 0, zone Normal 1000 0\n"),
            ]);
            assert_eq!(HostSnapshot::gather(&tree).page, Bytes::kib(kib), "{free}");
        }
    }
}

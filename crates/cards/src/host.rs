//! Reads the host's total and free memory, within the limits of this process's cgroups.
//!
//! Free memory is `MemAvailable`, or the unused part of a cgroup's limit if that is less.

use plimsoll_base::{Bytes, Card, CardId, HOST_CARD};
use plimsoll_host::{MemInfo, ProcTree, limits};

use super::{Machine, Reading};
use crate::running;

/// Total and available memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    pub total: Bytes,
    pub available: Bytes,
    /// Part of `available` that only contiguous allocations may use; a Tegra GPU cannot.
    pub contiguous_free: Bytes,
}

impl HostMemory {
    /// Reads it now; `None` where the system does not tell.
    pub fn read() -> Option<Self> {
        running::host()
    }

    pub(super) fn of(tree: &impl ProcTree) -> Option<Self> {
        let text = tree.read("proc/meminfo").ok()?;
        let kernel = MemInfo::read(&String::from_utf8_lossy(&text));
        let mut memory = Self {
            total: kernel.total?,
            available: kernel.available?,
            // Kernels without the contiguous memory allocator (CONFIG_CMA) have no such line.
            contiguous_free: kernel.cma_free.unwrap_or_default(),
        };
        // The kernel charges a page to every cgroup above the process, so the tightest limit decides.
        for limit in limits(tree) {
            memory.total = memory.total.min(limit.limit);
            memory.available = memory.available.min(limit.room());
        }
        Some(memory)
    }

    /// The host as a card of its own.
    pub fn card(self) -> Card {
        Card::of_host(self.total, self.available)
    }
}

impl Machine {
    /// A machine of which only the host's memory is known.
    pub(super) fn of_host() -> Self {
        Self {
            cards: Vec::new(),
            kernel_cards: Vec::new(),
            host: HostMemory::read().map(HostMemory::card),
            unified: false,
            driver: None,
            notes: Vec::new(),
        }
    }
}

impl Reading {
    pub(super) fn add_host(&mut self) {
        if let Some(host) = HostMemory::read() {
            self.free.push((CardId::new(HOST_CARD), host.available));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sysroot;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> Option<HostMemory> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        HostMemory::of(&Sysroot::captured(root.path()).unwrap())
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\nCmaFree: 1024 kB\n",
    );

    #[test]
    fn without_a_limit_the_kernels_word_stands() {
        let memory = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/user\n"),
            ("sys/fs/cgroup/user/memory.max", "max\n"),
        ])
        .unwrap();
        assert_eq!((memory.total, memory.available), (Bytes::gib(8), Bytes::gib(4)));
        assert_eq!(memory.contiguous_free, Bytes::mib(1));
    }

    #[test]
    fn a_limit_above_us_counts_and_its_page_cache_is_free() {
        let memory = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/pod/app\n"),
            ("sys/fs/cgroup/pod/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/pod/memory.current", "1610612736\n"),
            ("sys/fs/cgroup/pod/memory.stat", "anon 1\nfile 1\ninactive_file 536870912\n"),
        ])
        .unwrap();
        assert_eq!((memory.total, memory.available), (Bytes::gib(2), Bytes::gib(1)));
    }

    #[test]
    fn version_one_is_read_too() {
        let memory = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "0\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"),
        ])
        .unwrap();
        assert_eq!((memory.total, memory.available), (Bytes::gib(1), Bytes::gib(1)));
    }

    #[test]
    fn nonsense_is_unknown_and_this_machine_is_not() {
        assert_eq!(machine(&[("proc/meminfo", "MemTotal: many kB\n")]), None);
        assert_eq!(machine(&[]), None);
        let here = HostMemory::read().unwrap();
        assert!(here.available <= here.total && !here.total.is_zero());
    }
}

//! Parser of `/proc/meminfo`.
//!
//! Every value is labelled `kB` and means KiB.

use plimsoll_base::Bytes;

use super::fields;

/// Fields of `/proc/meminfo`; `None` for one that is absent or not a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    pub total: Option<Bytes>,
    pub free: Option<Bytes>,
    pub available: Option<Bytes>,
    /// Page cache with `shmem`.
    pub cached: Option<Bytes>,
    pub active_file: Option<Bytes>,
    pub inactive_file: Option<Bytes>,
    pub dirty: Option<Bytes>,
    pub writeback: Option<Bytes>,
    pub anonymous: Option<Bytes>,
    /// Page cache and shared memory that some process has mapped.
    pub mapped: Option<Bytes>,
    pub shmem: Option<Bytes>,
    pub slab_reclaimable: Option<Bytes>,
    pub slab_unreclaimable: Option<Bytes>,
    pub cma_free: Option<Bytes>,
    pub huge_page_size: Option<Bytes>,
    pub nvmap_used: Option<Bytes>,
}

impl MemInfo {
    pub fn read(text: &str) -> Self {
        let mut memory = Self::default();
        for line in fields::lines(text) {
            // Kernels add fields; unknown ones are skipped.
            if let Some((key, value)) = line.split_once(':') {
                memory.set(key.trim(), value.trim());
            }
        }
        memory
    }

    /// Sets a field; of two lines with the same key, the first counts.
    fn set(&mut self, key: &str, value: &str) {
        if let Some(slot) = self.slot(key) {
            // The first of two lines with one key counts; captured files may be concatenated.
            *slot = slot.or_else(|| kilobytes(value));
        }
    }

    fn slot(&mut self, key: &str) -> Option<&mut Option<Bytes>> {
        Some(match key {
            "MemTotal" => &mut self.total,
            "MemFree" => &mut self.free,
            "MemAvailable" => &mut self.available,
            "Cached" => &mut self.cached,
            "Active(file)" => &mut self.active_file,
            "Inactive(file)" => &mut self.inactive_file,
            "Dirty" => &mut self.dirty,
            "Writeback" => &mut self.writeback,
            "AnonPages" => &mut self.anonymous,
            "Mapped" => &mut self.mapped,
            "Shmem" => &mut self.shmem,
            "SReclaimable" => &mut self.slab_reclaimable,
            "SUnreclaim" => &mut self.slab_unreclaimable,
            "CmaFree" => &mut self.cma_free,
            "Hugepagesize" => &mut self.huge_page_size,
            "NvMapMemUsed" => &mut self.nvmap_used,
            _ => return None,
        })
    }

    /// Page cache of files, the only part that can be dropped: without shared memory and locked pages.
    pub fn file_cache(&self) -> Option<Bytes> {
        Some(self.active_file? + self.inactive_file?)
    }

    /// Pages that have to be written before they can be dropped.
    pub fn unwritten(&self) -> Bytes {
        self.dirty.unwrap_or_default() + self.writeback.unwrap_or_default()
    }

    /// Page cache that `drop_caches` drops now: of files, unmapped and clean.
    ///
    /// A lower bound: `Mapped` counts shared memory too.
    pub fn droppable(&self) -> Option<Bytes> {
        // Mapped also counts shared memory, so the result is too small rather than too large.
        let occupied = self.mapped.unwrap_or_default() + self.unwritten();
        Some(self.file_cache()?.saturating_sub(occupied))
    }

    /// Huge pages that fit into free memory with a sixteenth of all memory, 512 MiB at least, left over.
    pub fn claimable_huge_pages(&self) -> u64 {
        let (Some(total), Some(free), Some(size)) = (self.total, self.free, self.huge_page_size) else {
            return 0;
        };
        // Below that, allocations of other processes start direct reclaim.
        let left = Bytes::new(total.get() / 16).max(Bytes::mib(512));
        free.saturating_sub(left).get().checked_div(size.get()).unwrap_or(0)
    }

    /// Free memory that a driver's request may take: without the contiguous pool's.
    pub fn free_without_cma(&self) -> Option<Bytes> {
        Some(self.free?.saturating_sub(self.cma_free.unwrap_or_default()))
    }

    /// Available memory without the contiguous pool: the limit of newer NvMap
    /// (`nvmap_dev.c: system_heap_free_mem`).
    pub fn available_without_cma(&self) -> Option<Bytes> {
        Some(self.available?.saturating_sub(self.cma_free.unwrap_or_default()))
    }
}

fn kilobytes(value: &str) -> Option<Bytes> {
    let mut words = value.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    number.checked_mul(1024).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIN: &str = "MemTotal:        7802664 kB\nMemFree:         3168256 kB\nMemAvailable:    5570560 kB\n\
        Buffers:           61440 kB\nCached:          2621440 kB\nActive(file):     614400 kB\n\
        Inactive(file):  1843200 kB\nMapped:           204800 kB\nDirty:              1024 kB\nWriteback:            0 kB\n\
        CmaTotal:         262144 kB\nCmaFree:          204800 kB\nHugePages_Total:       4\nHugePages_Free:        1\n\
        Hugepagesize:       2048 kB\nNvMapMemFree:      65536 kB\nNvMapMemUsed:     131072 kB\n";

    #[test]
    fn every_field_is_read_and_kib_are_meant() {
        let memory = MemInfo::read(ORIN);
        assert_eq!(memory.total, Some(Bytes::kib(7_802_664)));
        assert_eq!(memory.huge_page_size, Some(Bytes::mib(2)));
        assert_eq!(memory.nvmap_used, Some(Bytes::mib(128)));
        assert_eq!(memory.shmem, None);
    }

    #[test]
    fn droppable_cache_excludes_mapped_and_dirty_pages() {
        let memory = MemInfo::read(ORIN);
        assert_eq!(memory.file_cache(), Some(Bytes::mib(2400)));
        assert_eq!(memory.droppable(), Some(Bytes::mib(2400 - 200 - 1)));
    }

    #[test]
    fn the_contiguous_pool_is_not_for_drivers() {
        let memory = MemInfo::read(ORIN);
        assert_eq!(memory.free_without_cma(), Some(Bytes::mib(3094 - 200)));
        assert_eq!(memory.available_without_cma(), Some(Bytes::mib(5440 - 200)));
        assert_eq!(MemInfo::read("MemFree: 7 kB").free_without_cma(), Some(Bytes::kib(7)));
    }

    #[test]
    fn huge_pages_leave_room_for_everybody_else() {
        let memory = MemInfo::read(ORIN);
        assert_eq!(memory.claimable_huge_pages(), (3094 - 512) / 2);
        let nearly_full = MemInfo { free: Some(Bytes::mib(512)), ..memory.clone() };
        assert_eq!(nearly_full.claimable_huge_pages(), 0);
        let none = MemInfo { huge_page_size: Some(Bytes::ZERO), ..memory };
        assert_eq!(none.claimable_huge_pages(), 0);
    }

    #[test]
    fn nonsense_is_unknown() {
        let memory = MemInfo::read(
            "MemTotal: many kB\nMemFree:\nMemAvailable: 18446744073709551615 kB\nrubbish\n:::\n",
        );
        assert_eq!(memory, MemInfo::default());
        assert_eq!(memory.droppable(), None);
    }
}

//! Cards without memory of their own (Jetson, GB10): NVML answers "not supported", and the host's memory
//! counts.
//!
//! Free for such a card is what the kernel can give without the contiguous pool: on Tegra the driver's own
//! gate is `si_mem_available() - NR_FREE_CMA_PAGES` (`nvmap_dev.c: system_heap_free_mem`).

use plimsoll_base::Bytes;

use super::host::HostMemory;

/// Total and free of a card that shares the host's memory.
pub(super) fn memory() -> Option<(Bytes, Bytes)> {
    let host = HostMemory::read()?;
    Some((host.total, host.available.saturating_sub(host.contiguous_free)))
}

/// True on a Jetson, whose engines take their pool from plain cudaMalloc.
pub(super) fn is_tegra() -> bool {
    std::path::Path::new("/etc/nv_tegra_release").exists()
}

//! Computes the memory of GPUs that share the host's memory (Jetson, GB10), for which NVML reports "not
//! supported".

use plimsoll_base::Bytes;

use super::host::HostMemory;

/// Total and free of a card that shares the host's memory.
pub(super) fn memory() -> Option<(Bytes, Bytes)> {
    // Pages of the contiguous pool (CMA) do not count as free, as in Tegra's driver (`nvmap_dev.c:
    // system_heap_free_mem`).
    let host = HostMemory::read()?;
    Some((host.total, host.available.saturating_sub(host.contiguous_free)))
}

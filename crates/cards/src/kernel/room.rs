//! Computes how much memory of an AMD or Intel card models can take, and names the limit that decides it.

use plimsoll_base::{Bytes, Order};
use plimsoll_host::MemInfo;

use super::card::{Board, KernelCard, MemoryPool, RoomLimit};
use super::fdinfo::saturating_sum;
use super::files::CardFiles;

/// The kernel counts in pages; machines with an APU have pages of 4 KiB.
const USUAL_PAGE: Bytes = Bytes::kib(4);
/// The first kernel on which HIP takes more of an APU than the carve-out.
const HIP_TAKES_GTT: (u32, u32) = (6, 15);

/// What the host says, once for all of its cards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostFigures {
    total: Option<Bytes>,
    available: Option<Bytes>,
    /// `ttm.pages_limit` in bytes.
    ttm_limit: Option<Bytes>,
    /// Major and minor version of the kernel.
    kernel: Option<(u32, u32)>,
}

impl HostFigures {
    pub(super) fn read(files: &impl CardFiles) -> Self {
        let memory = files.text("proc/meminfo").map(|text| MemInfo::read(&text)).unwrap_or_default();
        let pages = files.number("sys/module/ttm/parameters/pages_limit").filter(|pages| *pages > 0);
        let page = files.page().unwrap_or(USUAL_PAGE);
        Self {
            total: memory.total,
            available: memory.available,
            ttm_limit: pages.and_then(|pages| page.checked_mul(pages)),
            kernel: files.value("proc/sys/kernel/osrelease").as_deref().and_then(version),
        }
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl KernelCard {
    /// True for an APU with memory of its own and of the host, whose use is known by its processes.
    pub(super) fn has_pools(&self) -> bool {
        self.board == Some(Board::Shared) && !matches!(self.driver.as_deref(), Some("i915" | "xe"))
    }

    /// `held` is what processes are known to hold of a card with such pools.
    pub(super) fn find_room(&mut self, held: Bytes, host: &HostFigures) {
        if self.has_pools() {
            self.share_pools(held, host);
        } else if self.board == Some(Board::Shared) {
            self.take_host(host);
        } else {
            (self.total, self.used, self.free) = (self.vram.total, self.vram.used, self.vram.free());
            self.limit = self.free.map(|_| RoomLimit::Vram);
        }
    }

    /// An integrated GPU of Intel has no pools: it takes the host's memory page by page.
    fn take_host(&mut self, host: &HostFigures) {
        (self.total, self.free) = (host.total, host.available);
        self.limit = self.free.map(|_| RoomLimit::MemAvailable);
        if self.free.is_none() {
            self.note("the host's memory is unknown: proc/meminfo cannot be read");
        }
    }

    /// An APU has one pool: the part that the firmware carved out, and host memory.
    ///
    /// DECISION: the room is the least of three limits, because every byte has to pass all of them. It is
    /// never less than what is free of the carve-out, which the host's shortage does not touch: a board with
    /// 96 GiB carved out of 128 has little MemAvailable, and much room.
    fn share_pools(&mut self, held: Bytes, host: &HostFigures) {
        let (vram, gtt) = (self.vram, self.gtt);
        let (Some(carved), Some(addressed)) = (vram.total, gtt.total) else { return };
        let both = saturating_sum(carved, addressed);
        self.total = Some(host.ttm_limit.map_or(both, |limit| both.min(saturating_sum(carved, limit))));
        let (Some(vram_used), Some(gtt_used)) = (vram.used, gtt.used) else { return };
        // mem_info_gtt_used does not follow every allocation of ROCm (ROCm#5444); its processes do.
        let used = saturating_sum(vram_used, gtt_used).max(held);
        self.used = Some(used);
        let mut bounds = vec![(both.saturating_sub(used), RoomLimit::VramAndGtt)];
        let ttm = host.ttm_limit.map(|limit| limit.saturating_sub(gtt_used));
        bounds.extend(ttm.map(|bytes| (bytes, RoomLimit::TtmPagesLimit)));
        bounds.extend(host.available.map(|bytes| (bytes, RoomLimit::MemAvailable)));
        bounds.order_by_key(|(bytes, _)| *bytes);
        let least = bounds.first().copied();
        let carve_out = vram.free().map(|bytes| (bytes, RoomLimit::CarveOut));
        let room = least.map(|least| carve_out.filter(|own| own.0 > least.0).unwrap_or(least));
        (self.free, self.limit) = room.unzip();
        if host.available.is_none() {
            self.note("MemAvailable is unknown, so the host may have less: proc/meminfo cannot be read");
        }
    }

    /// Traps of an APU with this kernel.
    pub(super) fn warn_of_traps(&mut self, host: &HostFigures) {
        if self.board != Some(Board::Shared) || self.driver.as_deref() != Some("amdgpu") {
            return;
        }
        let MemoryPool { total: Some(carved), .. } = self.vram else { return };
        if let Some((major, minor)) = host.kernel.filter(|kernel| *kernel < HIP_TAKES_GTT) {
            self.note(format!(
                "with kernel {major}.{minor}, HIP uses only the {carved} that the firmware sets aside \
                    (from kernel 6.15 on, GTT too); Vulkan uses both"
            ));
        }
        if self.architecture.as_deref() == Some("gfx1151") {
            self.note(
                "leave GGML_CUDA_ENABLE_UNIFIED_MEMORY unset: users report that it gives wrong \
                output on gfx1151",
            );
        }
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

//! Derives from a memory snapshot the figures by which the reclaim steps are chosen.

use plimsoll_base::Bytes;

use super::super::buddyinfo::{block, free_from};
use super::super::{Allowance, AllowanceGate, HostSnapshot, MigrateType, ZoneBlocks};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    pub gate: AllowanceGate,
    pub page: Bytes,
    /// Allocatable memory now, and after reclaim.
    pub now: Bytes,
    pub attainable: Bytes,
    /// Page cache of the files named.
    pub files: Bytes,
    /// Idle host memory in pools of guarded programs.
    pub idle: Bytes,
    /// Page cache that can be dropped as it is.
    pub droppable: Bytes,
    /// Page cache that can be dropped once it is written.
    pub unwritten: Bytes,
    pub slab: Bytes,
    /// Memory that huge pages could hold temporarily; zero where they are smaller than the blocks wanted, or
    /// not supported.
    pub claimable: Bytes,
    /// `None` if no order is requested, or if free blocks are not visible.
    pub pieces: Option<OrderBlocks>,
}

/// Free memory in blocks of at least one order, without the contiguous pool (CMA) and the zones' reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderBlocks {
    pub order: usize,
    /// In blocks of this order or larger.
    pub whole: Bytes,
    /// Memory in smaller blocks that compaction may join: those in movable page blocks, if the kernel reports
    /// them.
    pub loose: Bytes,
    /// The kernel reports types.
    pub by_type: bool,
}

impl Baseline {
    /// `files` is the page cache of the named files, as far as it was seen. `idle` is idle memory of pools
    /// under guard, on a card or not. Where cards have memory of their own, that is not the host's.
    pub fn of(
        snapshot: &HostSnapshot,
        allowance: &Allowance,
        order: Option<usize>,
        files: Bytes,
        idle: Bytes,
    ) -> Self {
        let memory = &snapshot.memory;
        let wanted = block(order.unwrap_or_default(), snapshot.page);
        // Smaller huge pages would not clear blocks of the wanted order.
        let huge = memory.huge_page_size.filter(|size| *size >= wanted);
        Self {
            gate: allowance.gate,
            page: snapshot.page,
            now: allowance.now,
            attainable: allowance.attainable,
            files,
            // On a discrete GPU, idle pools hold card memory, which host reclaim cannot use.
            idle: snapshot.chip.map_or(Bytes::ZERO, |_| idle),
            droppable: memory.droppable().unwrap_or_default(),
            unwritten: memory.unwritten(),
            slab: memory.slab_reclaimable.unwrap_or_default(),
            claimable: huge.map_or(Bytes::ZERO, |size| size * memory.claimable_huge_pages()),
            pieces: order.and_then(|order| OrderBlocks::of(snapshot, order)),
        }
    }
}

impl OrderBlocks {
    /// Reads them; `None` without `/proc/buddyinfo`.
    pub fn of(snapshot: &HostSnapshot, order: usize) -> Option<Self> {
        let blocks = snapshot.blocks.as_ref()?;
        let mut pieces = Self {
            order,
            whole: Bytes::ZERO,
            loose: Bytes::ZERO,
            by_type: snapshot.types.as_ref().is_some_and(|types| !types.free.is_empty()),
        };
        for zone in &blocks.zones {
            pieces.add(snapshot, zone);
        }
        Some(pieces)
    }

    /// Adds released pages, and returns the largest possible growth of blocks. Each page may be the last that
    /// a block lacked, and adjacent free blocks join by themselves.
    pub(super) fn gain(&mut self, dropped: Bytes, page: Bytes) -> Bytes {
        let others = block(self.order, Bytes::new(1)).saturating_sub(Bytes::new(1));
        // At best each freed page completes a block whose other pages are free already.
        let completed = self.loose.min(dropped.padded(page.get()) * others.get());
        self.loose = self.loose.saturating_sub(completed);
        self.whole += dropped + completed;
        dropped + completed
    }

    fn add(&mut self, snapshot: &HostSnapshot, blocks: &ZoneBlocks) {
        let page = snapshot.page;
        let is_here = |node: u32, zone: &str| (node, zone) == (blocks.node, blocks.zone.as_str());
        let zones = snapshot.zones.iter().flat_map(|zones| &zones.zones);
        let zone = zones.into_iter().find(|zone| is_here(zone.node, &zone.name));
        let of_type = |kind, order| {
            let rows = snapshot.types.iter().flat_map(|types| &types.free);
            let rows = rows.filter(|row| row.kind == kind && is_here(row.node, &row.zone));
            rows.map(|row| free_from(&row.counts, order, page)).sum::<Bytes>()
        };
        // Where types cannot be seen, the pool's free pages are taken to lie in whole blocks: never too much
        // is promised.
        let pool = if self.by_type {
            of_type(MigrateType::Cma, self.order)
        } else {
            zone.map_or(Bytes::ZERO, |zone| page * zone.free_cma)
        };
        let usable = zone.map_or(Bytes::MAX, |zone| page * zone.usable());
        let in_whole = free_from(&blocks.counts, self.order, page);
        let whole = in_whole.saturating_sub(pool).min(usable);
        let smaller = free_from(&blocks.counts, 0, page).saturating_sub(in_whole);
        // Movable = total − other types: the kernel stops counting a type's blocks at 100 000.
        let fixed = |kind| of_type(kind, 0).saturating_sub(of_type(kind, self.order));
        let loose = smaller.saturating_sub(MigrateType::FIXED.into_iter().map(fixed).sum());
        self.whole += whole;
        self.loose += loose.min(usable.saturating_sub(whole));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{BuddyInfo, MemInfo, PageTypeInfo, ZoneInfo};
    use super::*;

    fn snapshot(types: Option<&str>) -> HostSnapshot {
        HostSnapshot {
            page: Bytes::kib(4),
            memory: MemInfo::default(),
            blocks: Some(BuddyInfo::read(
                "Node 0, zone DMA32 0 0 0 0 0 0 0 0 0 0 20\nNode 0, zone Normal 51200 0 0 0 0 0 0 0 0 10 50\n",
            )),
            zones: Some(ZoneInfo::read(
                "Node 0, zone DMA32\n pages free 20480\n low 480\n protection: (0, 20000)\n\
                 Node 0, zone Normal\n pages free 107520\n low 512\n nr_free_cma 25600\n",
            )),
            types: types.map(PageTypeInfo::read),
            ..HostSnapshot::empty()
        }
    }

    #[test]
    fn a_zone_that_keeps_its_blocks_back_has_none_to_give() {
        let pieces = OrderBlocks::of(&snapshot(None), 9).unwrap();
        // 20 + 200 MiB in Normal, of which 100 MiB are taken to be the pool's; DMA32 has no page above its
        // reserve.
        assert_eq!(pieces.whole, Bytes::mib(120));
        assert_eq!(pieces.loose, Bytes::mib(200 - 2));
    }

    #[test]
    fn page_types_restrict_compaction_to_movable_blocks() {
        let types = "Node 0, zone Normal, type Unmovable 25600 0 0 0 0 0 0 0 0 0 0\n\
            Node 0, zone Normal, type Movable 25600 0 0 0 0 0 0 0 0 10 35\n\
            Node 0, zone Normal, type CMA 0 0 0 0 0 0 0 0 0 0 15\n";
        let pieces = OrderBlocks::of(&snapshot(Some(types)), 9).unwrap();
        assert_eq!((pieces.whole, pieces.loose), (Bytes::mib(160), Bytes::mib(100)));

        let uncounted = types.replace("Movable 25600", "Movable >100");
        assert_eq!(OrderBlocks::of(&snapshot(Some(&uncounted)), 9), Some(pieces));
    }
}

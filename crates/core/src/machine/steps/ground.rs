//! The numbers that a course rests on, taken from a snapshot.

use crate::bytes::Bytes;

use super::super::{Allowance, Gate, MigrateType, Snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    pub gate: Gate,
    /// What may be asked for now, and what could be made of it.
    pub now: Bytes,
    pub attainable: Bytes,
    /// Page cache of the files named.
    pub files: Bytes,
    /// Page cache that can be dropped as it is.
    pub droppable: Bytes,
    /// Page cache that can be dropped once it is written.
    pub unwritten: Bytes,
    pub slab: Bytes,
    /// `None` where no order is asked for, or free blocks cannot be seen.
    pub pieces: Option<Pieces>,
}

/// Free memory as blocks of one order see it, without the contiguous pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    pub order: usize,
    /// In blocks of this order or larger.
    pub whole: Bytes,
    /// In smaller ones that compaction may join: those in movable page blocks, where the kernel says which these are.
    pub loose: Bytes,
    /// Whether it does.
    pub by_type: bool,
}

impl Ground {
    /// `files` is how much page cache the files named have, as far as it was seen.
    pub fn of(snapshot: &Snapshot, allowance: &Allowance, order: Option<usize>, files: Bytes) -> Self {
        let memory = &snapshot.memory;
        Self {
            gate: allowance.gate,
            now: allowance.now,
            attainable: allowance.attainable,
            files,
            droppable: memory.droppable().unwrap_or_default(),
            unwritten: memory.unwritten(),
            slab: memory.slab_reclaimable.unwrap_or_default(),
            pieces: order.and_then(|order| Pieces::of(snapshot, order)),
        }
    }
}

impl Pieces {
    /// Reads them; `None` without `/proc/buddyinfo`.
    pub fn of(snapshot: &Snapshot, order: usize) -> Option<Self> {
        let page = snapshot.page;
        let blocks = snapshot.blocks.as_ref()?;
        let pool = snapshot.memory.cma_free.unwrap_or_default();
        let in_whole = blocks.free_from(order, page);
        let typed = snapshot.types.as_ref().filter(|types| !types.free.is_empty());
        let (whole, loose) = match typed {
            Some(types) => {
                let of = |kind, order| types.free_from(kind, order, page);
                let movable = of(MigrateType::Movable, 0).saturating_sub(of(MigrateType::Movable, order));
                (in_whole.saturating_sub(of(MigrateType::Cma, order)), movable)
            }
            // Where types cannot be seen, the pool's free pages are taken to lie in whole blocks: never too much is promised.
            None => {
                let whole = in_whole.saturating_sub(pool);
                let free = blocks.free(page).saturating_sub(pool);
                (whole, free.saturating_sub(whole))
            }
        };
        Some(Self {
            order,
            whole,
            loose,
            by_type: typed.is_some(),
        })
    }
}

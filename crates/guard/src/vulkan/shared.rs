//! Counts memory that several objects of this process share until the last of them goes.
//!
//! An object that imports a descriptor has the memory that another one exported: its maker may free it, and
//! the card keeps it.
//!
//! DECISION: the file behind the descriptor identifies the memory, with its size. Kernels that give several
//! memories one file make objects of one size interchangeable, and the sum stays right. Memory of another
//! process counts there alone, because nothing tells when its last object goes.

use alloc::vec::Vec;
use core::ffi::c_int;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};

use plimsoll_nostd::lock::Lock;

use super::memory::MemoryBlock;
use crate::descriptor::file_of;

/// Memory for which a descriptor was given out.
#[derive(Clone, Copy, Debug)]
struct SharedMemory {
    file: (u64, u64),
    block: MemoryBlock,
    /// Live objects that have it.
    objects: u32,
}

#[derive(Debug)]
pub(super) struct SharedMemories {
    all: Lock<Vec<SharedMemory>>,
    /// True once a descriptor was given out: most programs never ask for one, and free without a look.
    is_used: AtomicBool,
}

/// Those of this process: an object of one device may import what another device made.
pub(super) static SHARED: SharedMemories =
    SharedMemories { all: Lock::new(Vec::new()), is_used: AtomicBool::new(false) };

impl SharedMemories {
    /// Enters that this descriptor of the block's memory was given out.
    pub(super) fn exported(&self, block: MemoryBlock, descriptor: c_int) {
        let Some(file) = file_of(descriptor) else { return };
        let mut all = self.all.hold();
        self.is_used.store(true, Release);
        match all.iter_mut().find(|shared| shared.block.id == block.id) {
            Some(shared) => shared.file = file,
            None => all.push(SharedMemory { file, block, objects: 1 }),
        }
    }

    /// The memory of this size behind a descriptor that is about to be imported. It has one object more,
    /// until [`Self::left`].
    pub(super) fn joined(&self, descriptor: c_int, size: u64) -> Option<MemoryBlock> {
        let file = file_of(descriptor)?;
        let mut all = self.all.hold();
        let shared = all.iter_mut().find(|shared| shared.file == file && shared.block.size == size)?;
        shared.objects = shared.objects.saturating_add(1);
        Some(shared.block)
    }

    /// Enters that an object of the block's memory has gone; true if it was the last.
    pub(super) fn left(&self, block: MemoryBlock) -> bool {
        if !self.is_used.load(Acquire) {
            return true;
        }
        let mut all = self.all.hold();
        let Some(place) = all.iter().position(|shared| shared.block.id == block.id) else { return true };
        all[place].objects = all[place].objects.saturating_sub(1);
        let was_last = all[place].objects == 0;
        if was_last {
            all.swap_remove(place);
        }
        was_last
    }
}

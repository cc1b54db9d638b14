//! Tracks the blocks of physical memory on the fake CUDA driver's cards.
//!
//! All memory is one sparse memfd in which every block has its own offset, and freed blocks are punched out.
//! So a card of 8 GiB takes no memory until it is written to, and thousands of blocks take one descriptor.
//! `pread` and `pwrite` access the memory without mapping it. Blocks that other processes may open get their
//! own file.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use crate::abi::Physical;
use crate::abi::structs::{AllocationProp, LOCATION_DEVICE, Location};
use crate::code::{Code, INVALID_VALUE, OUT_OF_MEMORY, Outcome, UNKNOWN};
use crate::driver::Driver;
use crate::faults;
use crate::settings::settings;

/// The granule of device memory.
pub(crate) const GRANULE: u64 = 2 << 20;
/// More than all blocks of a run: offsets are never used twice.
const FILE_LENGTH: u64 = 1 << 60;

#[derive(Debug)]
pub(crate) struct Blocks {
    file: Arc<File>,
    next: u64,
    pub(crate) live: BTreeMap<Physical, Block>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) size: u64,
    pub(crate) place: Place,
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
    /// Handles that the program has not released.
    pub(crate) handles: u32,
    /// Mappings that lead here.
    pub(crate) mapped: u32,
    /// What `cuMemCreate` was asked for.
    pub(crate) prop: Option<AllocationProp>,
}

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the card at this position.
    Card(usize),
    /// In host memory, bound to a node or not.
    Host(Location),
    /// In another process's share of a card.
    Foreign(usize),
}

impl Place {
    /// As `CUmemLocation` tells it.
    fn location(self) -> Location {
        match self {
            Self::Card(card) | Self::Foreign(card) => {
                Location { kind: LOCATION_DEVICE, id: i32::try_from(card).unwrap_or(0) }
            }
            Self::Host(location) => location,
        }
    }
}

pub(crate) fn round_up(size: u64, granule: u64) -> Result<u64, Code> {
    size.checked_next_multiple_of(granule).ok_or(OUT_OF_MEMORY)
}

/// The name of the file of one block, by which an importer knows where the block lies.
pub(crate) fn own_file_name(location: Location) -> String {
    format!("fake-cuda-at-{}-{}", location.kind, location.id)
}

fn sparse_file(name: &str, length: u64) -> Result<Arc<File>, Code> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(|_| UNKNOWN)?;
    ftruncate(&file, length).map_err(|_| UNKNOWN)?;
    Ok(Arc::new(file.into()))
}

impl Blocks {
    pub(crate) fn new() -> Result<Self, Code> {
        Ok(Self { file: sparse_file("fake-cuda", FILE_LENGTH)?, next: 0, live: BTreeMap::new() })
    }

    pub(crate) fn get(&self, physical: Physical) -> Result<&Block, Code> {
        self.live.get(&physical).ok_or(INVALID_VALUE)
    }

    pub(crate) fn get_mut(&mut self, physical: Physical) -> Result<&mut Block, Code> {
        self.live.get_mut(&physical).ok_or(INVALID_VALUE)
    }

    /// A block in the common file, or in one of its own.
    pub(crate) fn add(&mut self, physical: Physical, place: Place, size: u64, own_file: bool) -> Outcome {
        let (file, offset) = if own_file {
            (sparse_file(&own_file_name(place.location()), size)?, 0)
        } else {
            (Arc::clone(&self.file), self.next)
        };
        if !own_file {
            self.next += size.next_multiple_of(GRANULE);
        }
        self.insert(physical, place, size, file, offset);
        Ok(())
    }

    pub(crate) fn insert(
        &mut self,
        physical: Physical,
        place: Place,
        size: u64,
        file: Arc<File>,
        offset: u64,
    ) {
        let block = Block { size, place, file, offset, handles: 1, mapped: 0, prop: None };
        self.live.insert(physical, block);
    }
}

impl Block {
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Outcome {
        self.file.read_exact_at(out, self.offset + at).map_err(|_| INVALID_VALUE)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Outcome {
        self.file.write_all_at(bytes, self.offset + at).map_err(|_| INVALID_VALUE)
    }

    /// Zeroes a part without touching it.
    pub(crate) fn clear(&self, at: u64, length: u64) -> Outcome {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&*self.file, punch, self.offset + at, length).map_err(|_| UNKNOWN)
    }

    pub(crate) fn is_host(&self) -> bool {
        matches!(self.place, Place::Host(_))
    }
}

impl Driver {
    /// Takes bytes of a card, if it has them.
    pub(crate) fn charge(&mut self, card: usize, bytes: u64) -> Outcome {
        let card = &self.cards[card];
        let total = card.total.saturating_sub(settings().taken);
        self.usage.charge(card.index, bytes, total)
    }

    pub(crate) fn discharge(&mut self, card: usize, bytes: u64) {
        self.usage.discharge(self.cards[card].index, bytes);
    }

    /// A block with one handle. Device memory is charged in granules, and may be refused.
    pub(crate) fn new_block(&mut self, place: Place, size: u64, own_file: bool) -> Result<Physical, Code> {
        if let Place::Card(card) = place {
            faults::strike(faults::ALLOCATION)?;
            let charged = round_up(size, GRANULE)?;
            if size > settings().largest {
                return Err(OUT_OF_MEMORY);
            }
            self.charge(card, charged)?;
        }
        let physical = Physical(self.new_handle());
        self.blocks.add(physical, place, size, own_file)?;
        Ok(physical)
    }

    /// Gives one handle up.
    pub(crate) fn release_handle(&mut self, physical: Physical) -> Outcome {
        let block = self.blocks.get_mut(physical)?;
        block.handles = block.handles.checked_sub(1).ok_or(INVALID_VALUE)?;
        self.reclaim(physical);
        Ok(())
    }

    pub(crate) fn release_mapping(&mut self, physical: Physical) {
        if let Ok(block) = self.blocks.get_mut(physical) {
            block.mapped = block.mapped.saturating_sub(1);
            self.reclaim(physical);
        }
    }

    /// A block is gone when neither a handle nor a mapping is left.
    fn reclaim(&mut self, physical: Physical) {
        let unused = |block: &Block| block.handles == 0 && block.mapped == 0;
        if !self.blocks.live.get(&physical).is_some_and(unused) {
            return;
        }
        let Some(block) = self.blocks.live.remove(&physical) else {
            return;
        };
        if !matches!(block.place, Place::Foreign(_)) {
            let _ = block.clear(0, block.size);
        }
        if let Place::Card(card) = block.place {
            self.discharge(card, block.size.next_multiple_of(GRANULE));
        }
    }
}

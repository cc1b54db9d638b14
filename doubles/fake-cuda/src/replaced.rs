//! Remembers in the fake driver where a program replaced memory by other memory with the same bytes, behind
//! the same addresses.
//!
//! A graph whose granules were exchanged in this way replays what it would have replayed before, so the
//! checker of graphs takes the new memory for the old one. Memory with other bytes is not the same, nor is
//! one whose former memory is gone.

use std::collections::BTreeMap;

use crate::abi::Physical;
use crate::blocks::Block;
use crate::driver::Driver;
use crate::space::Behind;

#[derive(Debug, Default)]
pub(crate) struct Replaced {
    /// The memory that an address had last, and its bytes.
    unmapped: BTreeMap<u64, (Physical, u64)>,
    /// The memory at an address, and the one that it stands for.
    stands_for: BTreeMap<u64, (Physical, Physical)>,
}

/// Bytes compared at a time.
const STEP: usize = 1 << 20;

fn have_same_bytes(one: &Block, other: &Block, length: u64) -> bool {
    let mut pieces = [vec![0; STEP], vec![0; STEP]];
    (0..length).step_by(STEP).all(|at| {
        let size = usize::try_from(length - at).map_or(STEP, |left| left.min(STEP));
        let [left, right] = &mut pieces;
        let read = one.read(at, &mut left[..size]).and_then(|()| other.read(at, &mut right[..size]));
        read.is_ok() && left[..size] == right[..size]
    })
}

impl Driver {
    pub(crate) fn note_unmapped(&mut self, at: u64, memory: Physical, length: u64) {
        self.replaced.unmapped.insert(at, (memory, length));
    }

    pub(crate) fn note_mapped(&mut self, at: u64, memory: Physical, length: u64) {
        let before = self.replaced.unmapped.remove(&at).filter(|(_, size)| *size == length);
        let blocks = (self.blocks.get(memory), before.map(|(before, _)| self.blocks.get(before)));
        let same = match blocks {
            (Ok(now), Some(Ok(then))) => have_same_bytes(now, then, length),
            _ => false,
        };
        match before.filter(|_| same) {
            Some((before, _)) => {
                let original = self.original(at, before);
                self.replaced.stands_for.insert(at, (memory, original));
            }
            None => {
                self.replaced.stands_for.remove(&at);
            }
        }
    }

    /// The memory that the one at an address stands for: the first of those that followed each other there.
    fn original(&self, at: u64, memory: Physical) -> Physical {
        match self.replaced.stands_for.get(&at) {
            Some((now, original)) if *now == memory => *original,
            _ => memory,
        }
    }

    /// The same for what a segment leads to.
    pub(crate) fn behind_at_first(&self, at: u64, behind: Behind) -> Behind {
        match behind {
            Behind::Block(memory, offset) => Behind::Block(self.original(at, memory), offset),
            Behind::Host => behind,
        }
    }
}

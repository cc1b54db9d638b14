//! Indexes of the chunks in PyTorch's segments: all chunks by address, idle chunks by size.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::device::{Address, Stream};

/// Size class of a chunk. Small and large chunks are in separate segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChunkKind {
    Small,
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkState {
    Idle,
    Lent {
        asked: u64,
    },
    /// Addresses that nothing is mapped to, at the end of a range or in a hole.
    Unmapped,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) size: u64,
    pub(super) state: ChunkState,
    segment: Address,
    kind: ChunkKind,
    stream: Stream,
}

/// Sort key of an idle chunk; the best fit is the next key of the same kind and stream.
type Rank = (ChunkKind, Stream, u64, Address);

#[derive(Clone, Debug, Default)]
pub(super) struct ChunkMap {
    all: BTreeMap<Address, Chunk>,
    idle: BTreeSet<Rank>,
}

impl ChunkMap {
    pub(super) fn insert(
        &mut self,
        at: Address,
        size: u64,
        segment: Address,
        kind: ChunkKind,
        stream: Stream,
        state: ChunkState,
    ) {
        let chunk = Chunk { size, state, segment, kind, stream };
        self.put(at, chunk);
    }

    pub(super) fn best_fit(&self, kind: ChunkKind, stream: Stream, size: u64) -> Option<Address> {
        let from = (kind, stream, size, Address(0));
        let (found, of, _, address) = *self.idle.range(from..).next()?;
        // The range ends at the next kind or stream: a chunk of those must not be used.
        (found == kind && of == stream).then_some(address)
    }

    pub(super) fn size(&self, at: Address) -> u64 {
        self.all.get(&at).map_or(0, |chunk| chunk.size)
    }

    /// Requested bytes, if the chunk is lent.
    pub(super) fn lent(&self, at: Address) -> Option<u64> {
        match self.all.get(&at)?.state {
            ChunkState::Lent { asked } => Some(asked),
            ChunkState::Idle | ChunkState::Unmapped => None,
        }
    }

    pub(super) fn set(&mut self, at: Address, state: ChunkState) {
        if let Some(chunk) = self.take(at) {
            self.put(at, Chunk { state, ..chunk });
        }
    }

    /// Cuts a chunk behind `size` bytes, if that leaves two; the rest keeps its state.
    pub(super) fn split(&mut self, at: Address, size: u64) {
        let rest = self.size(at).saturating_sub(size);
        if size == 0 || rest == 0 {
            return;
        }
        if let Some(chunk) = self.take(at) {
            self.put(at.offset(size), Chunk { size: rest, ..chunk });
            self.put(at, Chunk { size, ..chunk });
        }
    }

    /// Joins a chunk with its neighbours of the same state and segment, and returns where the whole begins.
    pub(super) fn join(&mut self, at: Address) -> Address {
        self.join_next(at);
        match self.before(at) {
            Some(before) if self.join_next(before) => before,
            _ => at,
        }
    }

    fn join_next(&mut self, at: Address) -> bool {
        let Some(&chunk) = self.all.get(&at) else {
            return false;
        };
        // Never across segments: they are separate allocations of the driver, which only happen to touch.
        let next_at = at.offset(chunk.size);
        let alike = |next: &&Chunk| next.segment == chunk.segment && next.state == chunk.state;
        let Some(&next) = self.all.get(&next_at).filter(alike) else {
            return false;
        };
        self.take(next_at);
        self.take(at);
        let size = chunk.size + next.size;
        self.put(at, Chunk { size, ..chunk });
        true
    }

    /// The chunk in front of this one, if it is of the same segment.
    pub(super) fn before(&self, at: Address) -> Option<Address> {
        let segment = self.all.get(&at)?.segment;
        let (&before, chunk) = self.all.range(..at).next_back()?;
        (chunk.segment == segment).then_some(before)
    }

    /// The chunks of a segment from `at` on.
    pub(super) fn from(&self, at: Address) -> impl Iterator<Item = (Address, Chunk)> {
        let segment = self.all.get(&at).map(|chunk| chunk.segment);
        let chunks = self.all.range(at..).map(|(&at, &chunk)| (at, chunk));
        chunks.take_while(move |(_, chunk)| Some(chunk.segment) == segment)
    }

    pub(super) fn is_idle(&self, at: Address) -> bool {
        self.all.get(&at).is_some_and(|chunk| chunk.state == ChunkState::Idle)
    }

    /// Takes out the segments that are one idle chunk.
    pub(super) fn take_idle_segments(&mut self) -> Vec<(Address, u64)> {
        let whole = |(at, chunk): &(Address, Chunk)| {
            let next = self.all.get(&at.offset(chunk.size));
            *at == chunk.segment && next.is_none_or(|next| next.segment != chunk.segment)
        };
        let idle = self.idle.iter().filter_map(|rank| Some((rank.3, *self.all.get(&rank.3)?)));
        let segments: Vec<(Address, u64)> = idle.filter(whole).map(|(at, chunk)| (at, chunk.size)).collect();
        for (at, _) in &segments {
            self.take(*at);
        }
        segments
    }

    /// Idle chunks of all streams.
    pub(super) fn idle(&self) -> Vec<(Address, u64)> {
        self.idle.iter().map(|&(_, _, size, at)| (at, size)).collect()
    }

    fn put(&mut self, at: Address, chunk: Chunk) {
        if chunk.state == ChunkState::Idle {
            self.idle.insert((chunk.kind, chunk.stream, chunk.size, at));
        }
        self.all.insert(at, chunk);
    }

    fn take(&mut self, at: Address) -> Option<Chunk> {
        let chunk = self.all.remove(&at)?;
        self.idle.remove(&(chunk.kind, chunk.stream, chunk.size, at));
        Some(chunk)
    }
}

//! Format of guard's trace file: 32 bytes for each memory event of a program.
//!
//! A file is one [`TraceHeader`] and then [`TraceRecord`]s, little-endian. Blocks are identified by a number
//! that is never reused.

use core::mem::{offset_of, size_of};

/// The first eight bytes of a trace.
pub const MAGIC: [u8; 8] = *b"PLIMTRCE";
/// Grows with every change of the layout or of the kinds; a reader refuses an unknown version.
pub const VERSION: u32 = 2;

/// Header of a trace file, 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHeader {
    pub magic: [u8; 8],
    pub version: u32,
    /// Bytes of one record, 32.
    pub record: u32,
    pub pid: u32,
    /// Cards that the process saw.
    pub cards: u32,
    /// `CLOCK_MONOTONIC` when the trace began, in nanoseconds; records count from there.
    pub started: u64,
    /// `CLOCK_REALTIME` at the same moment, in nanoseconds since 1970.
    pub started_unix: u64,
    pub reserved: [u8; 24],
}

/// Record of one memory event, 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Nanoseconds since the trace began.
    pub time: u64,
    /// The block or graph that the event is about; 0 for none. Never an address.
    pub id: u64,
    /// Bytes requested (`Alloc`, `Oom`), moved (`Map`, `Unmap`, `Spill`) or released (`Free`), pinned or
    /// unpinned.
    pub size: u64,
    /// One of [`TraceKind`].
    pub kind: u8,
    /// The card, in the process's own order.
    pub card: u8,
    /// The allocator: 0 is the driver, n the n-th pool that guard serves.
    pub pool: u8,
    /// For `Oom`, a [`crate::page::Refusal`]; otherwise 0.
    pub detail: u8,
    /// The stream, numbered in the order of its first use; 0 is the default stream.
    pub stream: u16,
    /// The thread, numbered in the order of its first call.
    pub thread: u16,
}

codes! {
    /// Kind of a memory event.
    TraceKind: u8 {
        /// A block was handed out.
        Alloc = 1,
        /// A block was given back.
        Free = 2,
        /// The driver gave physical memory.
        Map = 3,
        /// Physical memory went back to the driver.
        Unmap = 4,
        CaptureBegin = 5,
        CaptureEnd = 6,
        GraphLaunch = 7,
        /// A wait for the whole card.
        Sync = 8,
        /// A request was refused; `detail` is the reason.
        Oom = 9,
        /// Bytes of a block were placed in host memory.
        Spill = 10,
        /// Host memory was pinned; no card is involved.
        Pin = 11,
        /// Host memory was unpinned.
        Unpin = 12,
    }
}

impl TraceHeader {
    pub const SIZE: usize = size_of::<Self>();

    pub const fn new(pid: u32, cards: u32, started: u64, started_unix: u64) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            record: 32,
            pid,
            cards,
            started,
            started_unix,
            reserved: [0; 24],
        }
    }

    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.record.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.pid.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.cards.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.started.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.started_unix.to_le_bytes());
        bytes
    }

    /// Reads a header; the caller checks its fields.
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            magic: part(bytes, 0),
            version: u32::from_le_bytes(part(bytes, 8)),
            record: u32::from_le_bytes(part(bytes, 12)),
            pid: u32::from_le_bytes(part(bytes, 16)),
            cards: u32::from_le_bytes(part(bytes, 20)),
            started: u64::from_le_bytes(part(bytes, 24)),
            started_unix: u64::from_le_bytes(part(bytes, 32)),
            reserved: [0; 24],
        }
    }
}

impl TraceRecord {
    pub const SIZE: usize = size_of::<Self>();

    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        // Little-endian by hand and not by transmutation: the file may be read on another machine.
        bytes[24..28].copy_from_slice(&[self.kind, self.card, self.pool, self.detail]);
        bytes[28..30].copy_from_slice(&self.stream.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.thread.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            time: u64::from_le_bytes(part(bytes, 0)),
            id: u64::from_le_bytes(part(bytes, 8)),
            size: u64::from_le_bytes(part(bytes, 16)),
            kind: bytes[24],
            card: bytes[25],
            pool: bytes[26],
            detail: bytes[27],
            stream: u16::from_le_bytes(part(bytes, 28)),
            thread: u16::from_le_bytes(part(bytes, 30)),
        }
    }
}

/// The `N` bytes of `bytes` from `offset`, which the layout of this file keeps inside.
fn part<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    // Copied: a record in a byte buffer need not be aligned.
    let mut part = [0; N];
    part.copy_from_slice(&bytes[offset..offset + N]);
    part
}

const _: () = {
    assert!(size_of::<TraceHeader>() == 64 && size_of::<TraceRecord>() == 32);
    assert!(offset_of!(TraceHeader, started) == 24 && offset_of!(TraceHeader, started_unix) == 32);
    assert!(offset_of!(TraceRecord, kind) == 24 && offset_of!(TraceRecord, stream) == 28);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_records_round_trip_through_bytes() {
        let record = TraceRecord {
            time: 1 << 40,
            id: 7,
            size: u64::MAX,
            kind: TraceKind::Spill as u8,
            card: 3,
            pool: 1,
            detail: 2,
            stream: 513,
            thread: 9,
        };
        assert_eq!(TraceRecord::from_bytes(&record.to_bytes()), record);
        let header = TraceHeader::new(42, 2, 11, 1 << 60);
        assert_eq!(TraceHeader::from_bytes(&header.to_bytes()), header);
    }

    #[test]
    fn every_kind_is_known_by_its_code_and_no_other_code_is() {
        let known =
            (0..=u8::MAX).filter(|code| TraceKind::of(*code).is_some_and(|kind| kind as u8 == *code)).count();
        assert_eq!(known, 12);
    }
}

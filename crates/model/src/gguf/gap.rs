//! Records the byte ranges that a GGUF header without the vocabulary leaves out.

/// Range of the file's bytes that was left out.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Array elements that are being left out.
#[derive(Debug)]
pub(super) struct GapRun {
    pub(super) key: String,
    /// Offset of the first in the file.
    pub(super) start: u64,
    /// Bytes kept before them.
    pub(super) kept: usize,
    /// Elements of the array.
    pub(super) count: u64,
    /// Texts that are still to be passed over; numbers need no walking.
    pub(super) texts: u64,
    /// Offset of the first such text, else of the end of the elements.
    pub(super) next: u64,
    pub(super) big_endian: bool,
}

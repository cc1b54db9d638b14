//! Gaps of a partial header: the parts that an excerpt leaves out.

/// Bytes of the file that were left out.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Elements of an array that are being left out.
#[derive(Debug)]
pub(super) struct GapRun {
    pub(super) key: String,
    /// Offset of the first in the file.
    pub(super) start: u64,
    /// Bytes kept before them.
    pub(super) kept: usize,
    /// Texts that are still to be passed over; numbers need no walking.
    pub(super) texts: u64,
    /// Offset of the first such text, else of the end of the elements.
    pub(super) next: u64,
    pub(super) big_endian: bool,
}

//! Formats sizes in the messages of the preloaded libraries.

use core::fmt;

/// Number of bytes, formatted with a unit.
#[derive(Clone, Copy, Debug)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..MIB => write!(f, "{} KiB", self.0 / 1024),
            bytes => write!(f, "{} MiB", bytes / MIB),
        }
    }
}

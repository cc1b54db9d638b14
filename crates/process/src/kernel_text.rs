//! Reader of files in `/proc` and `/sys`, whose text the kernel generates at each read.

use std::fs::File;
use std::io::Read;

/// Room for a usual text of the kernel.
const KERNEL_TEXT: usize = 8 << 10;

/// Reads a file whose text the kernel makes at each read, and whose size it does not say.
/// `fs::read_to_string` would begin with 32 bytes, and a page of counters takes ten reads then, each of which
/// sums them up again (mm/vmstat.c:vmstat_start @ Linux 6.12).
pub(crate) fn read_kernel_bytes(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(KERNEL_TEXT);
    File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

pub(crate) fn read_kernel_text(path: &str) -> Option<String> {
    String::from_utf8(read_kernel_bytes(path)?).ok()
}

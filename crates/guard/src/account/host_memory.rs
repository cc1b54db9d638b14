//! Limits the host memory that guard uses for allocations that do not fit on the card.
//!
//! Such memory cannot be swapped out. So it stays within MemAvailable, minus a reserve for other processes.

use plimsoll_wire::size::ByteSize;

use crate::say::say_some;
use crate::state::shared_file;

/// Divisor: a 16th of the available memory is left to the host.
const LEFT: u64 = 16;
/// Longer than the beginning of /proc/meminfo up to MemAvailable, its third line.
const ROOM: usize = 4096;

/// True if the host has `bytes` available, or if /proc/meminfo cannot be read.
pub(super) fn has(bytes: u64) -> bool {
    let Some(available) = available() else {
        return true;
    };
    let enough = bytes <= available - available / LEFT;
    if !enough {
        say_some!(
            "the host has only {} of memory left, too little for an allocation of {}",
            ByteSize(available),
            ByteSize(bytes)
        );
    }
    enough
}

fn available() -> Option<u64> {
    let mut text = [0_u8; ROOM];
    let read = shared_file::read(c"/proc/meminfo", &mut text)?;
    parse(core::str::from_utf8(text.get(..read)?).ok()?)
}

/// The line `MemAvailable:    1234 kB`, in bytes.
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_host_memory_is_parsed_in_bytes() {
        let text =
            "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   23000000 kB\nBuffers: 2 kB\n";
        assert_eq!(parse(text), Some(23_000_000 * 1024));
        assert_eq!(parse("MemTotal: 1 kB\n"), None);
        assert_eq!(parse("MemAvailable: much\n"), None);
        assert_eq!(parse("MemAvailable: 18446744073709551615 kB\n"), None);
    }

    #[test]
    fn this_host_has_a_page_and_not_everything() {
        assert!(available().is_some_and(|available| available > 0));
        assert!(has(4096) && !has(u64::MAX));
    }
}

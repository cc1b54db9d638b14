//! Header of a memory recording, and copies of system files (such as `/proc/zoneinfo`) at its start and end.

use std::fs;

use plimsoll_base::{Bytes, Card};
use plimsoll_telemetry::record::{About, CardAbout, Encoder, When};

/// Files that a later diagnosis may need. Missing and unreadable files are left out.
const FILES: &[&str] = &[
    "/proc/meminfo",
    "/proc/buddyinfo",
    "/proc/pagetypeinfo",
    "/proc/zoneinfo",
    "/proc/vmstat",
    "/proc/pressure/memory",
    "/proc/cmdline",
    "/proc/driver/nvidia/version",
    "/proc/device-tree/model",
    "/etc/nv_tegra_release",
    "/sys/fs/cgroup/memory.max",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/min_free_kbytes",
    "/sys/kernel/debug/nvmap/iovmm/clients",
    "/sys/kernel/debug/nvmap/iovmm/free_size",
];

pub(super) fn take(when: When, encoder: &mut Encoder, out: &mut Vec<u8>) {
    for path in FILES {
        if let Ok(bytes) = fs::read(path) {
            // Kernel text files are ASCII except for a few device-tree strings.
            let text = String::from_utf8_lossy(&bytes);
            // Device-tree strings end with a zero byte.
            encoder.shot(when, path, text.trim_end_matches('\0'), out);
        }
    }
}

/// The header of a record. The caller adds command, process and notes.
pub fn about(cards: &[Card], every_ms: u64) -> About {
    // `/proc/sys/kernel` instead of uname(2): the same words, without a C structure.
    let kernel = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim_end().to_owned()
    };
    let memory = plimsoll_probe::HostMemory::read().map(|memory| memory.total);
    About {
        schema: About::SCHEMA.to_owned(),
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
        host: kernel("hostname"),
        kernel: format!("{} {} {}", kernel("ostype"), kernel("osrelease"), std::env::consts::ARCH),
        started_unix_ms: unix_ms(),
        every_ms,
        page_size: Bytes::new(u64::try_from(rustix::param::page_size()).unwrap_or_default()),
        memory: memory.unwrap_or_default(),
        cards: cards.iter().map(card).collect(),
        ..About::default()
    }
}

fn card(card: &Card) -> CardAbout {
    CardAbout { uuid: card.id.as_str().to_owned(), name: card.name.clone(), total: card.total }
}

fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

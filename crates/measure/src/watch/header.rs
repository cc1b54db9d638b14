//! Writes the header of a memory recording: machine, cards and time.

use std::fs;

use plimsoll_base::{Bytes, Card};

use crate::record::{About, CardAbout};

/// The header of a record. The caller adds command, process and notes.
pub fn about(cards: &[Card], every_ms: u64) -> About {
    // `/proc/sys/kernel` instead of uname(2): the same words, without a C structure.
    let kernel = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim_end().to_owned()
    };
    let memory = plimsoll_cards::HostMemory::read().map(|memory| memory.total);
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

//! The trace of what the program asks of its cards' memory; nothing while none is asked for.

pub(crate) use plimsoll_wire::trace::Kind;

use crate::account::CardIndex;

/// What a record says beside its kind and time.
#[derive(Clone, Copy, Debug, Default)]
#[expect(dead_code, reason = "no record is written yet")]
pub(crate) struct Event {
    pub(crate) card: u8,
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) pool: u8,
    pub(crate) detail: u8,
    /// The handle of the stream; the trace numbers them.
    pub(crate) stream: usize,
}

impl Event {
    pub(crate) fn on(card: CardIndex) -> Self {
        Self {
            card: card.number(),
            ..Self::default()
        }
    }
}

pub(crate) fn open() {}

/// Whether a trace is written.
pub(crate) fn on() -> bool {
    false
}

pub(crate) fn emit(_: Kind, _: Event) {}

/// A number for a block or a graph, never used twice.
pub(crate) fn number() -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

//! Layout of the shared-memory file in which a process under guard (the preloaded library) reports its memory
//! and refusals.
//!
//! The daemon reads the file as a [`PageSnapshot`]. To request the release of idle memory, it writes four
//! bytes at [`Page::ask_offset`].

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

mod snapshot;

pub use snapshot::{OomSnapshot, PageError, PageSnapshot};

/// The first eight bytes of a page, as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PLIMPAGE");
/// Grows with every change of the layout; a reader refuses an unknown version.
pub const VERSION: u32 = 7;
/// Cards that a page has room for; a process that sees more is not guarded on the others.
pub const CARDS: usize = 16;
/// Refusals that a page remembers; older ones are overwritten.
pub const OOMS: usize = 32;
/// Streams of a cache whose depth can be reported.
pub const DEPTHS: usize = 32;
/// Bytes of a page; it fits one page of memory.
const BYTES: u32 = 4096;
/// A budget without a limit.
pub const UNLIMITED: u64 = u64::MAX;

codes! {
    /// State of guard in a process.
    PageState: u32 {
        /// `cuInit` has not succeeded yet.
        Idle = 0,
        Armed = 1,
        /// Guard met something unexpected and does not act; the reason is on stderr.
        Disarmed = 2,
    }
}

codes! {
    /// Reason why guard refused an allocation.
    Refusal: u32 {
        /// The request would have passed the budget.
        Budget = 1,
        /// The driver did not have the memory.
        Driver = 2,
        /// The part that did not fit could not be put into host memory either.
        Spill = 3,
        /// A context on a card that the plan does not name.
        Context = 4,
    }
}

// DECISION: guard uses atomics only, so a process that is killed at any instruction blocks no other. The
// figures of one snapshot may be a few allocations apart. The budget belongs to all processes of the tree
// (`crate::tree`).
/// Layout of a guard page.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    pub magic: u64,
    pub version: u32,
    /// Bytes of the page.
    pub size: u32,
    pub pid: u32,
    /// One of [`PageState`].
    pub state: AtomicU32,
    /// Number of `cards` in use.
    pub count: AtomicU32,
    /// Pools of the program that guard serves.
    pub pools: AtomicU32,
    /// Counts requests for room. The daemon makes room for a new number, and writes it to
    /// `room_request_answered` once it has tried.
    pub room_request: AtomicU64,
    pub room_request_bytes: AtomicU64,
    pub room_request_card: AtomicU32,
    /// MiB a second that come from host memory to a card, as measured before the first exchange; 0 before.
    pub bus_rate: AtomicU32,
    pub room_request_answered: AtomicU64,
    pub cards: [PageCard; CARDS],
    /// Number of refusals; the next one goes to `ooms[oom_count % OOMS]`.
    pub oom_count: AtomicU64,
    pub ooms: [Oom; OOMS],
    /// Bytes released so far on requests in `ask`, over all cards.
    pub given_back: AtomicU64,
    /// Host memory that the program has pinned or registered.
    pub pinned: AtomicU64,
    /// The most that `pinned` has been.
    pub pinned_peak: AtomicU64,
    /// Safe points at which the process could exchange memory; 0 while it has no cache to exchange.
    pub waits: AtomicU32,
    /// Counts reports of depths; written after `depths`.
    pub depth_reports: AtomicU32,
    /// Positions that each stream of the cache is about to use, written by whoever asks the engine.
    pub depths: [AtomicU32; DEPTHS],
    /// Bytes that an exchange has moved to the card so far, and the longest time in nanoseconds that it took
    /// at one safe point.
    pub exchanged: AtomicU64,
    pub longest_exchange: AtomicU64,
    /// Nanoseconds that exchanges have taken so far, with the choice of what to exchange.
    pub exchange_time: AtomicU64,
}

/// Defines a card's figures on the page, and their copy in a snapshot.
macro_rules! card_figures {
    ($($(#[$doc:meta])* $figure:ident,)*) => {
        /// Memory figures of the process on one card, in bytes.
        #[repr(C)]
        #[derive(Debug)]
        pub struct PageCard {
            pub uuid: [AtomicU64; 2],
            $($(#[$doc])* pub $figure: AtomicU64,)*
            /// Request number, written by the requesting process: a new number requests guard to release idle
            /// memory of pools on this card.
            pub ask: AtomicU32,
            /// The last number that guard has answered, written once the memory is given back.
            pub answered: AtomicU32,
        }

        impl PageCard {
            const fn new() -> Self {
                Self {
                    uuid: [const { AtomicU64::new(0) }; 2],
                    $($figure: AtomicU64::new(0),)*
                    ask: AtomicU32::new(0),
                    answered: AtomicU32::new(0),
                }
            }
        }

        /// Copy of a [`PageCard`] at one moment, in bytes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CardSnapshot {
            pub uuid: [u8; 16],
            $(pub $figure: u64,)*
            /// Numbers of the last request for idle memory, and of the last answer.
            pub ask: u32,
            pub answered: u32,
        }

        impl CardSnapshot {
            /// Reads the card at an offset of a page.
            fn read(page: &[u8], at: usize) -> Self {
                let mut uuid = [0; 16];
                // Two words of guard, read as the sixteen bytes that they were made of.
                uuid.copy_from_slice(&page[at + offset_of!(PageCard, uuid)..][..16]);
                Self {
                    uuid,
                    $($figure: snapshot::long(page, at + offset_of!(PageCard, $figure)),)*
                    ask: snapshot::word(page, at + offset_of!(PageCard, ask)),
                    answered: snapshot::word(page, at + offset_of!(PageCard, answered)),
                }
            }
        }
    };
}

card_figures! {
    total,
    /// Live allocations on the card, with the context.
    allocated,
    /// The part of `allocated` that guard's pools hold, in use or idle.
    reserved,
    /// The part of `reserved` that is idle.
    idle,
    /// Bytes in host memory because they did not fit; not part of `allocated`.
    spilled,
    /// The most that `allocated` has been.
    peak,
    /// The part of `allocated` that is the process's context, as far as it could be measured.
    context,
    /// Allocations so far.
    allocations,
    /// Refusals on this card.
    ooms,
    /// The most that `reserved` has been.
    reserved_peak,
    /// The most that `spilled` has been.
    spilled_peak,
}

/// Record of one refused allocation. `sequence` is written last; a reader skips a record with an unexpected
/// number.
#[repr(C)]
#[derive(Debug)]
pub struct Oom {
    /// Counts from 1; 0 is an entry never written.
    pub sequence: AtomicU64,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: AtomicU64,
    pub requested: AtomicU64,
    /// Bytes of the card that the process's tree held.
    pub allocated: AtomicU64,
    /// The tree's budget at that time.
    pub budget: AtomicU64,
    /// Free bytes of the card, by the driver.
    pub free: AtomicU64,
    pub card: AtomicU32,
    /// One of [`Refusal`].
    pub refusal: AtomicU32,
    reserved: AtomicU64,
}

impl Page {
    pub const SIZE: usize = size_of::<Self>();

    /// The page of a process that has not allocated anything.
    pub const fn new(pid: u32) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            size: BYTES,
            pid,
            state: AtomicU32::new(PageState::Idle.code()),
            count: AtomicU32::new(0),
            pools: AtomicU32::new(0),
            room_request: AtomicU64::new(0),
            room_request_bytes: AtomicU64::new(0),
            room_request_card: AtomicU32::new(0),
            bus_rate: AtomicU32::new(0),
            room_request_answered: AtomicU64::new(0),
            cards: [const { PageCard::new() }; CARDS],
            // The array of refusals follows its counter; both are read by offset.
            oom_count: AtomicU64::new(0),
            ooms: [const { Oom::new() }; OOMS],
            given_back: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            pinned_peak: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            depth_reports: AtomicU32::new(0),
            depths: [const { AtomicU32::new(0) }; DEPTHS],
            exchanged: AtomicU64::new(0),
            longest_exchange: AtomicU64::new(0),
            exchange_time: AtomicU64::new(0),
        }
    }

    /// Offset of the four bytes with which idle memory of a card is requested; `None` if a page has no such
    /// card.
    pub const fn ask_offset(card: usize) -> Option<usize> {
        if card < CARDS {
            Some(offset_of!(Self, cards) + card * size_of::<PageCard>() + offset_of!(PageCard, ask))
        } else {
            None
        }
    }

    /// Counts `size` bytes of host memory as pinned.
    pub fn pin(&self, size: u64) {
        let before = self.pinned.fetch_add(size, Relaxed);
        self.pinned_peak.fetch_max(before.saturating_add(size), Relaxed);
    }

    /// Counts them as no longer pinned.
    pub fn unpin(&self, size: u64) {
        // Exact: guard unpins only what it has counted, with the size of that time.
        self.pinned.fetch_sub(size, Relaxed);
    }

    /// Offset at which the daemon writes the number of the request that it has answered.
    pub const ROOM_REQUEST_ANSWERED_OFFSET: usize = offset_of!(Self, room_request_answered);

    /// Offsets at which depths are written, and then the number of their report.
    pub const DEPTHS_OFFSET: usize = offset_of!(Self, depths);
    pub const DEPTH_REPORTS_OFFSET: usize = offset_of!(Self, depth_reports);
    /// Offset at which safe points are counted.
    pub const WAITS_OFFSET: usize = offset_of!(Self, waits);
}

impl PageCard {
    /// Adds `size` bytes to the memory that the process holds.
    pub fn add(&self, size: u64) {
        // By the value that this addition made: a load behind it could miss a peak that another thread has
        // already left.
        let before = self.allocated.fetch_add(size, Relaxed);
        self.peak.fetch_max(before.saturating_add(size), Relaxed);
    }

    /// Raises the peaks of reserved and spilled bytes to the present figures.
    pub fn raise_peaks(&self) {
        for (peak, occupied) in [(&self.reserved_peak, &self.reserved), (&self.spilled_peak, &self.spilled)] {
            peak.fetch_max(occupied.load(Relaxed), Relaxed);
        }
    }

    /// Subtracts `size` bytes; saturates at zero.
    pub fn remove(&self, size: u64) {
        let _ = self
            .allocated
            // Saturating: another writer on the page must not make the figure wrap.
            .fetch_update(Relaxed, Relaxed, |allocated| Some(allocated.saturating_sub(size)));
    }

    /// True while a request for idle memory is open.
    #[inline]
    pub fn is_requested(&self) -> bool {
        // Relaxed: a request that is seen one call later is answered one call later.
        self.ask.load(Relaxed) != self.answered.load(Relaxed)
    }
}

impl Oom {
    const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            time: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            budget: AtomicU64::new(0),
            free: AtomicU64::new(0),
            card: AtomicU32::new(0),
            refusal: AtomicU32::new(0),
            reserved: AtomicU64::new(0),
        }
    }
}

// The layout is read by byte offsets, possibly by another build of plimsoll: it changes with VERSION only.
const _: () = {
    assert!(size_of::<PageCard>() == 112 && size_of::<Oom>() == 64);
    assert!(offset_of!(Page, cards) == 64);
    assert!(offset_of!(PageCard, ask) == 104 && offset_of!(PageCard, answered) == 108);
    assert!(offset_of!(Page, oom_count) == 64 + 112 * CARDS);
    assert!(offset_of!(Page, waits) == 3936 && size_of::<Page>() == 4096);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_the_most_that_was_held_and_nothing_falls_below_none() {
        let page = Page::new(1);
        let card = &page.cards[0];
        card.add(700);
        card.remove(300);
        card.add(100);
        assert_eq!((card.allocated.load(Relaxed), card.peak.load(Relaxed)), (500, 700));
        card.remove(u64::MAX);
        assert_eq!(card.allocated.load(Relaxed), 0);
        card.spilled.store(9, Relaxed);
        card.raise_peaks();
        assert_eq!(card.spilled_peak.load(Relaxed), 9);
    }

    #[test]
    fn a_page_says_its_own_size() {
        assert_eq!(usize::try_from(Page::new(1).size).unwrap(), Page::SIZE);
    }
}

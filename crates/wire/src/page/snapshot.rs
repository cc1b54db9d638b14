//! Reads the shared-memory file of a process under guard (the preloaded library) into one consistent
//! snapshot.

use core::mem::{offset_of, size_of};

use super::{CARDS, CardSnapshot, MAGIC, OOMS, Oom, Page, PageCard, PageState, Refusal, UNLIMITED, VERSION};

/// Copy of a guard page at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSnapshot {
    pub pid: u32,
    pub state: PageState,
    pub pools: u32,
    /// The open request for room: its number, the card and the bytes.
    pub room_request: Option<(u64, u32, u64)>,
    pub oom_count: u64,
    /// Bytes that were given back on request so far, of all cards.
    pub given_back: u64,
    /// Pinned host memory, and its peak.
    pub pinned: u64,
    pub pinned_peak: u64,
    /// Safe points for an exchange so far, and reports of depths.
    pub waits: u32,
    pub depth_reports: u32,
    /// Bytes that were exchanged, the longest pause for it and the time of all in nanoseconds.
    pub exchanged: u64,
    pub longest_exchange: u64,
    pub exchange_time: u64,
    /// MiB a second from host memory to a card; 0 where it was not measured.
    pub bus_rate: u32,
    count: usize,
    cards: [CardSnapshot; CARDS],
    ooms: [Option<OomSnapshot>; OOMS],
}

/// Copy of a complete [`Oom`] record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomSnapshot {
    pub sequence: u64,
    pub time: u64,
    pub requested: u64,
    /// Bytes of the card that the process's tree held, and its budget; `None` without one.
    pub allocated: u64,
    pub budget: Option<u64>,
    pub free: u64,
    pub card: u32,
    pub refusal: Refusal,
}

/// Error: the bytes are not a guard page of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    #[error("a shared-memory file of guard has {} bytes, but this file has {bytes}", Page::SIZE)]
    Short { bytes: usize },
    #[error("this is not a shared-memory file of guard: it does not begin with PLIMPAGE")]
    NotAPage,
    #[error(
        "guard's shared-memory file has version {found}, but this program reads version {VERSION}; guard and \
        plimsoll must come from the same build"
    )]
    Version { found: u32 },
    #[error("guard's shared-memory file has an unknown state, {found}")]
    State { found: u32 },
}

impl PageSnapshot {
    /// Reads the bytes of a page.
    pub fn read(bytes: &[u8]) -> Result<Self, PageError> {
        let short = PageError::Short { bytes: bytes.len() };
        let page = bytes.get(..Page::SIZE).ok_or(short)?;
        if long(page, offset_of!(Page, magic)) != MAGIC {
            return Err(PageError::NotAPage);
        }
        // Before any other field: their offsets hold for this version only.
        let version = word(page, offset_of!(Page, version));
        if version != VERSION {
            return Err(PageError::Version { found: version });
        }
        let count = word(page, offset_of!(Page, count));
        let state = word(page, offset_of!(Page, state));
        let room_request = long(page, offset_of!(Page, room_request));
        Ok(Self {
            pid: word(page, offset_of!(Page, pid)),
            // An unknown state is an error and not a default: it would be a newer guard, or no page.
            state: PageState::of(state).ok_or(PageError::State { found: state })?,
            pools: word(page, offset_of!(Page, pools)),
            room_request: (room_request != long(page, offset_of!(Page, room_request_answered))).then(|| {
                let card = word(page, offset_of!(Page, room_request_card));
                (room_request, card, long(page, offset_of!(Page, room_request_bytes)))
            }),
            oom_count: long(page, offset_of!(Page, oom_count)),
            given_back: long(page, offset_of!(Page, given_back)),
            pinned: long(page, offset_of!(Page, pinned)),
            pinned_peak: long(page, offset_of!(Page, pinned_peak)),
            waits: word(page, offset_of!(Page, waits)),
            depth_reports: word(page, offset_of!(Page, depth_reports)),
            exchanged: long(page, offset_of!(Page, exchanged)),
            longest_exchange: long(page, offset_of!(Page, longest_exchange)),
            exchange_time: long(page, offset_of!(Page, exchange_time)),
            bus_rate: word(page, offset_of!(Page, bus_rate)),
            // The page is another process's memory: an index from it is never trusted.
            count: usize::try_from(count).map_or(CARDS, |count| count.min(CARDS)),
            cards: core::array::from_fn(|index| {
                CardSnapshot::read(page, offset_of!(Page, cards) + index * size_of::<PageCard>())
            }),
            ooms: core::array::from_fn(|index| oom(page, offset_of!(Page, ooms) + index * size_of::<Oom>())),
        })
    }

    /// The cards that the process has seen, in its own order.
    pub fn cards(&self) -> &[CardSnapshot] {
        &self.cards[..self.count]
    }

    /// The remembered refusals, in no order; `sequence` gives one.
    pub fn ooms(&self) -> impl Iterator<Item = &OomSnapshot> {
        self.ooms.iter().flatten()
    }
}

fn oom(page: &[u8], at: usize) -> Option<OomSnapshot> {
    let number = |offset: usize| long(page, at + offset);
    let sequence = number(offset_of!(Oom, sequence));
    let budget = number(offset_of!(Oom, budget));
    // An entry that is being written has sequence 0 or an unknown code, and is left out.
    let refusal = Refusal::of(word(page, at + offset_of!(Oom, refusal)))?;
    (sequence != 0).then(|| OomSnapshot {
        sequence,
        time: number(offset_of!(Oom, time)),
        requested: number(offset_of!(Oom, requested)),
        allocated: number(offset_of!(Oom, allocated)),
        budget: (budget != UNLIMITED).then_some(budget),
        free: number(offset_of!(Oom, free)),
        card: word(page, at + offset_of!(Oom, card)),
        refusal,
    })
}

/// The eight bytes at an offset that the layout keeps inside the page, in this machine's order, as atomics
/// wrote them.
pub(super) fn long(page: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_ne_bytes(bytes)
}

/// As [`long`], of four bytes.
pub(super) fn word(page: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[at..at + 4]);
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page's bytes with these eight-byte numbers written into them.
    fn bytes(numbers: &[(usize, u64)]) -> std::vec::Vec<u8> {
        let mut bytes = std::vec![0; Page::SIZE];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[offset_of!(Page, version)..][..4].copy_from_slice(&VERSION.to_ne_bytes());
        for (at, number) in numbers {
            bytes[*at..*at + 8].copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_snapshot_says_what_the_page_says() {
        let peak = offset_of!(Page, cards) + offset_of!(PageCard, peak);
        let page = bytes(&[
            (offset_of!(Page, count), 1),
            (peak, 5000),
            (offset_of!(Page, room_request), 3),
            (offset_of!(Page, room_request_bytes), 77),
        ]);
        let snapshot = PageSnapshot::read(&page).unwrap();
        assert_eq!(snapshot.state, PageState::Idle);
        assert_eq!(snapshot.cards().len(), 1);
        assert_eq!(snapshot.cards()[0].peak, 5000);
        assert_eq!(snapshot.room_request, Some((3, 0, 77)));
        assert_eq!(snapshot.ooms().count(), 0);
    }

    #[test]
    fn malformed_pages_are_rejected_by_their_defect() {
        assert_eq!(PageSnapshot::read(&[0; 9]), Err(PageError::Short { bytes: 9 }));
        assert_eq!(PageSnapshot::read(&[0; 5000]), Err(PageError::NotAPage));
        let mut page = bytes(&[]);
        page[offset_of!(Page, version)] = 9;
        assert_eq!(PageSnapshot::read(&page), Err(PageError::Version { found: 9 }));
        let mut page = bytes(&[]);
        page[offset_of!(Page, state)] = 9;
        assert_eq!(PageSnapshot::read(&page), Err(PageError::State { found: 9 }));
    }
}

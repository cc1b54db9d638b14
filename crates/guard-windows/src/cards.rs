//! Cards of this process: their figures on its page, and its claims in the ledger of the tree.

use std::ffi::c_int;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, Release};

use plimsoll_wire::options::GuardOptions;
use plimsoll_wire::page::{CARDS, OOMS, Page, PageCard, PageState, Refusal, UNLIMITED};
use plimsoll_wire::tree::{ClaimResult, FILE, SlotOwner, TreeLedger, key};

use crate::say::say;
use crate::{driver, owner, section, settings};

/// Attempts of a claim that crosses others: each is over in well under a microsecond.
const TRIES: usize = 64;

/// Number of a card, as the driver numbers it for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CardIndex(u8);

/// Page, ledger and place of this process.
#[derive(Debug)]
struct Accounts {
    page: &'static Page,
    tree: &'static TreeLedger,
    me: SlotOwner,
    slot: usize,
    /// The ledger's place of each card: processes may number cards differently.
    places: Vec<usize>,
}

static ACCOUNTS: OnceLock<Option<Accounts>> = OnceLock::new();

/// The card of the calling thread's context. The first call in a guarded process opens the accounts.
pub(crate) fn current() -> Option<CardIndex> {
    of(driver::device()?)
}

pub(crate) fn of(device: c_int) -> Option<CardIndex> {
    let count = accounts()?.places.len();
    u8::try_from(device).ok().filter(|number| usize::from(*number) < count).map(CardIndex)
}

fn accounts() -> Option<&'static Accounts> {
    ACCOUNTS.get_or_init(|| Accounts::open(settings::options()?)).as_ref()
}

impl Accounts {
    /// Opens page and ledger; `None`, after a line on stderr, if the budget cannot be kept.
    fn open(options: &GuardOptions) -> Option<Self> {
        let folder = settings::folder();
        let page = page(folder.as_deref());
        let count = describe_cards(page);
        let tree = ledger(folder.as_deref());
        let me = owner::me();
        let uuid = |index: usize| uuid(&page.cards[index]);
        let number = |index: usize| u8::try_from(index).unwrap_or(0);
        let places: Option<Vec<usize>> =
            (0..count).map(|index| tree.place(key(uuid(index), number(index)))).collect();
        let slot = tree.enter(me, 0, |other, _| owner::is_gone(other));
        let (Some(places), Some(slot)) = (places, slot) else {
            say!("the shared ledger of allocations is full; this process runs unguarded");
            page.state.store(PageState::Disarmed.code(), Release);
            return None;
        };
        for (index, place) in places.iter().enumerate() {
            if let Some(budget) = options.budget_of(&uuid(index)) {
                tree.say_budget(*place, budget);
            }
        }
        page.state.store(PageState::Armed.code(), Release);
        Some(Self { page, tree, me, slot, places })
    }

    fn place(&self, card: CardIndex) -> usize {
        self.places.get(usize::from(card.0)).copied().unwrap_or(0)
    }

    fn card(&self, card: CardIndex) -> &'static PageCard {
        &self.page.cards[usize::from(card.0) % CARDS]
    }

    /// Empties the slots of processes that have ended; true if there were any.
    fn sweep(&self) -> bool {
        self.tree.is_shared(self.me) && self.tree.sweep(self.me, |other, _| owner::is_gone(other))
    }

    fn claim(&self, card: CardIndex, size: u64) -> bool {
        for _ in 0..TRIES {
            match self.tree.claim(self.slot, self.place(card), size) {
                ClaimResult::Granted => return true,
                ClaimResult::Full if self.sweep() => {}
                ClaimResult::Full => return false,
                // Processes that cross in step for ever are parted by the system's scheduler.
                ClaimResult::Crossed => std::thread::yield_now(),
            }
        }
        false
    }
}

/// The page of this process, shared if there is a folder.
fn page(folder: Option<&Path>) -> &'static Page {
    let number = std::process::id();
    let shared = folder.and_then(|folder| {
        let mapped = section::map(&folder.join(format!("{number}.page")), Page::SIZE);
        mapped.map_err(|error| say_unshared("page", folder, &error)).ok()
    });
    match shared {
        Some(place) => {
            let place = place.cast::<Page>();
            // SAFETY: a view of so many bytes, which begins at a page of memory and is never unmapped. No
            // other process writes to the file before it reads the magic number.
            unsafe {
                place.write(Page::new(number));
                &*place
            }
        }
        None => Box::leak(Box::new(Page::new(number))),
    }
}

/// The ledger of the tree, or one of this process alone.
fn ledger(folder: Option<&Path>) -> &'static TreeLedger {
    let shared = folder.and_then(|folder| {
        let mapped = section::map(&folder.join(FILE), TreeLedger::SIZE);
        mapped.map_err(|error| say_unshared("ledger of allocations", folder, &error)).ok()
    });
    match shared {
        // SAFETY: a view of so many bytes that is never unmapped. Its fields are atomics, for which all bytes
        // are values, and zeroes are an empty ledger.
        Some(place) => unsafe { &*place.cast::<TreeLedger>() },
        None => Box::leak(Box::default()),
    }
}

fn say_unshared(what: &str, folder: &Path, error: &io::Error) {
    say!("cannot share the {what} in {}: {error}; it is this process's alone", folder.display());
}

/// Enters the cards of the driver on the page, and returns their number.
fn describe_cards(page: &Page) -> usize {
    let mut count = 0;
    // SAFETY: the place is ours.
    unsafe { driver::cuDeviceGetCount(&raw mut count) };
    let count = usize::try_from(count).unwrap_or(0).min(CARDS);
    for (card, device) in page.cards.iter().zip(0..).take(count) {
        let (mut uuid, mut total) = ([0_u8; 16], 0_usize);
        // SAFETY: the device exists, and the places are ours.
        unsafe {
            if driver::cuDeviceGetUuid_v2(uuid.as_mut_ptr(), device) != driver::SUCCESS {
                driver::cuDeviceGetUuid(uuid.as_mut_ptr(), device);
            }
            driver::cuDeviceTotalMem_v2(&raw mut total, device);
        }
        let (halves, _) = uuid.as_chunks::<8>();
        for (place, half) in card.uuid.iter().zip(halves) {
            place.store(u64::from_le_bytes(*half), Relaxed);
        }
        card.total.store(driver::bytes(total), Relaxed);
    }
    page.count.store(u32::try_from(count).unwrap_or(0), Release);
    count
}

fn uuid(card: &PageCard) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (half, place) in uuid.chunks_exact_mut(8).zip(&card.uuid) {
        half.copy_from_slice(&place.load(Relaxed).to_le_bytes());
    }
    uuid
}

impl CardIndex {
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Claims `size` bytes of the budget; false, and nothing claimed, if they would pass it.
    pub(crate) fn claim(self, size: u64) -> bool {
        accounts().is_none_or(|accounts| accounts.claim(self, size))
    }

    /// Returns a claim that the driver did not grant.
    pub(crate) fn take_back(self, size: u64) {
        if let Some(accounts) = accounts() {
            accounts.tree.take_back(accounts.slot, accounts.place(self), size);
        }
    }

    /// Counts a claim as held.
    pub(crate) fn confirm(self, size: u64) {
        if let Some(accounts) = accounts() {
            let (card, place) = (accounts.card(self), accounts.place(self));
            card.add(size);
            card.allocations.fetch_add(1, Relaxed);
            accounts.tree.confirm(accounts.slot, place, size);
            accounts.tree.raise_peak(place, || _ = accounts.sweep());
        }
    }

    /// Gives back `size` held bytes.
    pub(crate) fn give(self, size: u64) {
        if let Some(accounts) = accounts() {
            accounts.card(self).remove(size);
            accounts.tree.give(accounts.slot, accounts.place(self), size);
        }
    }

    /// The tree's budget; [`UNLIMITED`] without one.
    pub(crate) fn budget(self) -> u64 {
        accounts().map_or(UNLIMITED, |accounts| accounts.tree.budget(accounts.place(self)))
    }

    /// Unclaimed bytes of the budget; [`UNLIMITED`] without one.
    pub(crate) fn headroom(self) -> u64 {
        accounts().map_or(UNLIMITED, |accounts| {
            accounts.sweep();
            accounts.tree.headroom(accounts.place(self))
        })
    }

    /// Bytes that the tree holds.
    pub(crate) fn occupied(self) -> u64 {
        accounts().map_or(0, |accounts| accounts.tree.occupied(accounts.place(self)))
    }

    /// Adds to the bytes that guard's pools hold, or takes from them.
    pub(crate) fn reserve(self, size: u64) {
        if let Some(accounts) = accounts() {
            let card = accounts.card(self);
            card.reserved.fetch_add(size, Relaxed);
            card.raise_peaks();
        }
    }

    pub(crate) fn unreserve(self, size: u64) {
        if let Some(accounts) = accounts() {
            accounts.card(self).reserved.fetch_sub(size, Relaxed);
        }
    }

    /// Records a refusal on the page.
    pub(crate) fn refuse(self, refusal: Refusal, requested: u64, free: u64) {
        let Some(Accounts { page, .. }) = accounts() else { return };
        let number = page.oom_count.fetch_add(1, Relaxed);
        let oom = &page.ooms[usize::try_from(number).unwrap_or(0) % OOMS];
        // 0 while the fields change: a reader ignores half a record.
        oom.sequence.store(0, Release);
        oom.requested.store(requested, Relaxed);
        oom.allocated.store(self.occupied(), Relaxed);
        oom.budget.store(self.budget(), Relaxed);
        oom.free.store(free, Relaxed);
        oom.card.store(u32::from(self.0), Relaxed);
        oom.refusal.store(refusal.code(), Relaxed);
        oom.sequence.store(number + 1, Release);
        page.cards[usize::from(self.0) % CARDS].ooms.fetch_add(1, Relaxed);
    }
}

/// Counts one more pool that guard serves.
pub(crate) fn count_pool() {
    if let Some(accounts) = accounts() {
        accounts.page.pools.fetch_add(1, Relaxed);
    }
}

//! The slots of the vtable, and whose they are.
//!
//! DECISION: the slots are changed and the symbols are left alone. g++ turns the virtual calls of builds without virtual memory
//! management into a comparison of the slot with the address of `alloc` and an inlined copy of it; with another address
//! in the slot the comparison fails and the call comes to us, whereas a substituted symbol would change both sides of it
//! and never be called. A slot is one aligned word, so that a thread that calls through it meanwhile gets the old function or
//! the new one. `alloc` is changed last and restored first: whoever gets a block from us finds our `free`.
//!
//! A takeover must prove itself: the first `alloc` has sane arguments, and a `free` of one of our blocks arrives within
//! [`PATIENCE`] of them. Otherwise `alloc` is restored, and that is said.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::find::{Methods, Vtable};
use super::symbols::Part;
use super::{entry, loaded};

/// Allocations that may come before the first of their blocks is given back. ggml holds a dozen at once.
const PATIENCE: u32 = 128;

/// An object points at its vtable's third word, behind the offset to the top and the type.
const HEAD: usize = 2;

/// Copies of ggml that one process may have loaded.
const COPIES: usize = 8;

/// The methods in the order in which their slots are changed.
const ORDER: [Part; 4] = [Part::Free, Part::Destroy, Part::Delete, Part::Alloc];

/// One vtable that leads to us.
#[derive(Debug)]
pub(super) struct Takeover {
    /// What objects of the class begin with; 0 for none.
    point: AtomicUsize,
    state: AtomicU32,
    /// Allocations before the first `free`.
    unproved: AtomicU32,
    slots: [Slot; 4],
}

/// A slot by its address, 0 if the class has none, and the function that was in it.
#[derive(Debug)]
struct Slot {
    place: AtomicUsize,
    original: AtomicUsize,
}

const TAKEN: u32 = 1;
const PROVED: u32 = 2;
const RESTORED: u32 = 3;

static TAKEOVERS: [Takeover; COPIES] = [const { Takeover::none() }; COPIES];

/// Why a vtable was left as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Its slots are not the methods.
    Shape,
    /// Its page would not be written to.
    Sealed,
    /// There are too many of them.
    Crowd,
}

/// Takes over a vtable, unless that has been done or was undone. To be called under the loader's lock.
pub(super) fn take(vtable: &Vtable, methods: &Methods) -> Result<(), Left> {
    let point = vtable.address + HEAD * size_of::<usize>();
    let known = TAKEOVERS.iter().find(|taken| taken.point.load(Acquire) == point);
    if known.is_some_and(|taken| taken.stands() || taken.state.load(Acquire) == RESTORED) {
        return Ok(());
    }
    let places = places(vtable, methods).ok_or(Left::Shape)?;
    let taken = known
        .or_else(|| TAKEOVERS.iter().find(|taken| taken.point.load(Acquire) == 0))
        .ok_or(Left::Crowd)?;
    taken.fill(&places);
    taken.point.store(point, Release);
    if taken.change() {
        return Ok(());
    }
    taken.restore();
    Err(Left::Sealed)
}

/// Forgets what is no longer loaded: its place may be another object's by now.
pub(super) fn keep(vtables: &[Vtable]) {
    for taken in &TAKEOVERS {
        let point = taken.point.load(Acquire);
        let table = point.wrapping_sub(HEAD * size_of::<usize>());
        if point != 0 && !vtables.iter().any(|vtable| vtable.address == table) {
            taken.point.store(0, Release);
        }
    }
}

/// The takeover that an object belongs to.
///
/// # Safety
/// `this` is null or an object of a class with virtual methods.
pub(super) unsafe fn of(this: usize) -> Option<&'static Takeover> {
    if this == 0 || !this.is_multiple_of(align_of::<usize>()) {
        return TAKEOVERS.first();
    }
    // SAFETY: such an object begins with the address of its vtable.
    let point = unsafe { core::ptr::with_exposed_provenance::<usize>(this).read() };
    let mut takeovers = TAKEOVERS.iter();
    takeovers.find(|taken| taken.point.load(Acquire) == point)
}

/// Where the methods stand: each in one slot, as many of them as are needed.
fn places(vtable: &Vtable, methods: &Methods) -> Option<[(usize, usize); 4]> {
    let mut places = [(0, 0); 4];
    for index in HEAD..vtable.slots {
        let place = vtable.address + index * size_of::<usize>();
        let target = loaded::word(place)?;
        let part = methods.iter().find(|(_, address)| *address == target);
        let position = part.and_then(|(part, _)| ORDER.iter().position(|ordered| ordered == part));
        if let Some(position) = position {
            // A method that stands in two slots is one that we do not understand.
            (places[position] == (0, 0)).then_some(())?;
            places[position] = (place, target);
        }
    }
    let [free, destroy, delete, alloc] = places.map(|(place, _)| place != 0);
    (alloc && free && (destroy || delete)).then_some(places)
}

impl Takeover {
    const fn none() -> Self {
        Self {
            point: AtomicUsize::new(0),
            state: AtomicU32::new(0),
            unproved: AtomicU32::new(0),
            slots: [const {
                Slot {
                    place: AtomicUsize::new(0),
                    original: AtomicUsize::new(0),
                }
            }; 4],
        }
    }

    fn fill(&self, places: &[(usize, usize); 4]) {
        for (slot, (place, original)) in self.slots.iter().zip(places) {
            slot.place.store(*place, Relaxed);
            slot.original.store(*original, Relaxed);
        }
        self.unproved.store(0, Relaxed);
        self.state.store(TAKEN, Release);
    }

    /// The function of ggml's own that stood in the slot of this method.
    pub(super) fn original(&self, part: Part) -> usize {
        let position = ORDER.iter().position(|ordered| *ordered == part);
        position.map_or(0, |position| self.slots[position].original.load(Acquire))
    }

    /// Whether its slots still lead to us: a library may have been unloaded and loaded again at the same place.
    fn stands(&self) -> bool {
        let mut slots = self.slots.iter().zip(ORDER);
        slots.all(|(slot, part)| match slot.place.load(Acquire) {
            0 => true,
            place => loaded::word(place) == Some(entry::of(part)),
        })
    }

    fn change(&self) -> bool {
        let mut slots = self.slots.iter().zip(ORDER);
        slots.all(|(slot, part)| slot.write(entry::of(part)))
    }

    fn restore(&self) {
        self.state.store(RESTORED, Release);
        for slot in self.slots.iter().rev() {
            slot.write(slot.original.load(Relaxed));
        }
    }

    /// Gives ggml its methods back; but once we have handed out a block, `alloc` alone: the others send on what is not ours, and
    /// ggml's own would count our blocks wrong. False if that was done before.
    #[cold]
    pub(super) fn disarm(&self) -> bool {
        let first = self.state.swap(RESTORED, Release) != RESTORED;
        let [.., alloc] = &self.slots;
        let used = self.unproved.load(Relaxed) > 0;
        if first && used {
            loaded::locked(|_| _ = alloc.write(alloc.original.load(Relaxed)));
        } else if first {
            loaded::locked(|_| self.restore());
        }
        first
    }

    /// Whether it may serve: not restored.
    pub(super) fn serves(&self) -> bool {
        self.state.load(Acquire) != RESTORED
    }

    /// Whether nothing has come through it yet.
    pub(super) fn fresh(&self) -> bool {
        self.state.load(Relaxed) == TAKEN && self.unproved.load(Relaxed) == 0
    }

    /// Counts an allocation. False if too many have come without one of them being given back to us.
    pub(super) fn plausible(&self) -> bool {
        self.state.load(Relaxed) == PROVED || self.unproved.fetch_add(1, Relaxed) < PATIENCE
    }

    /// One of our blocks was given back to us.
    pub(super) fn prove(&self) {
        if self.state.load(Relaxed) == TAKEN {
            let _ = self.state.compare_exchange(TAKEN, PROVED, Release, Relaxed);
        }
    }
}

impl Slot {
    /// Writes to the slot, whatever protects its page. True if there is no such slot.
    fn write(&self, function: usize) -> bool {
        let place = self.place.load(Relaxed);
        place == 0 || loaded::write(place, function)
    }
}

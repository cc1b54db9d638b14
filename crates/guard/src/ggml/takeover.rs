//! Replaces the function pointers in the vtable of ggml's legacy pool by guard's functions.
//!
//! The original `alloc` is restored if the arguments of the first call are invalid, or if no block is
//! freed within 128 allocations.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::locate::{Methods, Vtable};
use super::mapped_objects;
use super::symbols::ClassPart;

/// Allocations that may come before the first of their blocks is given back. ggml holds a dozen at once.
const PROBATION: u32 = 128;

/// An object points at its vtable's third word, behind the offset to the top and the type.
const HEAD: usize = 2;

/// Copies of ggml that one process may have loaded.
const COPIES: usize = 8;

/// Function that returns the address of a method's replacement; 0 for none.
pub(super) type ReplacementOf = fn(ClassPart) -> usize;

// `alloc` is changed last and restored first, so every block that this library allocates is also freed by it.
/// The methods in the order in which their slots are changed.
const ORDER: [ClassPart; 4] = [ClassPart::Free, ClassPart::Destroy, ClassPart::Delete, ClassPart::Alloc];

// DECISION: the slots are replaced, not the symbols. g++ compares a slot with the address of `alloc` and runs
// an inlined copy if they are equal. A substituted symbol would change both sides and never be called.
/// A vtable whose slots were replaced by guard's functions.
#[derive(Debug)]
pub(super) struct Takeover {
    /// First word of the objects of the class; 0 for a free entry.
    point: AtomicUsize,
    state: AtomicU32,
    /// Allocations before the first `free`.
    unproved: AtomicU32,
    slots: [VtableSlot; 4],
}

/// A slot by its address (0 if the class has none), with its original and its replacing function.
#[derive(Debug)]
struct VtableSlot {
    place: AtomicUsize,
    original: AtomicUsize,
    replacement: AtomicUsize,
}

const TAKEN: u32 = 1;
const PROVED: u32 = 2;
const RESTORED: u32 = 3;

static TAKEOVERS: [Takeover; COPIES] = [const { Takeover::none() }; COPIES];

/// Reason why a vtable was left unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeoverError {
    /// Its slots do not hold the methods.
    UnknownShape,
    /// Its page cannot be written to.
    NotWritable,
    /// The table of takeovers is full.
    TooMany,
}

/// Takes over a vtable, unless that has been done or was undone. Needs the loader's lock.
pub(super) fn take(
    vtable: &Vtable,
    methods: &Methods,
    replacement_of: ReplacementOf,
) -> Result<(), TakeoverError> {
    let point = vtable.address + HEAD * size_of::<usize>();
    let known = TAKEOVERS.iter().find(|taken| taken.point.load(Acquire) == point);
    if known.is_some_and(|taken| taken.stands() || taken.state.load(Acquire) == RESTORED) {
        return Ok(());
    }
    let places = places(vtable, methods).ok_or(TakeoverError::UnknownShape)?;
    let taken = known
        .or_else(|| TAKEOVERS.iter().find(|taken| taken.point.load(Acquire) == 0))
        .ok_or(TakeoverError::TooMany)?;
    taken.fill(&places, replacement_of);
    taken.point.store(point, Release);
    if taken.change() {
        return Ok(());
    }
    taken.restore();
    Err(TakeoverError::NotWritable)
}

/// Forgets vtables that are no longer loaded: their addresses may be another object's by now.
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
        // Not an object; any takeover will do, since all lead to the same class.
        return TAKEOVERS.first();
    }
    // SAFETY: such an object begins with the address of its vtable.
    let point = unsafe { core::ptr::with_exposed_provenance::<usize>(this).read() };
    let mut takeovers = TAKEOVERS.iter();
    takeovers.find(|taken| taken.point.load(Acquire) == point)
}

/// Addresses of the methods' slots, in [`ORDER`]; None unless the necessary ones are there, each once.
fn places(vtable: &Vtable, methods: &Methods) -> Option<[(usize, usize); 4]> {
    let mut places = [(0, 0); 4];
    for index in HEAD..vtable.slots {
        let place = vtable.address + index * size_of::<usize>();
        let target = mapped_objects::word(place)?;
        let part = methods.iter().find(|(_, address)| *address == target);
        let position = part.and_then(|(part, _)| ORDER.iter().position(|ordered| ordered == part));
        if let Some(position) = position {
            // A method in two slots: a class that we do not understand.
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
                VtableSlot {
                    place: AtomicUsize::new(0),
                    original: AtomicUsize::new(0),
                    replacement: AtomicUsize::new(0),
                }
            }; 4],
        }
    }

    fn fill(&self, places: &[(usize, usize); 4], replacement_of: ReplacementOf) {
        for ((slot, part), (place, original)) in self.slots.iter().zip(ORDER).zip(places) {
            slot.place.store(*place, Relaxed);
            slot.original.store(*original, Relaxed);
            slot.replacement.store(replacement_of(part), Relaxed);
        }
        self.unproved.store(0, Relaxed);
        self.state.store(TAKEN, Release);
    }

    /// ggml's own function for this method.
    pub(super) fn original(&self, part: ClassPart) -> usize {
        let position = ORDER.iter().position(|ordered| *ordered == part);
        position.map_or(0, |position| self.slots[position].original.load(Acquire))
    }

    /// True if its slots still lead to guard: a library may have been unloaded and loaded again at the same
    /// address.
    fn stands(&self) -> bool {
        self.slots.iter().all(|slot| match slot.place.load(Acquire) {
            0 => true,
            place => mapped_objects::word(place) == Some(slot.replacement.load(Relaxed)),
        })
    }

    fn change(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.all(|slot| slot.write(slot.replacement.load(Relaxed)))
    }

    fn restore(&self) {
        self.state.store(RESTORED, Release);
        for slot in self.slots.iter().rev() {
            slot.write(slot.original.load(Relaxed));
        }
    }

    /// Restores ggml's methods; only `alloc` once guard has handed out a block: the other replacements pass
    /// on foreign blocks, and ggml's own would count guard's blocks wrong. False if that was done before.
    #[cold]
    pub(super) fn disarm(&self) -> bool {
        let first = self.state.swap(RESTORED, Release) != RESTORED;
        let [.., alloc] = &self.slots;
        let used = self.unproved.load(Relaxed) > 0;
        if first && used {
            mapped_objects::locked(|_| _ = alloc.write(alloc.original.load(Relaxed)));
        } else if first {
            mapped_objects::locked(|_| self.restore());
        }
        first
    }

    /// True unless it was restored.
    pub(super) fn serves(&self) -> bool {
        self.state.load(Acquire) != RESTORED
    }

    /// True before the first allocation.
    pub(super) fn fresh(&self) -> bool {
        self.state.load(Relaxed) == TAKEN && self.unproved.load(Relaxed) == 0
    }

    /// Counts an allocation. False if too many came without one of their blocks being freed here.
    pub(super) fn plausible(&self) -> bool {
        self.state.load(Relaxed) == PROVED || self.unproved.fetch_add(1, Relaxed) < PROBATION
    }

    /// Ends the probation: a block of guard's was freed here.
    pub(super) fn prove(&self) {
        if self.state.load(Relaxed) == TAKEN {
            let _ = self.state.compare_exchange(TAKEN, PROVED, Release, Relaxed);
        }
    }
}

impl VtableSlot {
    /// Writes to the slot, also on a sealed page. True if the class has no such slot.
    fn write(&self, function: usize) -> bool {
        let place = self.place.load(Relaxed);
        place == 0 || mapped_objects::write(place, function)
    }
}

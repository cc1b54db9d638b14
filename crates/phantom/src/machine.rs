//! Holds the simulated cards of one process, and the memory requested from them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use plimsoll_wire::env;

use crate::cards::{self, Card};
use crate::memory::Memory;
use crate::report::{Report, say};
use crate::system::{Lock, runtime, thread, value};
use crate::visible;

/// Success of every interface.
pub(crate) const SUCCESS: c_int = 0;
/// `cudaErrorInvalidValue`, `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID: c_int = 1;
/// `cudaErrorMemoryAllocation`, `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: c_int = 2;
/// `cudaErrorNoDevice`, `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: c_int = 100;
/// `cudaErrorInvalidDevice`, `CUDA_ERROR_INVALID_DEVICE`.
pub(crate) const INVALID_DEVICE: c_int = 101;

pub(crate) struct Machine {
    pub(crate) cards: Vec<Card>,
    pub(crate) memory: Memory,
    /// Major version of the runtime that the engine was linked with; 0 where it has none of its own.
    pub(crate) runtime: u32,
    /// The current card of each thread, by its number; a thread without an entry uses the first.
    current: Lock<BTreeMap<i64, usize>>,
    /// The cards as Vulkan's objects, made at the first question.
    pub(crate) physical: Lock<Option<Vec<u64>>>,
}

static MACHINE: Lock<Option<&'static Machine>> = Lock::new(None);

/// The state of this process.
pub(crate) fn machine() -> &'static Machine {
    // DECISION: the state is created by the first call that needs it, and never freed. If the cards'
    // descriptions cannot be read, the engine finds no card.
    let mut machine = MACHINE.hold();
    machine.get_or_insert_with(|| Box::leak(Box::new(Machine::from_environment())))
}

impl Machine {
    fn from_environment() -> Self {
        let reported = value(env::PHANTOM_CARDS).unwrap_or_default();
        let cards = cards::parse(&reported).unwrap_or_else(|what| {
            say!("no card: {}: {what}", env::PHANTOM_CARDS);
            Vec::new()
        });
        let report = value(env::PHANTOM_REPORT).filter(|path| !path.is_empty());
        let report = Report::open(report.as_deref());
        let (runtime, amd) = runtime();
        // The list is CUDA's and Vulkan's order as it is; an engine on ROCm may hide cards from itself.
        let cards = if amd { visible::left(cards, visible::HIDING.map(value)) } else { cards };
        if runtime > 0 {
            say!("CUDA runtime {runtime}");
        }
        Self {
            memory: Memory::new(report),
            cards,
            runtime,
            current: Lock::new(BTreeMap::new()),
            physical: Lock::new(None),
        }
    }

    /// The card with this number, as the engine counts.
    pub(crate) fn card(&self, number: c_int) -> Option<&Card> {
        self.cards.get(usize::try_from(number).ok()?)
    }

    /// The number of the card that this thread uses.
    pub(crate) fn current(&self) -> usize {
        // With one card there is nothing to look up, and no system call.
        if self.cards.len() < 2 {
            return 0;
        }
        self.current.hold().get(&thread()).copied().unwrap_or(0)
    }

    pub(crate) fn use_card(&self, number: usize) {
        if self.cards.len() > 1 {
            self.current.hold().insert(thread(), number);
        }
    }
}

/// Puts the address of a word that nothing reads where the caller keeps its object.
///
/// # Safety
/// `made` is null, or the address of a pointer.
pub(crate) unsafe fn make(created: *mut *mut c_void) -> c_int {
    // Each has an address of its own: ggml keeps streams and events apart by it.
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    let address = NEXT.fetch_add(16, Relaxed);
    // SAFETY: the caller's promise.
    unsafe { give(created, core::ptr::without_provenance_mut(address)) }
}

/// Writes an answer through a pointer of the caller.
///
/// # Safety
/// `place` is null, or the address of a `T`.
pub(crate) unsafe fn give<T>(place: *mut T, answer: T) -> c_int {
    if place.is_null() {
        return INVALID;
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(answer) };
    SUCCESS
}

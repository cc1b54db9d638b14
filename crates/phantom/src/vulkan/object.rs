//! Vulkan objects to which commands are sent: cards, devices, queues and command buffers.

use alloc::boxed::Box;
use core::sync::atomic::AtomicUsize;

use crate::cards::Card;
use crate::machine::machine;

/// An object that commands are sent to. The loader writes the address of its own table over the first word.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Dispatchable {
    loader: AtomicUsize,
    card: usize,
}

impl Dispatchable {
    /// Vulkan's loader refuses an object without it (`vk_icd.h: ICD_LOADER_MAGIC`).
    const MAGIC: usize = 0x01CD_C0DE;

    /// A new object of a card, which lives as long as the process.
    pub(super) fn make(card: usize) -> u64 {
        let object = Box::leak(Box::new(Self { loader: AtomicUsize::new(Self::MAGIC), card }));
        address(core::ptr::from_ref(object).expose_provenance())
    }

    /// The number of the card that an object belongs to.
    ///
    /// # Safety
    /// `object` came from [`make`](Self::make), or is 0.
    pub(super) unsafe fn card_of(object: u64) -> usize {
        let place = core::ptr::with_exposed_provenance::<Self>(usize::try_from(object).unwrap_or(0));
        // SAFETY: the caller's promise: such objects are never freed.
        unsafe { place.as_ref() }.map_or(0, |object| object.card)
    }
}

pub(super) fn address(place: usize) -> u64 {
    u64::try_from(place).unwrap_or(0)
}

pub(super) fn card(number: usize) -> Option<&'static Card> {
    machine().cards.get(number)
}

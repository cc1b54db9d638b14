//! What is known of each card's places, and how it comes to be known.

use core::ffi::c_int;

use plimsoll_wire::page::CARDS;

use super::cascade::{Crossing, Facts, Place, Verdicts};
use super::{probe, quiet};
use crate::account::CardIndex;
use crate::driver::{Device, SUCCESS};
use crate::lock::Lock;
use crate::say::say;

mod real {
    use super::*;

    crate::driver::real! {
        in CUDA;
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: Device);
    }
}

const CONCURRENT_MANAGED_ACCESS: c_int = 89;
const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
const HOST_NUMA_ID: c_int = 134;

static VERDICTS: [Lock<Verdicts>; CARDS] = [const { Lock::new(Verdicts::NONE) }; CARDS];

fn of(index: CardIndex) -> &'static Lock<Verdicts> {
    &VERDICTS[usize::from(index.number()) % CARDS]
}

pub(super) fn get(index: CardIndex) -> Verdicts {
    *of(index).hold()
}

/// By the driver's own word, not by what guard tells the program.
pub(super) fn facts(device: Device) -> Facts {
    let attribute = |attribute, otherwise| {
        let mut value = otherwise;
        // SAFETY: the place is ours. A driver that does not know the attribute leaves it.
        let code = unsafe { real::cuDeviceGetAttribute(&raw mut value, attribute, device) };
        if code == SUCCESS { value } else { otherwise }
    };
    Facts {
        vmm: attribute(VIRTUAL_MEMORY_MANAGEMENT, 0) != 0,
        node: attribute(HOST_NUMA_ID, -1),
        concurrent_managed: attribute(CONCURRENT_MANAGED_ACCESS, 0) != 0,
    }
}

/// Whether copies cross into `place` on this card; None if it cannot be used. Probes at the first call, and again if the first
/// probe had no room for a device granule and it now matters.
pub(super) fn crossing(index: CardIndex, place: Place, matters: bool) -> Option<Crossing> {
    let known = get(index).proven(place);
    if let Some(crossing) = known.filter(|crossing| *crossing != Crossing::Untried || !matters) {
        return Some(crossing);
    }
    if quiet::device() != Some(index.device()) {
        // The probe needs a context on the card.
        return Some(Crossing::Untried);
    }
    let verdict = probe::probe(index, place);
    let mut verdicts = of(index).hold();
    match verdict {
        Some(crossing) => verdicts.prove(place, crossing),
        None => verdicts.refuse(place),
    }
    verdict
}

/// Says once where a card's overflow goes.
pub(super) fn say(index: CardIndex, place: Place) {
    if of(index).hold().say_once() {
        say!(
            "card {}: what does not fit goes to {}",
            index.number(),
            place.name()
        );
    }
}

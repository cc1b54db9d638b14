//! Remembers which kinds of host memory can follow device memory in one allocation, for each card. It runs a
//! missing test when its result is needed.

use plimsoll_nostd::lock::Lock;
use plimsoll_wire::page::CARDS;

use super::probe;
use crate::driver::interface::is_hip;
use crate::driver::{Attribute, DeviceOrdinal, device_attribute};
use crate::driver_guard;
use crate::policy::placement::{BorderCopies, CardFeatures, ProbeResults};
use crate::say::say;
use crate::state::CardIndex;
use crate::state::ranges::SpillPlace;

static RESULTS: [Lock<ProbeResults>; CARDS] = [const { Lock::new(ProbeResults::NONE) }; CARDS];

fn of(index: CardIndex) -> &'static Lock<ProbeResults> {
    &RESULTS[index.place()]
}

pub(super) fn get(index: CardIndex) -> ProbeResults {
    *of(index).hold()
}

/// The card's attributes from the real driver, not as guard reports them to the program.
pub(super) fn features(device: DeviceOrdinal) -> CardFeatures {
    // DECISION: on AMD's cards host memory is pinned, not managed: managed memory gave wrong results on
    // gfx1151 (LLMKube#1155), and without XNACK a card does not fetch its pages on demand.
    CardFeatures {
        vmm: device_attribute(device, Attribute::VirtualMemoryManagement, 0) != 0,
        node: device_attribute(device, Attribute::HostNumaId, -1),
        concurrent_managed: !is_hip() && device_attribute(device, Attribute::ConcurrentManagedAccess, 0) != 0,
    }
}

/// True if the place can be used on this card. Probes at the first call, and again if the first probe had no
/// room for a device granule, and there is to be one `before` the host memory now.
pub(super) fn usable(index: CardIndex, place: SpillPlace, before: bool) -> bool {
    let known = get(index).proven(place);
    // The probe needs a context on the card.
    if known.is_some_and(|crossing| crossing != BorderCopies::Untried || !before)
        || driver_guard::device() != Some(index.device())
    {
        return true;
    }
    // Without the lock: a probe makes some twenty calls of the driver. Two threads may probe at once and find
    // the same.
    let crossing = probe::probe(index, place);
    let mut results = of(index).hold();
    match crossing {
        Some(crossing) => results.prove(place, crossing),
        None => results.refuse(place),
    }
    crossing.is_some()
}

/// Reports once which memory takes a card's overflow.
pub(super) fn say(index: CardIndex, place: SpillPlace) {
    if of(index).hold().say_once() {
        say!("card {}: allocations that do not fit are placed in {}", index.number(), place.name());
    }
}

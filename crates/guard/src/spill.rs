//! Ranges of guard's own: device head, host tail.
//!
//! DECISION: what does not fit is spilled, not the whole request: one range of addresses whose front lies on the card and whose
//! rest lies in host memory, which the card reads over the bus. Which request is cut is [`order`]'s to say; its end is spilled.
//! A small request costs a granule of host memory and would be touched much, so large ones leave it some room on the card
//! ([`budget`]); where that is used up too, it is spilled all the same, for a program that is refused four bytes dies of it.
//! Where host memory may lie is decided per card by [`cascade`] and found out by [`probe`].

pub(crate) mod border;
pub(crate) mod budget;
mod cascade;
pub(crate) mod cut;
mod host;
mod make;
mod order;
pub(crate) mod peers;
mod probe;
pub(crate) mod quiet;
pub(crate) mod ranges;
mod release;
mod touch;
mod verdicts;
pub(crate) mod vmm;
mod whole;

use core::sync::atomic::Ordering::Relaxed;

use cascade::{Crossing, Place};
use make::Wanted;
use ranges::Range;
use vmm::{Location, Properties};

pub(crate) use release::{finish, forget, free, free_async, sweep};
pub(crate) use whole::Advice;

use crate::account::{CardIndex, card};
use crate::driver::{CuResult, DevicePointer, Handle, OUT_OF_MEMORY};
use crate::text::Size;
use crate::trace::{self, Event, Kind};

/// A request in mapped memory of the card alone, in pieces of at least `floor` bytes.
pub(crate) fn in_chunks(index: CardIndex, size: u64, floor: u64) -> Result<DevicePointer, CuResult> {
    let wanted = Wanted {
        card: index,
        asked: size,
        head: u64::MAX,
        // One piece is what the driver has just refused.
        first: size / 2,
        floor,
        tail: None,
    };
    match make::range(wanted) {
        Ok(range) => Ok(hand_out(index, range)),
        Err(make::Short::OfSpill) => Err(OUT_OF_MEMORY),
        Err(make::Short::Driver(code)) => Err(code),
    }
}

/// A request of which the card gets what it has room for, and host memory the rest.
pub(crate) fn spill(index: CardIndex, size: u64) -> Result<DevicePointer, CuResult> {
    let facts = verdicts::facts(index.device());
    for place in verdicts::get(index).places(facts) {
        let made = if place.follows_device_memory() {
            behind_device_memory(index, size, place)
        } else {
            as_a_whole(index, size, place)
        };
        match made {
            Ok(range) => {
                verdicts::say(index, place);
                return Ok(hand_out(index, range));
            }
            // Too much was asked for; another place would be asked for as much.
            Err(Short::OfSpill) => return Err(OUT_OF_MEMORY),
            Err(Short::OfPlace) => {}
        }
    }
    Err(OUT_OF_MEMORY)
}

/// Physical memory in the place of a card's, for a program that maps it itself (ggml's VMM pool dies if it gets none).
pub(crate) fn memory(index: CardIndex, size: u64) -> Result<Handle, CuResult> {
    if !budget::take(index, size) {
        return Err(OUT_OF_MEMORY);
    }
    let places = verdicts::get(index).places(verdicts::facts(index.device()));
    for place in places.filter(|place| place.follows_device_memory()) {
        let handle = verdicts::crossing(index, place, false)
            .and_then(|_| vmm::create(size, &Properties::at(Location::of(place)?)).ok());
        if let Some(handle) = handle {
            card(index).raise_peaks();
            verdicts::say(index, place);
            trace::emit(
                Kind::Spill,
                Event {
                    size,
                    ..Event::on(index)
                },
            );
            return Ok(handle);
        }
    }
    budget::give(index, size);
    Err(OUT_OF_MEMORY)
}

/// The whole of a request in managed memory, within what the card has free (the variants of llama.cpp PR 22158).
pub(crate) fn managed(index: CardIndex, size: u64, advice: Advice) -> Result<DevicePointer, CuResult> {
    let base = whole::managed(index, size, advice)?;
    budget::charge(index, size);
    Ok(hand_out(index, whole_range(index, base, size, Place::Managed)))
}

/// What a request was short of.
enum Short {
    /// More would be in host memory than may be.
    OfSpill,
    /// This place does not have it, or not on this card.
    OfPlace,
}

fn behind_device_memory(index: CardIndex, size: u64, place: Place) -> Result<Range, Short> {
    let granule = make::granule(index, Some(place)).map_err(|_| Short::OfPlace)?;
    let head = budget::room(index).head(size, granule);
    match verdicts::crossing(index, place, head > 0) {
        None => return Err(Short::OfPlace),
        Some(Crossing::Cut) => border::must_not_be_crossed(),
        Some(Crossing::Whole | Crossing::Untried) => {}
    }
    let wanted = Wanted {
        card: index,
        asked: size,
        head,
        first: head,
        floor: granule,
        tail: Some(place),
    };
    make::range(wanted).map_err(|short| match short {
        make::Short::OfSpill => Short::OfSpill,
        make::Short::Driver(_) => Short::OfPlace,
    })
}

fn as_a_whole(index: CardIndex, size: u64, place: Place) -> Result<Range, Short> {
    if !budget::take(index, size) {
        return Err(Short::OfSpill);
    }
    let base = match place {
        Place::Managed => whole::managed(index, size, Advice::Host),
        _ => whole::pinned(size),
    };
    match base {
        Ok(base) => {
            card(index).raise_peaks();
            Ok(whole_range(index, base, size, place))
        }
        Err(_) => {
            budget::give(index, size);
            Err(Short::OfPlace)
        }
    }
}

fn whole_range(index: CardIndex, base: DevicePointer, size: u64, place: Place) -> Range {
    Range {
        base,
        asked: size,
        size,
        head: 0,
        device: index.device(),
        context: quiet::context(),
        place: Some(place),
        pieces: alloc::vec::Vec::new(),
        id: trace::number(),
    }
}

/// To prefer host memory, where the driver lets host and card use managed memory at once.
pub(crate) fn host_advice(index: CardIndex) -> Advice {
    if verdicts::facts(index.device()).concurrent_managed {
        Advice::Host
    } else {
        Advice::None
    }
}

/// Enters a range into the books and gives its address.
fn hand_out(index: CardIndex, range: Range) -> DevicePointer {
    let (base, spilled) = (range.base, range.spilled());
    let event = Event {
        id: range.id,
        size: range.asked,
        ..Event::on(index)
    };
    trace::emit(Kind::Alloc, event);
    if spilled > 0 {
        trace::emit(
            Kind::Spill,
            Event {
                size: spilled,
                ..event
            },
        );
        crate::ladder::say_some!(
            "card {}: {} overflow: {} of it on the card, {} in {}",
            index.number(),
            Size(range.asked),
            Size(range.head),
            Size(spilled),
            range.place.map_or("host memory", Place::name),
        );
    }
    card(index).allocations.fetch_add(1, Relaxed);
    ranges::add(range);
    base
}

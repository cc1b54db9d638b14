//! Allocates memory of which a part is on the card and the rest in host memory, at contiguous addresses.
//!
//! A spilled allocation is one range of addresses. Only the overflow is in host memory: the end, or the last
//! positions of each layer of a KV cache with a known layout.

pub(crate) mod exchange;
mod make;
mod own_stream;
mod probe;
mod probe_results;
mod release;
mod touch;
pub(crate) mod vmm;
mod whole;

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_pool::cache_head::{CacheHead, Segment};
use plimsoll_wire::size::ByteSize;

use make::{RangeError, WantedRange};
use vmm::{Location, VmmProperties};

pub(crate) use release::{finish, forget, free, free_async, sweep};

use crate::account::{caches, overflow, spilled};
use crate::driver::interface::is_hip;
use crate::driver::{AllocationHandle, CuResult, DeviceOrdinal, DevicePointer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::driver_guard;
use crate::policy::pieces::up;
use crate::say::{say, say_some};
use crate::state::ranges::{self, SpillPlace, SpillRange};
use crate::state::{CardIndex, card};
use crate::trace::{self, TraceEvent, TraceKind};

/// Serves a request with mapped memory of the card alone, in pieces of at least `floor` bytes.
pub(crate) fn in_chunks(index: CardIndex, size: u64, floor: u64) -> Result<DevicePointer, CuResult> {
    let whole = up(size, make::granule(index, None)?).ok_or(INVALID_VALUE)?;
    let wanted = WantedRange {
        card: index,
        requested: size,
        segments: alloc::vec![Segment { bytes: whole, on_card: true }],
        // One piece is what the driver has just refused.
        first: size / 2,
        floor,
        tail: None,
        exchanged: false,
    };
    match make::range(&wanted) {
        Ok(range) => Ok(hand_out(index, range)),
        Err(RangeError::SpillLimit) => Err(OUT_OF_MEMORY),
        Err(RangeError::Driver(code)) => Err(code),
    }
}

/// Serves a request with as much of the card as there is room for, and with host memory for the rest.
pub(crate) fn spill(index: CardIndex, size: u64) -> Result<DevicePointer, CuResult> {
    let features = probe_results::features(index.device());
    for place in probe_results::get(index).places(features) {
        let created = if place.follows_device_memory() {
            behind_device_memory(index, size, place)
        } else {
            as_a_whole(index, size, place)
        };
        match created {
            Ok(range) => {
                probe_results::say(index, place);
                return Ok(hand_out(index, range));
            }
            // The limit counts all places together, so another one would not help.
            Err(SpillError::Limit) => return Err(OUT_OF_MEMORY),
            Err(SpillError::Place) => {}
        }
    }
    Err(OUT_OF_MEMORY)
}

/// Physical host memory in place of a card's, for a program that maps it itself. ggml's VMM pool aborts if it
/// gets none (`ggml_cuda_pool_vmm::alloc`, CU_CHECK around cuMemCreate @ b10605).
pub(crate) fn memory(index: CardIndex, size: u64) -> Result<AllocationHandle, CuResult> {
    if !spilled::take(index, size) {
        return Err(OUT_OF_MEMORY);
    }
    let places = probe_results::get(index).places(probe_results::features(index.device()));
    for place in places.filter(|place| place.follows_device_memory()) {
        let usable = probe_results::usable(index, place, false);
        let handle = Location::of(place).filter(|_| usable);
        if let Some(Ok(handle)) = handle.map(|at| vmm::create(size, &VmmProperties::at(at))) {
            card(index).raise_peaks();
            probe_results::say(index, place);
            TraceEvent::on(index).of(0, size).emit(TraceKind::Spill);
            return Ok(handle);
        }
    }
    spilled::give(index, size);
    Err(OUT_OF_MEMORY)
}

/// Serves a whole request with managed memory, within the free bytes of the card (the variant of llama.cpp
/// PR 22158).
pub(crate) fn managed(index: CardIndex, size: u64) -> Result<DevicePointer, CuResult> {
    let base = whole::managed(index, size)?;
    spilled::charge(index, size);
    Ok(hand_out(index, whole_range(index, base, size, SpillPlace::Managed)))
}

/// Failure to use one kind of host memory.
enum SpillError {
    /// More bytes would be in host memory than may be.
    Limit,
    /// This place does not have the memory, or cannot be used on this card.
    Place,
}

fn behind_device_memory(index: CardIndex, size: u64, place: SpillPlace) -> Result<SpillRange, SpillError> {
    let granule = make::granule(index, Some(place)).map_err(|_| SpillError::Place)?;
    let head = overflow::room(index, size).head(size, granule);
    if !probe_results::usable(index, place, head > 0) {
        return Err(SpillError::Place);
    }
    let whole = up(size, granule).ok_or(SpillError::Place)?;
    let wanted = WantedRange {
        card: index,
        requested: size,
        segments: alloc::vec::Vec::new(),
        first: head,
        floor: granule,
        tail: Some(place),
        exchanged: false,
    };
    if let Some(range) = divided_cache(&wanted, place, whole, head) {
        return Ok(range);
    }
    // The exchange copies by functions of CUDA's driver.
    let is_weights = !is_hip() && caches::are_weights(index, size);
    // The last granule of weights that fit is a part of one; the card has room for all of it.
    let fits = is_weights && head + granule >= whole && overflow::room(index, size).has(whole);
    let head = if fits { whole } else { head.min(whole) };
    let segments = [Segment { bytes: head, on_card: true }, Segment { bytes: whole - head, on_card: false }];
    let created = make::range(&WantedRange { segments: segments.into(), exchanged: is_weights, ..wanted });
    created.map(|range| SpillRange { is_weights, ..range }).map_err(|short| match short {
        RangeError::SpillLimit => SpillError::Limit,
        RangeError::Driver(_) => SpillError::Place,
    })
}

/// A cache of the plan with its first positions on the card; None if the request is for no such cache.
fn divided_cache(wanted: &WantedRange, place: SpillPlace, whole: u64, head: u64) -> Option<SpillRange> {
    let (index, granule) = (wanted.card, wanted.floor);
    let cache = caches::requested(index, wanted.requested)?;
    let partner = exchange::partner(index, &cache.layout);
    let head = head.saturating_sub(partner.map_or(0, |_| exchange::own_bytes(granule)));
    let on_card = CacheHead::within(&cache.layout, granule, head)?;
    let segments = on_card.segments(whole);
    let created =
        make::range(&WantedRange { segments, exchanged: partner.is_some(), ..wanted.clone() }).ok()?;
    caches::created(cache.number);
    say!(
        "card {}: of the KV cache's {} positions, the first {} are on the card; answers that go beyond \
            them are slower",
        index.number(),
        cache.layout.positions(),
        on_card.positions(),
    );
    if let Some(weights) = partner {
        exchange::arm(index, &created, weights, &cache.layout, place);
    }
    Some(SpillRange { cache: Some(cache.number), ..created })
}

fn as_a_whole(index: CardIndex, size: u64, place: SpillPlace) -> Result<SpillRange, SpillError> {
    // What cannot be divided goes where its larger part would lie.
    let room = overflow::room(index, size);
    if room.has(size) && room.head(size, 1) >= size / 2 {
        return Err(SpillError::Place);
    }
    if !spilled::take(index, size) {
        return Err(SpillError::Limit);
    }
    let base = match place {
        SpillPlace::Managed => whole::managed(index, size),
        _ => whole::pinned(size),
    };
    match base {
        Ok(base) => {
            card(index).raise_peaks();
            Ok(whole_range(index, base, size, place))
        }
        Err(_) => {
            spilled::give(index, size);
            Err(SpillError::Place)
        }
    }
}

fn whole_range(index: CardIndex, base: DevicePointer, size: u64, place: SpillPlace) -> SpillRange {
    SpillRange {
        base,
        requested: size,
        size,
        on_card: 0,
        device: index.device(),
        context: driver_guard::context(),
        place: Some(place),
        cache: None,
        pieces: alloc::vec::Vec::new(),
        residence: alloc::vec::Vec::new(),
        is_weights: false,
        id: trace::number(),
    }
}

/// Enters a range that is complete, and returns its address.
fn hand_out(index: CardIndex, range: SpillRange) -> DevicePointer {
    let (base, spilled) = (range.base, range.spilled());
    let event = TraceEvent::on(index).of(range.id, range.requested);
    event.emit(TraceKind::Alloc);
    if spilled > 0 {
        event.of(range.id, spilled).emit(TraceKind::Spill);
        say_some!(
            "card {card}: an allocation of {requested} did not fit: {head} of it is on the card, {spilled} in {place}",
            card = index.number(),
            requested = ByteSize(range.requested),
            head = ByteSize(range.on_card),
            spilled = ByteSize(spilled),
            place = range.place.map_or("host memory", SpillPlace::name),
        );
        if is_hip() {
            say_price(spilled);
        }
    }
    card(index).allocations.fetch_add(1, Relaxed);
    ranges::add(range);
    base
}

/// Reports once what host memory costs.
fn say_price(spilled: u64) {
    static STATED: AtomicBool = AtomicBool::new(false);
    // Bytes of a millisecond at 32 GB/s: PCIe 4.0 with 16 lanes.
    const MILLISECOND: u64 = 32_000_000;
    if !STATED.swap(true, Relaxed) {
        say!(
            "the card reads that part over its bus: each token that needs all of it takes {} ms longer on PCIe 4.0 \
                x16, and twice that on x8",
            spilled.div_ceil(MILLISECOND)
        );
    }
}

/// Gives `user` access to the ranges on `owner`, the present ones and those to come.
pub(crate) fn enable_peer(user: DeviceOrdinal, owner: DeviceOrdinal) {
    let mappings =
        ranges::collect(|range| (range.device == owner).then(|| (range.base, range.pieces.clone())));
    for (base, pieces) in mappings {
        let mut at = base;
        for piece in pieces {
            // A card that gets no access finds out when it touches the memory, as with any memory that is not
            // shared.
            let _ = vmm::grant(at, piece, user);
            at += piece;
        }
    }
}

//! Tracks the KV caches that guard splits by token position between card and host memory: those planned, and
//! those allocated now.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_pool::cache_head;
use plimsoll_wire::cache::{CACHES, CacheLayout};

use crate::settings;
use crate::state::{CardIndex, card, uuid};

/// A bit for each cache of the options that is divided now.
static DIVIDED: AtomicU32 = AtomicU32::new(0);
const _: () = assert!(CACHES <= 32);

/// Granule of a card's mappings: 2 MiB on every card so far. Another one makes the estimate a little worse.
const GRANULE: u64 = 2 << 20;

/// A cache of the plan, with its number in the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedCache {
    pub(crate) number: usize,
    pub(crate) layout: CacheLayout,
}

/// The planned cache that a request of exactly `size` bytes is for.
pub(crate) fn requested(index: CardIndex, size: u64) -> Option<PlannedCache> {
    to_come(index).find(|cache| cache.layout.size() == size)
}

/// Bytes that the caches to come, but for the one that `size` is, leave to host memory in favour of other
/// requests.
pub(crate) fn yielded(index: CardIndex, size: u64) -> u64 {
    let own = requested(index, size).map(|cache| cache.number);
    let others = to_come(index).filter(|cache| Some(cache.number) != own);
    others.fold(0, |sum, cache| sum.saturating_add(cache_head::yielded(&cache.layout, GRANULE)))
}

/// True if a request of exactly `size` bytes is for the weights of the plan, and a cache is still to come.
pub(crate) fn are_weights(index: CardIndex, size: u64) -> bool {
    settings::options().weights_on(uuid(card(index))) == Some(size) && to_come(index).next().is_some()
}

/// Marks a cache as divided.
pub(crate) fn created(number: usize) {
    DIVIDED.fetch_or(1 << number, Relaxed);
}

/// Marks a cache as freed, so that the next request of its size is divided again.
pub(crate) fn forget(number: usize) {
    DIVIDED.fetch_and(!(1 << number), Relaxed);
}

fn to_come(index: CardIndex) -> impl Iterator<Item = PlannedCache> {
    let divided = DIVIDED.load(Relaxed);
    let caches = settings::options().caches_on(uuid(card(index)));
    caches
        .filter(move |(number, _)| divided & (1 << number) == 0)
        .map(|(number, layout)| PlannedCache { number, layout: *layout })
}

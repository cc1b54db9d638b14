//! Moves one cache and its weights between card and host memory, in steps that are bounded in time.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use plimsoll_pool::exchange::{CacheParts, Granule, Pair, Residence};

use super::copies::CopyStreams;
use super::frames::Frames;
use super::swap::{self, GranulePlace};
use super::{NEXT, SPARES};
use crate::clock;
use crate::driver::SUCCESS;
use crate::driver_guard;
use crate::say::say;
use crate::state::{page, ranges};

/// Time after which no further pair begins: a pair took 0.25 ms on an H200, and a step of a thousand
/// positions of an 8B model has 64. The program then computes for half as long, because a token may wait for
/// its card several times.
const PAUSE: Duration = Duration::from_millis(40);

/// A cache and the weights that give way to it.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) context: usize,
    pub(super) granule: u64,
    pub(super) cache: u64,
    pub(super) weights: u64,
    pub(super) parts: CacheParts,
    pub(super) residence: Residence,
    pub(super) frames: Frames,
    pub(super) streams: CopyStreams,
    /// False after a failure: everything stays where it is.
    pub(super) works: bool,
}

impl Exchange {
    /// Exchanges pairs until none is left or the time is over; true if none is left.
    pub(super) fn step(&mut self, depths: &[u32]) -> bool {
        let begun = clock::now();
        let pairs = self.parts.pairs(depths, &self.residence);
        page().exchange_time.fetch_add(clock::now().saturating_sub(begun), Relaxed);
        if pairs.is_empty() {
            return true;
        }
        let context = self.context;
        let done = driver_guard::while_idle(context, |code| {
            self.works = code == SUCCESS;
            let start = clock::now();
            let is_whole = self.works && self.exchange(&pairs, start.saturating_add(pause()));
            let end = clock::now();
            let time = end.saturating_sub(start);
            page().longest_exchange.fetch_max(time, Relaxed);
            page().exchange_time.fetch_add(time, Relaxed);
            NEXT.store(end.saturating_add(time / 2), Relaxed);
            is_whole || !self.works
        });
        // Nothing may be waited for during a capture; the next wait of the program tries again.
        done.unwrap_or(false)
    }

    /// Exchanges pairs one after the other until it is late; true if all were exchanged.
    fn exchange(&mut self, pairs: &[Pair], late: u64) -> bool {
        let mut left = pairs.len();
        for batch in pairs.chunks(SPARES) {
            let places = |pair: &Pair| (self.place(pair.leaves).at, self.place(pair.comes).at);
            if self.streams.copy(&self.frames, batch.iter().map(places)).is_err() {
                self.stay();
                return false;
            }
            for (spare, pair) in batch.iter().enumerate() {
                left -= 1;
                if !self.swap(spare, *pair) {
                    return false;
                }
                // Memory that was copied but not exchanged stays as it was.
                if clock::now() >= late {
                    return left == 0;
                }
            }
        }
        true
    }

    /// Exchanges a pair that was copied to spares; true if another one may follow.
    fn swap(&mut self, spare: usize, pair: Pair) -> bool {
        let (leaves, comes) = (self.place(pair.leaves), self.place(pair.comes));
        let swap = swap::swap(&mut self.frames, spare, leaves, comes);
        if swap.left {
            self.moved(pair.leaves, false);
        }
        if swap.came {
            self.moved(pair.comes, true);
            page().exchanged.fetch_add(self.granule, Relaxed);
        }
        if !swap.goes_on {
            self.stay();
        }
        swap.goes_on
    }

    /// Exchanges nothing any more.
    fn stay(&mut self) {
        self.works = false;
        say!(
            "the driver could not swap weights for KV cache on the card, so all of both stay where they are"
        );
    }

    /// Granules of the cache are numbered before those of the weights.
    fn place(&self, granule: Granule) -> GranulePlace {
        let (base, within, before) = match granule {
            Granule::Cache(number) => (self.cache, number, 0),
            Granule::Weights(number) => (self.weights, number, self.parts.granules()),
        };
        let at = base + self.granule * u64::try_from(within).unwrap_or(0);
        GranulePlace { number: before + within, at }
    }

    /// Notes where a granule is now.
    fn moved(&mut self, granule: Granule, to_card: bool) {
        let (base, number, residence) = match granule {
            Granule::Cache(number) => (self.cache, number, &mut self.residence.cache),
            Granule::Weights(number) => (self.weights, number, &mut self.residence.weights),
        };
        set(residence, number, to_card);
        ranges::change(base, |range| {
            set(&mut range.residence, number, to_card);
            let on_card = range.on_card;
            range.on_card =
                if to_card { on_card + self.granule } else { on_card.saturating_sub(self.granule) };
            range.place = range.place.or(Some(self.frames.place()));
        });
    }
}

fn set(residence: &mut [bool], number: usize, to_card: bool) {
    if let Some(place) = residence.get_mut(number) {
        *place = to_card;
    }
}

fn pause() -> u64 {
    u64::try_from(PAUSE.as_nanos()).unwrap_or(0)
}

//! Requests from other processes to release idle memory, made through the page, a shared-memory file of this
//! process.
//!
//! DECISION: each card's entry on the page has a request number and a reply number. The requesting process
//! changes the first, and guard (this library) copies it to the second as the reply. Guard compares the two
//! during the program's own calls: an allocation, a free, the end of a wait. So a check costs one comparison
//! for each card. Guard has no thread, so a program that makes no calls never replies, and the requesting
//! process stops waiting. Guard releases idle blocks of pools whose work is done, except those that a live
//! graph uses. During a stream capture nothing is released, and the request stays open. One thread releases
//! the memory, and the others do not wait for it.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::reuse;
use crate::driver_guard::RelaxedCapture;
use crate::state::captures::capturing;
use crate::state::{CardIndex, card, page};

/// Answers open requests. For a safe point of the program.
#[inline]
pub(crate) fn answer() {
    if asked().next().is_some() {
        give_back();
    }
}

/// The cards with an open request.
fn asked() -> impl Iterator<Item = CardIndex> {
    CardIndex::all().filter(|index| card(*index).is_asked())
}

#[cold]
fn give_back() {
    static AT_WORK: AtomicBool = AtomicBool::new(false);
    if capturing() || AT_WORK.swap(true, Acquire) {
        return;
    }
    let _relaxed = RelaxedCapture::begin();
    for index in asked() {
        // Read before the memory is given back: a number that is written from here on is a new request.
        let number = card(index).ask.load(Acquire);
        let size = reuse::give_back(index);
        page().given_back.fetch_add(size, Relaxed);
        card(index).answered.store(number, Release);
    }
    AT_WORK.store(false, Release);
}

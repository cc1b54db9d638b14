//! Requests from outside for idle memory, made on the page.
//!
//! DECISION: a number on the page beside each card's budget asks, and the same number in the word next to it
//! answers, so that a safe point costs one comparison for each card. Safe points are calls of the program's
//! own: an allocation, a free, the end of a wait. Guard has no thread, so a program that calls nothing
//! answers nothing, and the asking process stops waiting. The memory that is given back is that of rung 1,
//! with or without the option for that rung: idle blocks whose work is done, and none that a live graph has
//! seen. While a stream captures nothing is given back, and the request stays open. One thread answers;
//! others go on.

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

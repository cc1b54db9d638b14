//! Answers requests from other processes to release idle memory, made through this process's shared-memory
//! file.
//!
//! Pools then release idle blocks, except those that a CUDA graph uses.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::reuse;
use crate::driver_guard::RelaxedCapture;
use crate::state::captures::capturing;
use crate::state::{CardIndex, card, page};

/// Answers open requests. For a safe point of the program.
#[inline]
pub(crate) fn answer() {
    // DECISION: each card has a request number and a reply number on the page, which are compared during the
    // program's own calls. This library has no thread, so a program without calls never replies. During a
    // stream capture, the request stays open.
    if requested().next().is_some() {
        give_back();
    }
}

/// The cards with an open request.
fn requested() -> impl Iterator<Item = CardIndex> {
    CardIndex::all().filter(|index| card(*index).is_requested())
}

#[cold]
fn give_back() {
    static AT_WORK: AtomicBool = AtomicBool::new(false);
    if capturing() || AT_WORK.swap(true, Acquire) {
        return;
    }
    let _relaxed = RelaxedCapture::begin();
    for index in requested() {
        // Read before the memory is given back: a number that is written from here on is a new request.
        let number = card(index).ask.load(Acquire);
        let size = reuse::give_back(index);
        page().given_back.fetch_add(size, Relaxed);
        card(index).answered.store(number, Release);
    }
    AT_WORK.store(false, Release);
}

//! Somebody outside asks for what is idle here.
//!
//! DECISION: a number on the page beside each card's budget asks, and the same number in the word next to it answers, so that a
//! safe point costs one comparison for each card. Safe points are calls of the program's own: an allocation, a free, the end of a
//! wait. There is no thread of ours, so a program that calls nothing answers nothing, and whoever asks stops waiting. What is
//! given back is what rung 1 of the ladder gives back, with or without the option for that rung: idle blocks, once the card is
//! done with them, and none that a live graph has seen. While a stream captures nothing is, and the question stays
//! open. One thread answers; others pass by.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::reuse;
use crate::account::{CardIndex, card, page};
use crate::spill::quiet;

/// Answers whoever asks. For a safe point of the program, with no lock held.
#[inline]
pub(crate) fn answer() {
    if asked().next().is_some() {
        give_back();
    }
}

/// The cards that somebody asks about.
fn asked() -> impl Iterator<Item = CardIndex> {
    CardIndex::all().filter(|index| card(*index).is_asked())
}

#[cold]
fn give_back() {
    static AT_WORK: AtomicBool = AtomicBool::new(false);
    if quiet::capturing() || AT_WORK.swap(true, Acquire) {
        return;
    }
    let _relaxed = quiet::Relaxed::begin();
    for index in asked() {
        // What is asked for from here on is another question.
        let number = card(index).ask.load(Acquire);
        let size = reuse::give_back(index);
        page().given_back.fetch_add(size, Relaxed);
        card(index).answered.store(number, Release);
    }
    AT_WORK.store(false, Release);
}

//! The last rung: the program is refused, and whoever looks can see why.
//!
//! A refusal stands on the page for the daemon, in the trace for later, and on stderr for whoever reads the program's log. A
//! program that lives off refusals (PyTorch asks, flushes and asks again) would fill the log, so after the first few only
//! the powers of two are said.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::{Refusal, UNLIMITED};

use super::Request;
use super::kin::Kin;
use crate::account::{card, oom, tree};
use crate::say::say;
use crate::spill::vmm;
use crate::text::Size;
use crate::trace::{self, Event, Kind};

/// Said in full before only every power of two is.
const SAID: u32 = 8;

/// Counts what is said often, and tells whether it is said this time.
#[derive(Debug)]
pub(crate) struct Often(AtomicU32);

impl Often {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The number of this time, if it is to be said.
    pub(crate) fn again(&self) -> Option<u32> {
        let times = self.0.fetch_add(1, Relaxed).saturating_add(1);
        (times <= SAID || times.is_power_of_two()).then_some(times)
    }
}

/// Says a line, but not every time.
macro_rules! say_some {
    ($($word:tt)*) => {{
        static TIMES: $crate::ladder::Often = $crate::ladder::Often::new();
        if TIMES.again().is_some() {
            $crate::say::say!($($word)*);
        }
    }};
}

pub(crate) use say_some;

/// Records a refusal everywhere.
pub(super) fn record(request: &Request<'_>) {
    let free = vmm::memory_of(request.card.device()).map_or(0, |(free, _)| free);
    oom::record(request.card, request.refusal, request.size, free);
    let event = Event {
        size: request.size,
        detail: u8::try_from(code(request.refusal)).unwrap_or(0),
        ..Event::on(request.card)
    };
    trace::emit(Kind::Oom, event);
    static TIMES: Often = Often::new();
    if let Some(times) = TIMES.again() {
        on_stderr(request, free, times);
    }
}

#[expect(clippy::as_conversions, reason = "the number that the page gives each reason")]
const fn code(refusal: Refusal) -> u32 {
    refusal as u32
}

fn on_stderr(request: &Request<'_>, free: u64, times: u32) {
    let card = card(request.card);
    let (number, asked) = (request.card.number(), Size(request.size));
    let (allocated, free) = (Size(tree::held(request.card)), Size(free));
    let spilled = Size(card.spilled.load(Relaxed));
    let (budget, kin) = (tree::budget(request.card), Kin::on(request.card));
    let why = match request.refusal {
        Refusal::Budget => "the budget does not have it",
        Refusal::Driver => "the driver does not have it",
        Refusal::Spill => "neither the card nor what may be spilled has it",
        Refusal::Context => "the card is not in the plan",
    };
    if budget == UNLIMITED {
        say!(
            "card {number}: {asked} refused, {why}: {allocated} allocated, {spilled} spilled, {free} free (refusal {times}){kin}"
        );
    } else {
        let budget = Size(budget);
        say!(
            "card {number}: {asked} refused, {why}: {allocated} of a budget of {budget} allocated, {spilled} spilled, \
             {free} free (refusal {times}){kin}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_more_and_more_seldom() {
        let often = Often::new();
        let said: Vec<u32> = (0..100).filter_map(|_| often.again()).collect();
        assert_eq!(said, [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]);
    }
}

//! Tries remedies in turn for an allocation that the budget or the driver refused, the cheapest first.
//!
//! Remedies are tried in order of their cost to the program: reuse of idle memory, smaller pieces, waiting,
//! host memory, managed memory. A remedy whose option is not set is skipped. If all fail, the program gets
//! CUDA_ERROR_OUT_OF_MEMORY.

use core::time::Duration;

use plimsoll_wire::page::{Refusal, UNLIMITED};

mod idle_request;
mod refusal;
pub(crate) mod reuse;
mod room_request;

use crate::account::claim::{self, ClaimOutcome};
use crate::account::{Substitute, overflow, spilled};
use crate::driver::{CuResult, DevicePointer, OUT_OF_MEMORY, SUCCESS};
use crate::driver_guard::{self, RelaxedCapture};
use crate::policy::backoff::Backoff;
use crate::state::captures::capturing;
use crate::state::{CardIndex, card, ledger};
use crate::{clock, settings, spill};

pub(crate) use idle_request::answer;

/// An allocation request that was refused once.
struct RefusedRequest<'a> {
    card: CardIndex,
    size: u64,
    refusal: Refusal,
    substitute: Substitute,
    /// Asks the driver again; takes nothing from the budget.
    ask: &'a mut dyn FnMut() -> CuResult,
    /// Asks the driver for the same in host memory, for [`Substitute::Request`].
    elsewhere: &'a mut dyn FnMut() -> CuResult,
}

/// Requests `size` bytes from the driver through `ask`, within the budget of the card, and climbs the ladder
/// after a refusal.
pub(crate) fn ask(
    index: CardIndex,
    size: u64,
    substitute: Substitute,
    ask: &mut dyn FnMut() -> CuResult,
) -> ClaimOutcome {
    answer();
    match claim::once(index, size, substitute, ask) {
        Ok(outcome) => outcome,
        Err(refusal) => {
            let elsewhere = &mut || OUT_OF_MEMORY;
            climb(RefusedRequest { card: index, size, refusal, substitute, ask, elsewhere })
        }
    }
}

/// Position of a request among those that a program makes for the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    /// It was refused before in another kind of memory, which was reported, and waited for.
    Again,
}

/// The same for an interface whose requests guard cannot answer itself: `elsewhere`, where there is one,
/// requests the same in host memory.
pub(crate) fn ask_or(
    index: CardIndex,
    size: u64,
    attempt: Attempt,
    ask: &mut dyn FnMut() -> CuResult,
    elsewhere: Option<&mut dyn FnMut() -> CuResult>,
) -> ClaimOutcome {
    let substitute = if elsewhere.is_some() { Substitute::Request } else { Substitute::Nothing };
    let mut none = || OUT_OF_MEMORY;
    let elsewhere = elsewhere.unwrap_or(&mut none);
    answer();
    match claim::once(index, size, substitute, ask) {
        Ok(outcome) => outcome,
        Err(refusal) => {
            let mut request = RefusedRequest { card: index, size, refusal, substitute, ask, elsewhere };
            match attempt {
                Attempt::First => climb(request),
                Attempt::Again => request.spilled().unwrap_or(ClaimOutcome::Failed(OUT_OF_MEMORY)),
            }
        }
    }
}

fn climb(mut request: RefusedRequest<'_>) -> ClaimOutcome {
    // Nothing is tried during a stream capture, which waiting, freeing or mapping would invalidate.
    let end = if capturing() {
        // Nothing may be mapped now, but what is held back for later requests may be taken.
        request.yields().then(|| request.whole()).flatten()
    } else {
        let _relaxed = RelaxedCapture::begin();
        rungs(&mut request)
    };
    end.inspect(|_| driver_guard::forget_refusal()).unwrap_or_else(|| {
        refusal::record(&request);
        ClaimOutcome::Failed(OUT_OF_MEMORY)
    })
}

/// The rungs in their order; None if all fail.
fn rungs(request: &mut RefusedRequest<'_>) -> Option<ClaimOutcome> {
    if request.yields() {
        return request.spilled().or_else(|| request.whole());
    }
    request
        .freed()
        .or_else(|| request.reused())
        .or_else(|| request.chunked())
        .or_else(|| request.waited_for())
        .or_else(|| request.spilled())
        .or_else(|| request.managed())
}

impl RefusedRequest<'_> {
    /// True if the card has room that is held back for later requests.
    fn yields(&self) -> bool {
        overflow::yields(self.card, self.size, self.substitute)
            && overflow::room(self.card, self.size).has(self.size)
    }

    /// Takes that room after all.
    fn whole(&mut self) -> Option<ClaimOutcome> {
        let outcome = claim::whole(self.card, self.size, self.ask);
        (outcome == Ok(ClaimOutcome::Given)).then_some(ClaimOutcome::Given)
    }

    /// Asks once more, within the budget.
    fn again(&mut self) -> Option<ClaimOutcome> {
        match claim::once(self.card, self.size, self.substitute, self.ask) {
            Ok(ClaimOutcome::Failed(_)) => None,
            Ok(outcome) => Some(outcome),
            Err(refusal) => {
                self.refusal = refusal;
                None
            }
        }
    }

    /// Rung 0: ranges that the program has freed and that waited for the card.
    fn freed(&mut self) -> Option<ClaimOutcome> {
        // The program has freed these ranges; only their work is still to end.
        if spill::finish() { self.again() } else { None }
    }

    /// Rung 1: idle memory of pools.
    fn reused(&mut self) -> Option<ClaimOutcome> {
        if settings::options().reuse && reuse::give_back(self.card) > 0 { self.again() } else { None }
    }

    /// Rung 2: smaller pieces, where the driver refuses one large request although it has enough.
    fn chunked(&mut self) -> Option<ClaimOutcome> {
        let chunk = settings::options().chunk?;
        let enough = || driver_guard::memory_of(self.card.device()).is_none_or(|(free, _)| free >= self.size);
        if self.refusal != Refusal::Driver || self.size <= chunk || !enough() {
            return None;
        }
        self.answer(|card, size| spill::in_chunks(card, size, chunk))
    }

    /// Rung 3: time.
    fn waited_for(&mut self) -> Option<ClaimOutcome> {
        let options = settings::options();
        let wait = Duration::from_secs(options.wait.into());
        if !(options.reclaim || options.wait > 0) || self.is_hopeless() {
            return None;
        }
        let request = options.reclaim.then(|| room_request::make(self.card, self.size));
        let patience = request.as_ref().map_or(wait, |request| request.patience(wait));
        for pause in Backoff::within(patience) {
            clock::sleep(pause);
            // Before the attempt: room that the daemon makes after it would be missed.
            let answered = request.as_ref().is_some_and(room_request::RoomRequest::is_answered);
            if let Some(end) = self.again() {
                return Some(end);
            }
            if answered && wait.is_zero() {
                return None;
            }
        }
        None
    }

    /// True for a request larger than the whole, for which no neighbour can make room.
    fn is_hopeless(&self) -> bool {
        let total = card(self.card).total.load(core::sync::atomic::Ordering::Relaxed);
        let budget = ledger::budget(self.card);
        // With a daemon the budget itself may be raised.
        let over_budget = budget != UNLIMITED && self.size > budget && !room_request::is_heard();
        over_budget || (total > 0 && self.size > total)
    }

    /// Rung 4: host memory for the part that does not fit.
    fn spilled(&mut self) -> Option<ClaimOutcome> {
        settings::options().spill?;
        let end = match self.substitute {
            Substitute::Nothing => return None,
            Substitute::Range(..) => self.answer(spill::spill),
            Substitute::Memory(place, size) => spill::memory(self.card, size).ok().map(|handle| {
                // SAFETY: where the program wants its handle; the hook ruled out null.
                unsafe { place.write(handle) };
                ClaimOutcome::Elsewhere
            }),
            Substitute::Request => self.requested_elsewhere(),
        };
        if end.is_none() {
            self.refusal = Refusal::Spill;
        }
        end
    }

    /// Host memory for the whole, by a request of the hook's own.
    fn requested_elsewhere(&mut self) -> Option<ClaimOutcome> {
        if !spilled::take(self.card, self.size) {
            return None;
        }
        if (self.elsewhere)() != SUCCESS {
            spilled::give(self.card, self.size);
            return None;
        }
        card(self.card).raise_peaks();
        Some(ClaimOutcome::Elsewhere)
    }

    /// Rung 5: managed memory for the whole.
    fn managed(&mut self) -> Option<ClaimOutcome> {
        if !settings::options().on_oom_managed {
            return None;
        }
        self.answer(spill::managed)
    }

    /// Answers the request with a range of guard's own, if the hook takes one.
    fn answer(
        &self,
        make: impl FnOnce(CardIndex, u64) -> Result<DevicePointer, CuResult>,
    ) -> Option<ClaimOutcome> {
        let Substitute::Range(place, size) = self.substitute else {
            return None;
        };
        let address = make(self.card, size).ok()?;
        // SAFETY: where the program wants its address; the hook ruled out null.
        unsafe { place.write(address) };
        Some(ClaimOutcome::Elsewhere)
    }
}

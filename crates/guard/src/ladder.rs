//! What is tried when a request meets the budget or the driver's OOM.
//!
//! DECISION: rungs are climbed in the order of what they cost the program. First what is free for the taking: ranges that it
//! has freed and whose work is done, memory that pools hold idle (`reuse`). Then the same memory in another shape (`chunk`).
//! Then time: the daemon is asked to make room, or a neighbour is waited for (`reclaim`, `wait`). Then speed: the part that does
//! not fit goes to host memory (`spill`), or all of it becomes managed (`on-oom=managed`). Last the program is told, with
//! exactly CUDA_ERROR_OUT_OF_MEMORY, and the reason is left on the page. A rung without its option is not there. Nothing is
//! tried while a stream captures: waiting, freeing and mapping would spoil the capture. No lock is held on any rung.

use core::time::Duration;

use plimsoll_wire::page::{Refusal, UNLIMITED};

mod asked;
mod kin;
mod naps;
pub(crate) mod pieces;
mod plea;
mod refusal;
pub(crate) mod reservations;
mod reuse;

use crate::account::request::{self, Outcome};
use crate::account::{CardIndex, card, tree};
use crate::arm;
use crate::driver::{CuResult, DevicePointer, Handle};
use crate::spill::{self, budget, quiet, vmm};

pub(crate) use asked::answer;
pub(crate) use refusal::{Often, say_some};

/// What guard may answer a request with, other than the driver's own memory for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instead {
    Nothing,
    /// A range of so many bytes; its address goes here.
    Range(*mut DevicePointer, u64),
    /// So many bytes of physical memory in another place; the handle goes here.
    Memory(*mut Handle, u64),
}

/// A request that was refused once.
pub(crate) struct Request<'a> {
    pub(crate) card: CardIndex,
    pub(crate) size: u64,
    pub(crate) refusal: Refusal,
    pub(crate) instead: Instead,
    /// Asks the driver again; takes nothing from the budget.
    pub(crate) ask: &'a mut dyn FnMut() -> CuResult,
}

/// Where the climb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Climb {
    /// The driver gave it after all, and the card is charged with it.
    Given,
    /// The program has what stood in [`Request::instead`]; guard accounts for it.
    Elsewhere,
    /// The program gets CUDA_ERROR_OUT_OF_MEMORY, and the reason stands on the page.
    Refused,
}

pub(crate) fn climb(mut request: Request<'_>) -> Climb {
    let end = if quiet::capturing() {
        // Nothing may be mapped now, but what is held back for later requests may be taken.
        request.yields().then(|| request.whole()).flatten()
    } else {
        let _relaxed = quiet::Relaxed::begin();
        rungs(&mut request)
    };
    end.unwrap_or_else(|| {
        refusal::record(&request);
        Climb::Refused
    })
}

/// The rungs in their order; None if all fail.
fn rungs(request: &mut Request<'_>) -> Option<Climb> {
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

impl Request<'_> {
    /// The card has room, and the room is held back for later requests.
    fn yields(&self) -> bool {
        budget::yields(self.card, self.size, self.instead) && budget::room(self.card).has(self.size)
    }

    /// Takes that room after all.
    fn whole(&mut self) -> Option<Climb> {
        let outcome = request::whole(self.card, self.size, self.ask);
        (outcome == Ok(Outcome::Given)).then_some(Climb::Given)
    }

    /// Asks once more, within the budget.
    fn again(&mut self) -> Option<Climb> {
        match request::once(self.card, self.size, self.instead, self.ask) {
            Ok(Outcome::Given) => Some(Climb::Given),
            Ok(Outcome::Elsewhere) => Some(Climb::Elsewhere),
            Ok(Outcome::Failed(_)) => None,
            Err(refusal) => {
                self.refusal = refusal;
                None
            }
        }
    }

    /// Rung 0: what the program has freed already, and what waited for the GPU.
    fn freed(&mut self) -> Option<Climb> {
        if spill::finish() { self.again() } else { None }
    }

    /// Rung 1.
    fn reused(&mut self) -> Option<Climb> {
        if arm::options().reuse && reuse::give_back(self.card) > 0 {
            self.again()
        } else {
            None
        }
    }

    /// Rung 2: the driver refuses one large request although it has enough.
    fn chunked(&mut self) -> Option<Climb> {
        let chunk = arm::options().chunk?;
        let enough = || vmm::memory_of(self.card.device()).is_none_or(|(free, _)| free >= self.size);
        if self.refusal != Refusal::Driver || self.size <= chunk || !enough() {
            return None;
        }
        self.answer(|card, size| spill::in_chunks(card, size, chunk))
    }

    /// Rung 3.
    fn waited_for(&mut self) -> Option<Climb> {
        let options = arm::options();
        let wait = Duration::from_secs(options.wait.into());
        if !(options.reclaim || options.wait > 0) || self.is_hopeless() {
            return None;
        }
        let plea = options.reclaim.then(|| plea::make(self.card, self.size));
        let patience = plea.as_ref().map_or(wait, |plea| plea.patience(wait));
        for nap in naps::Naps::within(patience) {
            plea::sleep(nap);
            let answered = plea.as_ref().is_some_and(plea::Plea::is_answered);
            if let Some(end) = self.again() {
                return Some(end);
            }
            if answered && wait.is_zero() {
                return None;
            }
        }
        None
    }

    /// No neighbour can make room for what is larger than the whole.
    fn is_hopeless(&self) -> bool {
        let total = card(self.card).total.load(core::sync::atomic::Ordering::Relaxed);
        let budget = tree::budget(self.card);
        let over_budget = budget != UNLIMITED && self.size > budget && !plea::is_heard();
        over_budget || (total > 0 && self.size > total)
    }

    /// Rung 4.
    fn spilled(&mut self) -> Option<Climb> {
        arm::options().spill?;
        let end = match self.instead {
            Instead::Nothing => return None,
            Instead::Range(..) => self.answer(spill::spill),
            Instead::Memory(place, size) => spill::memory(self.card, size).ok().map(|handle| {
                // SAFETY: where the program wants its handle; the hook ruled out null.
                unsafe { place.write(handle) };
                Climb::Elsewhere
            }),
        };
        if end.is_none() {
            self.refusal = Refusal::Spill;
        }
        end
    }

    /// Rung 4, whole.
    fn managed(&mut self) -> Option<Climb> {
        if !arm::options().on_oom_managed {
            return None;
        }
        self.answer(|card, size| spill::managed(card, size, spill::host_advice(card)))
    }

    /// Answers the request with a range of guard's own, where that can be.
    fn answer(&self, make: impl FnOnce(CardIndex, u64) -> Result<DevicePointer, CuResult>) -> Option<Climb> {
        let Instead::Range(place, size) = self.instead else {
            return None;
        };
        let address = make(self.card, size).ok()?;
        // SAFETY: where the program wants its address; the hook ruled out null.
        unsafe { place.write(address) };
        Some(Climb::Elsewhere)
    }
}

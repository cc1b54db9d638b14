//! Compares a refused allocation with the free memory that its log states, and excludes the causes that
//! contradict it.

use plimsoll_base::Bytes;

use super::{Facts, FailedAllocation, LoadStage, MemoryPlace, Purpose, TorchRefusal};
use crate::cause::Cause;
use crate::pattern::Pattern;

/// A request that a card refused, against what was free on it before the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestFit {
    /// The load's need until then, including the request.
    pub(crate) needed: Bytes,
    pub(crate) free: Bytes,
    /// The request would have left enough for a context and for the log's rounding.
    pub(crate) is_easy: bool,
}

impl TorchRefusal {
    /// True if less was requested than was free. The free size was read after the refusal, and the driver
    /// keeps some memory, so less than a twentieth of the card counts as none.
    pub(crate) fn has_room(&self) -> bool {
        let some = |free: Bytes| match self.total {
            Some(total) => free.scaled(20, 1) >= total,
            None => free >= self.requested.scaled(4, 1),
        };
        !self.requested.is_zero() && self.free.is_some_and(|free| free >= self.requested && some(free))
    }
}

impl Facts {
    /// Free memory of the refusing card before the load.
    pub(crate) fn free_before(&self) -> Option<Bytes> {
        // Of several cards, the log may not say which refused, or how much was free on it.
        let is_one = self.cards_free.len() <= 1 && self.load_buffers().all(|buffer| buffer.device == 0);
        let card = self.refusal()?.device.or(is_one.then_some(0))?;
        let of_any = || self.card_free.filter(|_| is_one && card == 0);
        self.cards_free.get(&card).copied().or_else(of_any)
    }

    /// The refused request, where the whole load would have fitted into the memory that was free before.
    pub(crate) fn request_fit(&self) -> Option<RequestFit> {
        /// More than a context and the rounding of a log's figures.
        const ALONGSIDE: Bytes = Bytes::gib(1);
        let on_card =
            |refusal: &&FailedAllocation| refusal.place == MemoryPlace::Card && !refusal.at_run_time;
        let refusal = self.refusal().filter(on_card)?;
        let estimate = self.estimate.as_ref();
        // An estimate leaves room for the context.
        let whole = estimate.filter(|estimate| estimate.least == estimate.available);
        let requested = refusal.requested.or_else(|| Some(whole?.full))?;
        let least = || estimate.filter(|_| self.cards_free.len() <= 1).map(|estimate| estimate.least);
        let free = self.free_before().or_else(least)?;
        let is_first = matches!(refusal.purpose, Purpose::Weights | Purpose::Unknown)
            && refusal.stage <= LoadStage::Weights;
        let is_unlisted = self.placed(Purpose::Weights).is_zero();
        // A log that does not list the weights does not tell what else the card held.
        if is_unlisted && !is_first {
            return None;
        }
        // These divide the weights, and list them after the last part.
        let divides = self.says_any(&[Pattern::OnVulkan, Pattern::OnSycl, Pattern::OfApple]);
        let unlisted = if is_unlisted && divides {
            self.model.file.or(estimate.map(|estimate| estimate.full))?
        } else {
            Bytes::ZERO
        };
        let needed = (requested + self.placed_by_load()).max(unlisted);
        let is_easy = needed + ALONGSIDE <= free && whole.is_none_or(|estimate| estimate.full <= free);
        (needed <= free && !self.is_unified() && self.guard.is_none()).then_some(RequestFit {
            needed,
            free,
            is_easy,
        })
    }

    /// Metal counted more than it recommends.
    pub(crate) fn is_beyond_working_set(&self) -> bool {
        self.working_set.is_some_and(|(allocated, limit)| allocated > limit)
    }

    /// The memory that the run time of a card gives it, and the kernel's size, where that is another card's.
    pub(crate) fn misreported(&self) -> Option<(Bytes, Bytes)> {
        let (card, kernel) = (self.card()?, self.kernel_vram?);
        let torch = self.torch.as_ref().map(|torch| torch.requested);
        let requested = torch.or_else(|| self.refusal()?.requested)?;
        (card * 2 <= kernel && requested <= kernel).then_some((card, kernel))
    }

    /// True for a cause that the figures of the log exclude.
    // DECISION: general rules come before special ones. A request below the free memory of its own log was
    // not too large. Idle memory that could not have held a request is not fragmented. This holds whatever a
    // line usually means.
    pub(crate) fn rules_out(&self, cause: Cause) -> bool {
        let torch = self.torch.as_ref();
        match cause {
            Cause::FragmentationCachingAllocator => torch.is_some_and(|torch| {
                let occupied = |idle: Bytes| idle + torch.free.unwrap_or(Bytes::ZERO);
                torch.idle.is_some_and(|idle| occupied(idle) < torch.requested)
            }),
            // Metal has no pool of its own.
            Cause::PoolGrowth if self.says(Pattern::OfApple) => true,
            Cause::ModelTooLarge
            | Cause::KvCacheTooLarge
            | Cause::ComputeBufferTooLarge
            | Cause::PoolGrowth => {
                torch.is_some_and(TorchRefusal::has_room)
                    || self.request_fit().is_some_and(|fit| fit.is_easy)
                    || self.misreported().is_some()
            }
            _ => false,
        }
    }
}

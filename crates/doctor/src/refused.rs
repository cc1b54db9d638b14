//! Describes an allocation that guard (the preloaded library) refused: its size, the limit, and other
//! processes on the card.
//!
//! The figures are those of the moment at which the program got the error.

use std::time::Duration;

use plimsoll_base::{AllocationLimit, Bytes, CardId, Reason, Shortfall};
use plimsoll_wire::page::Refusal;

/// An end this soon after a refusal is its consequence, if nothing else is known of the end.
const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAllocation {
    pub why: Refusal,
    /// Name of the card.
    pub card: String,
    /// `None` if the daemon does not know the card.
    pub id: Option<CardId>,
    pub requested: Bytes,
    /// Memory of the card that the program held then.
    pub allocated: Bytes,
    /// `None` without a limit.
    pub budget: Option<Bytes>,
    /// Free memory of the card then, by the driver.
    pub free: Bytes,
    /// Refusals of this run in all.
    pub count: u64,
    /// Before the end of the program.
    pub ago: Duration,
    /// Other holders of the card.
    pub neighbours: Vec<(String, Bytes)>,
    /// Measured growth per token of depth.
    pub growth: Option<Bytes>,
}

impl RefusedAllocation {
    /// True if the program ended because of it, by the time between them.
    pub(super) fn is_fresh(&self) -> bool {
        self.ago <= SOON && self.why != Refusal::Context
    }

    /// Missing memory at that moment.
    pub(super) fn shortfall(&self) -> Option<Shortfall> {
        match self.why {
            Refusal::Budget | Refusal::Spill => {
                let bytes = (self.allocated + self.requested).saturating_sub(self.budget?);
                Some(Shortfall { bytes, limit: AllocationLimit::Budget })
            }
            Refusal::Driver => {
                let (card, free, occupied) = (self.id.clone(), self.free, self.allocated);
                let limit = AllocationLimit::Driver { card, free, occupied };
                // The driver counts in pages of 2 MiB, so this is a lower bound.
                Some(Shortfall { bytes: self.requested.saturating_sub(self.free), limit })
            }
            // A context on a foreign card is refused whatever is free.
            Refusal::Context => None,
        }
    }

    pub fn reason(&self) -> Reason {
        let mut reason = Reason::new("guard_refused", self.text())
            .fact("verdict", self.verdict())
            .fact("card", self.card.as_str())
            .fact("asked", self.requested)
            .fact("allocated", self.allocated)
            .fact("free", self.free)
            .fact("refusals", self.count);
        if let Some(budget) = self.budget {
            reason = reason.fact("budget", budget);
        }
        // The holders are the remedy: one of them can be moved or stopped.
        let holders = self.neighbours.iter().map(|(name, bytes)| {
            let text = format!("{bytes} on {card} are held by {name}", card = self.card);
            Reason::new("neighbour", text).fact("holds", *bytes)
        });
        reason = reason.because_all(holders);
        // Growth with depth explains nothing of a load that holds nothing yet.
        if let Some(growth) = self.growth.filter(|_| !self.allocated.is_zero()) {
            let text = format!("the memory of this process grows by {growth} with each token of context");
            reason = reason.because(Reason::new("growth", text).fact("bytes_per_token", growth));
        }
        reason
    }

    fn verdict(&self) -> &'static str {
        match self.why {
            Refusal::Budget => "budget",
            Refusal::Driver if self.neighbours.is_empty() => "driver",
            Refusal::Driver => "neighbour",
            Refusal::Spill => "spill",
            Refusal::Context => "context",
        }
    }

    fn text(&self) -> String {
        let Self { card, requested, allocated, free, .. } = self;
        let budget = self.budget.map_or_else(String::new, |budget| format!(" of a budget of {budget}"));
        match self.why {
            Refusal::Budget => {
                format!(
                    "a request for {requested} more on {card} was refused: the process held \
                        {allocated}{budget}, and {free} were free"
                )
            }
            Refusal::Driver => format!(
                "the driver could not allocate {requested} on {card}: {free} were free, and the process held \
                    {allocated}{budget}"
            ),
            Refusal::Spill => format!(
                "a request for {requested} more on {card} did not fit, and neither did its overflow in host \
                    memory: the process held {allocated}{budget}, and {free} were free"
            ),
            Refusal::Context => format!(
                "a CUDA context on {card} was refused, because the process is not assigned to that card"
            ),
        }
    }
}

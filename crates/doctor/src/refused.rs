//! A refusal that guard left on its page: what was asked, what stood in the way, and who holds the rest.
//!
//! Guard writes it at the moment at which the program gets its error, so its numbers are of that moment; what the neighbours hold is of the
//! last reading of the cards.

use std::time::Duration;

use plimsoll_base::{Bytes, Reason};
use plimsoll_wire::page::Refusal;

/// An end this soon after a refusal comes of it, where nothing else is known of the end.
const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub why: Refusal,
    /// The card as people know it.
    pub card: String,
    pub asked: Bytes,
    /// What the program held of the card then.
    pub allocated: Bytes,
    /// `None` without a limit.
    pub budget: Option<Bytes>,
    /// Free on the card then, by the driver's word.
    pub free: Bytes,
    /// Refusals of this run in all.
    pub count: u64,
    /// Before the end of the program.
    pub ago: Duration,
    /// Who else holds how much of the card.
    pub neighbours: Vec<(String, Bytes)>,
    /// What a token of depth was seen to add, where that is known.
    pub growth: Option<Bytes>,
}

impl Refused {
    /// The program ended so soon afterwards that it ended of it.
    pub(super) fn is_fresh(&self) -> bool {
        self.ago <= SOON && self.why != Refusal::Context
    }

    /// How much more would have been needed at that moment.
    pub(super) fn shortfall(&self) -> Option<Bytes> {
        match self.why {
            Refusal::Budget | Refusal::Spill => {
                Some((self.allocated + self.asked).saturating_sub(self.budget?))
            }
            Refusal::Driver => Some(self.asked.saturating_sub(self.free)),
            Refusal::Context => None,
        }
    }

    pub fn reason(&self) -> Reason {
        let mut reason = Reason::new("guard_refused", self.text())
            .fact("verdict", self.verdict())
            .fact("card", self.card.as_str())
            .fact("asked", self.asked)
            .fact("allocated", self.allocated)
            .fact("free", self.free)
            .fact("refusals", self.count);
        if let Some(budget) = self.budget {
            reason = reason.fact("budget", budget);
        }
        let holders = self.neighbours.iter().map(|(name, bytes)| {
            let text = format!("{bytes} of {} are held by {name}", self.card);
            Reason::new("neighbour", text).fact("holds", *bytes)
        });
        reason = reason.because_all(holders);
        // of a load that has nothing yet it explains nothing
        if let Some(growth) = self.growth.filter(|_| !self.allocated.is_zero()) {
            let text = format!("it was seen to take {growth} more for each token of depth");
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
        let Self {
            card,
            asked,
            allocated,
            free,
            ..
        } = self;
        let budget = self
            .budget
            .map_or_else(String::new, |budget| format!(" of a budget of {budget}"));
        match self.why {
            Refusal::Budget => {
                format!(
                    "{asked} more on {card} were refused: it held {allocated}{budget}, and {free} were free"
                )
            }
            Refusal::Driver => format!(
                "the driver had not got {asked} on {card}: {free} were free, and it held {allocated}{budget}"
            ),
            Refusal::Spill => format!(
                "{asked} more on {card} did not fit, and what did not fit could not be put into host memory: it held \
                 {allocated}{budget}, and {free} were free"
            ),
            Refusal::Context => format!("a context on {card}, which is not its card, was refused"),
        }
    }
}

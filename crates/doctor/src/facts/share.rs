//! Recognises a memory share (`--gpu-memory-utilization`) that is too small for a model that would fit on the
//! card.

use std::fmt;

use plimsoll_base::{Bytes, round_u64};

use super::Facts;
use crate::pattern::Pattern;

/// vLLM's default share, in hundredths: the rest is for the context and for fragments.
const USUAL: u64 = 90;
/// Shares are named in steps of this, in hundredths.
const STEP: u64 = 5;

/// A share of the card that leaves no memory for the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmallShare {
    /// The configured share, in hundredths.
    given: u64,
    /// The memory of one card, and the least share that suffices, in hundredths.
    pub(crate) card: Option<(Bytes, u64)>,
    /// Memory of the weights and the activations.
    demand: Bytes,
    /// The log prints the shortage; otherwise the demand is an estimate from the weights.
    pub(crate) is_printed: bool,
}

impl Facts {
    /// vLLM found no room for a block of the KV cache in its share, though the card has room.
    pub(crate) fn small_share(&self) -> Option<SmallShare> {
        self.quote(Pattern::VllmNoBlocks)?;
        let given = self.options.utilization.map(|share| round_u64(share * 100.0))?;
        let cards = self.options.parallel.unwrap_or(1).clamp(1, 64);
        let one = |bytes: Bytes| bytes.scaled(1, cards);
        // A printed size is of one card, a name describes the whole model on all cards.
        let weights = self.model.weights.or_else(|| self.weights().map(one))?;
        let card = self.card().or_else(|| self.model.named_cards.map(one));
        // Without a printed shortage, activations of the profiling run are at most a sixth of the sum.
        let printed = card.zip(self.model.lacking).map(|(card, lacking)| card.scaled(given, 100) + lacking);
        let is_printed = printed.is_some();
        let demand = printed.unwrap_or_else(|| weights.scaled(20, 17));
        let Some(card) = card else {
            // The card has at least (weights - shortage) / share; then so much more of it suffices.
            let lacking = self.model.lacking.filter(|lacking| *lacking < weights);
            let more = lacking.map(|lacking| {
                let least = weights.saturating_sub(lacking).scaled(100, given.max(1));
                lacking.get().saturating_mul(100) / least.get().max(1)
            });
            // Less than half of a card that is not known: a larger share is the first thing to try.
            let is_small = given * 2 < 100 || more.is_some_and(|more| given + more + STEP <= USUAL);
            return is_small.then_some(SmallShare { given, card: None, demand, is_printed });
        };
        let steps = demand.get() / card.scaled(STEP, 100).get().max(1);
        let needed = steps.saturating_add(1).saturating_mul(STEP);
        (given < needed && needed <= USUAL).then_some(SmallShare {
            given,
            card: Some((card, needed)),
            demand,
            is_printed,
        })
    }
}

/// SGLang's share for weights and KV cache (`--mem-fraction-static`), less than the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaticShare {
    pub(crate) weights: Bytes,
    pub(crate) free: Bytes,
    /// The least share that suffices, in hundredths.
    needed: u64,
}

impl Facts {
    /// The share's part of the free memory is less than the weights: `model_runner.py:profile_max_num_token @
    /// SGLang`.
    pub(crate) fn static_share(&self) -> Option<StaticShare> {
        self.quote(Pattern::VllmNoBlocks).filter(|line| line.text.contains("mem-fraction-static"))?;
        let (weights, free) = (self.model.weights?, self.card_free?);
        let needed =
            (weights.get() / free.scaled(STEP, 100).get().max(1)).saturating_add(1).saturating_mul(STEP);
        (needed <= USUAL).then_some(StaticShare { weights, free, needed })
    }
}

impl StaticShare {
    /// The option with the value to set.
    pub(crate) fn remedy(&self) -> String {
        format!(
            "set --mem-fraction-static to at least {}, and more for a longer KV cache",
            decimal(self.needed)
        )
    }
}

/// `0.25`, `0.9`.
fn decimal(hundredths: u64) -> String {
    let digits = format!("0.{hundredths:02}");
    digits.strip_suffix('0').map_or(digits.clone(), str::to_owned)
}

impl SmallShare {
    /// The option with the value to set.
    pub(crate) fn remedy(&self) -> String {
        let option = format!("set --gpu-memory-utilization to {}", decimal(USUAL));
        let given = decimal(self.given);
        match self.card {
            Some((_, needed)) => {
                let needed = decimal(needed);
                format!("{option}: {given} is too little, and weights and activations need at least {needed}")
            }
            None => format!("{option}: it is {given}"),
        }
    }
}

impl fmt::Display for SmallShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = decimal(self.given);
        match self.card {
            Some((card, _)) => write!(
                f,
                "vLLM may use {given} of the card's {card}, which is {}; weights and activations take {}{}",
                card.scaled(self.given, 100),
                if self.is_printed { "" } else { "about " },
                self.demand
            ),
            None => write!(f, "vLLM may use {given} of the card, which leaves nothing for the KV cache"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_written_without_a_last_zero() {
        assert_eq!([5, 30, 35, 90].map(decimal), ["0.05", "0.3", "0.35", "0.9"]);
    }
}

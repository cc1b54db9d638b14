//! What follows from several facts: who refused, how much was placed, what the weights are, whether anything failed at all.

use plimsoll_base::Bytes;

use super::{Choice, Evidence, Idea, Purpose, Quote, Refusal};
use crate::saying::Saying;

impl Evidence {
    pub(crate) fn says(&self, saying: Saying) -> bool {
        self.said.contains_key(&saying)
    }

    pub(crate) fn says_any(&self, sayings: &[Saying]) -> bool {
        sayings.iter().any(|saying| self.says(*saying))
    }

    pub(crate) fn quote(&self, saying: Saying) -> Option<Quote> {
        self.said.get(&saying).map(|seen| seen.first.clone())
    }

    /// The first line of each of `sayings` that was said.
    pub(crate) fn quotes(&self, sayings: &[Saying]) -> Vec<Quote> {
        sayings.iter().filter_map(|saying| self.quote(*saying)).collect()
    }

    /// True where the report is about each of `ideas`.
    pub(crate) fn is_about(&self, ideas: &[Idea]) -> bool {
        ideas.iter().all(|idea| self.ideas.contains_key(idea))
    }

    /// The refusals of the last load that had any.
    pub(crate) fn last_refusals(&self) -> impl DoubleEndedIterator<Item = &Refusal> {
        let attempt = self.refusals.iter().map(|refusal| refusal.attempt).max();
        self.refusals
            .iter()
            .filter(move |refusal| Some(refusal.attempt) == attempt)
    }

    /// The refusal that ended it.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.last_refusals().next_back()
    }

    /// What the load that failed had put on the cards for `purpose`.
    pub(crate) fn placed(&self, purpose: Purpose) -> Bytes {
        let attempt = self.refusal().map_or(self.attempt, |refusal| refusal.attempt);
        let buffers = self.buffers.iter().filter(|buffer| buffer.attempt == attempt);
        buffers
            .filter(|buffer| buffer.on_card && buffer.purpose == purpose)
            .map(|buffer| buffer.size)
            .sum()
    }

    /// The largest card that was named.
    pub(crate) fn card(&self) -> Option<Bytes> {
        let torch = self.torch.as_ref().and_then(|torch| torch.total);
        let startup = self.startup.as_ref().map(|startup| startup.total);
        torch.or(startup).or_else(|| self.cards.iter().copied().max())
    }

    /// All weights of the model: by what an engine printed, or by names, of 16 bits where none is named.
    pub(crate) fn weights(&self) -> Option<Bytes> {
        const MIB_OF_A_THOUSAND_MILLION_BITS: f64 = 1e9 / 8.0 / 1_048_576.0;
        let named = self.parameters.and_then(|parameters| {
            let mib = parameters * self.bits.unwrap_or(16.0) * MIB_OF_A_THOUSAND_MILLION_BITS;
            format!("{mib:.0}MiB").parse().ok()
        });
        self.model.or(self.told_model).or(named)
    }

    /// The weights and all cards, where the weights are more and none are meant to be elsewhere.
    pub(crate) fn weights_beyond_cards(&self) -> Option<(Bytes, Bytes)> {
        let (weights, cards) = (self.weights()?, self.card().max(self.named_cards)?);
        (!self.on_host && weights > cards).then_some((weights, cards))
    }

    /// More than a quarter of a card that was gone before the engine took its first byte, and would have been enough.
    pub(crate) fn taken_before(&self) -> Option<Bytes> {
        let (card, free) = (self.cards.iter().copied().max()?, self.card_free?);
        let taken = card.saturating_sub(free).saturating_sub(self.placed_earlier());
        // An arena is more than anybody took.
        let arena = |asked| is_arena(asked, card) && free.scaled(4, 1) <= card;
        let enough = self
            .refusal()?
            .asked
            .is_some_and(|asked| asked <= taken || arena(asked));
        (!self.is_unified() && self.guard.is_none() && taken.scaled(4, 1) >= card && enough).then_some(taken)
    }

    /// What loads before the one that failed have put on the cards; one that failed itself has given it back.
    fn placed_earlier(&self) -> Bytes {
        let failed = |attempt| self.refusals.iter().any(|refusal| refusal.attempt == attempt);
        let buffers = self.buffers.iter();
        buffers
            .filter(|buffer| buffer.on_card && !failed(buffer.attempt))
            .map(|buffer| buffer.size)
            .sum()
    }

    /// The card that refused, where the program numbers it.
    pub(crate) fn refusing_card(&self) -> Option<u64> {
        let torch = self.torch.as_ref().and_then(|torch| torch.device);
        torch.or_else(|| self.refusal()?.device)
    }

    /// A choice that the refusing card is not of.
    pub(crate) fn choice_missed(&self) -> Option<&Choice> {
        let card = self.refusing_card()?;
        let picks = || self.choices.iter().filter(|choice| !choice.hides);
        let hiding = self.choices.iter().rfind(|choice| choice.hides);
        let beyond =
            hiding.filter(|choice| usize::try_from(card).is_ok_and(|card| card >= choice.cards.len()));
        let picked = picks()
            .next()
            .filter(|_| picks().all(|choice| !choice.cards.contains(&card)));
        picked.or(beyond.filter(|_| picks().next().is_none()))
    }

    /// True where cards share the host's memory.
    pub(crate) fn is_unified(&self) -> bool {
        self.release.is_some() || self.says_any(&[Saying::NvMap, Saying::UnifiedBoard, Saying::Tegrastats])
    }

    /// All memory of the machine: as the kernel tells it, else as people do.
    pub(crate) fn machine(&self) -> Option<Bytes> {
        self.host.total.or(self.told_host)
    }

    /// Some allocation was refused, or is said to have been.
    pub(crate) fn ran_out(&self) -> bool {
        self.was_refused() || self.says(Saying::OutOfMemory)
    }

    /// A program told how much was refused.
    pub(crate) fn is_sized(&self) -> bool {
        self.torch.is_some() || self.refusals.iter().any(|refusal| refusal.asked.is_some())
    }

    /// Some allocation was refused, in a form that only programs use; `out of memory` is what people say too.
    pub(crate) fn was_refused(&self) -> bool {
        const WORDS: [Saying; 9] = [
            Saying::Unworded,
            Saying::TensorRefused,
            Saying::BudgetRefused,
            Saying::VllmNoBlocks,
            Saying::TorchWouldExceed,
            Saying::NvMap,
            Saying::NvmlQueryAssert,
            Saying::KernelMemory,
            Saying::VulkanRefused,
        ];
        !self.refusals.is_empty() || self.torch.is_some() || self.guard.is_some() || self.says_any(&WORDS)
    }
}

/// Some frameworks take a card as one arena, and ask for nearly all of it, whatever the model.
pub(crate) fn is_arena(asked: Bytes, card: Bytes) -> bool {
    asked.scaled(5, 4) >= card && asked <= card
}

//! Derives further facts from the numbers and messages found in a log, such as the refusal that ended a load.
//!
//! Examples are the allocation failure that ended the load, the sizes of card and weights, and the memory in
//! use before the engine started.

use plimsoll_base::Bytes;

use super::{CardChoice, Facts, FailedAllocation, PlacedBuffer, Purpose, Quote, Sighting};
use crate::pattern::Pattern;

impl Facts {
    pub(crate) fn says(&self, pattern: Pattern) -> bool {
        self.lines.contains_key(&pattern)
    }

    pub(crate) fn says_any(&self, patterns: &[Pattern]) -> bool {
        patterns.iter().any(|pattern| self.says(*pattern))
    }

    pub(crate) fn seen(&self, pattern: Pattern) -> Option<&Sighting> {
        self.lines.get(&pattern)
    }

    /// The first line of `pattern`.
    pub(crate) fn quote(&self, pattern: Pattern) -> Option<Quote> {
        self.seen(pattern).map(|seen| seen.first.clone())
    }

    /// The first line of each of `patterns`, where there is one.
    pub(crate) fn quotes(&self, patterns: &[Pattern]) -> Vec<Quote> {
        patterns.iter().filter_map(|pattern| self.quote(*pattern)).collect()
    }

    /// The refusals of the last load that had any.
    pub(crate) fn last_refusals(&self) -> impl DoubleEndedIterator<Item = &FailedAllocation> {
        // A server restarts its engine after a failure: earlier attempts explain earlier refusals.
        let attempt = self.refusals.iter().map(|refusal| refusal.attempt).max();
        self.refusals.iter().filter(move |refusal| Some(refusal.attempt) == attempt)
    }

    /// The refusal that ended the last load.
    pub(crate) fn refusal(&self) -> Option<&FailedAllocation> {
        self.last_refusals().next_back()
    }

    /// Buffers that the failed load had placed on the cards.
    pub(crate) fn load_buffers(&self) -> impl Iterator<Item = &PlacedBuffer> {
        let attempt = self.refusal().map_or(self.progress.attempt, |refusal| refusal.attempt);
        self.buffers.iter().filter(move |buffer| buffer.on_card && buffer.attempt == attempt)
    }

    /// Memory that the failed load had placed on the cards for `purpose`.
    pub(crate) fn placed(&self, purpose: Purpose) -> Bytes {
        self.load_buffers().filter(|buffer| buffer.purpose == purpose).map(|buffer| buffer.size).sum()
    }

    /// The image encoder of a model found no room beside it.
    pub(crate) fn refuses_encoder(&self) -> bool {
        let is_later = |refusal: &FailedAllocation| {
            let encoder = self.seen(Pattern::LoadsEncoder);
            refusal.purpose == Purpose::Weights
                && encoder.is_some_and(|seen| seen.last.line < refusal.quote.line)
        };
        self.refusal().is_some_and(is_later) && !self.placed(Purpose::Weights).is_zero()
    }

    /// The program was at an image when a compute buffer was refused.
    pub(crate) fn refuses_image(&self) -> bool {
        let is_later = |refusal: &FailedAllocation| {
            let image = self.seen(Pattern::SeesImage);
            image.is_some_and(|seen| {
                seen.first.origin == refusal.quote.origin && seen.first.line < refusal.quote.line
            })
        };
        self.torch.is_none() && self.refusal().is_some_and(is_later)
    }

    /// The largest card that a program printed.
    pub(crate) fn card(&self) -> Option<Bytes> {
        let torch = self.torch.as_ref().and_then(|torch| torch.total);
        let startup = self.startup.as_ref().map(|startup| startup.total);
        // PyTorch and vLLM print the total of the driver; other sizes may come from a name.
        torch.or(startup).or_else(|| self.card_sizes.iter().copied().max())
    }

    /// True if a program printed the size of a card.
    pub(crate) fn has_card_size(&self) -> bool {
        !self.card_sizes.is_empty()
    }

    /// All weights of the model: as an engine printed them, or by the model's name (16 bits by default).
    pub(crate) fn weights(&self) -> Option<Bytes> {
        const MIB_OF_A_THOUSAND_MILLION_BITS: f64 = 1e9 / 8.0 / 1_048_576.0;
        let named = self.model.parameters.and_then(|parameters| {
            let mib = parameters * self.model.bits.unwrap_or(16.0) * MIB_OF_A_THOUSAND_MILLION_BITS;
            format!("{mib:.0}MiB").parse().ok()
        });
        self.model.file.or(named)
    }

    /// More than a quarter of a card is others' memory, so that the refused request would fit without them.
    /// The figure is the free memory before the first allocation, else a table of the card's processes.
    pub(crate) fn taken_before(&self) -> Option<Bytes> {
        let of_table = self.usage.as_ref().map(|usage| usage.total);
        let card = self.card_sizes.iter().copied().max().or(of_table)?;
        let refusing = self.refusing_card();
        let elsewhere = |card: u64| refusing.is_some_and(|refusing| refusing != card);
        let holders = self.holders.iter().filter(|holder| !holder.card.is_some_and(elsewhere));
        let occupied: Bytes = holders.map(|holder| holder.used).sum();
        // The table may have been printed while the load held memory.
        let by_table = (!occupied.is_zero()).then(|| card.saturating_sub(occupied) + self.placed_by_load());
        let free = self.card_free.or(by_table)?;
        let taken = card.saturating_sub(free).saturating_sub(self.placed_earlier());
        // An arena asks for nearly the whole card, more than any neighbour holds.
        let arena = |requested| is_arena(requested, card) && free.scaled(4, 1) <= card;
        // The size that fits an empty card, with nine tenths for it and everything that the load has placed.
        let fits_alone = |requested: Bytes| (requested + self.placed_by_load()).scaled(10, 9) <= card;
        let enough = self
            .refusal()?
            .requested
            .is_some_and(|requested| requested <= taken || arena(requested) || fits_alone(requested));
        (!self.is_unified() && self.guard.is_none() && taken.scaled(4, 1) >= card && enough).then_some(taken)
    }

    /// Free memory of the one card after the load, where that is too little for a library's handle.
    pub(crate) fn left_after_load(&self) -> Option<Bytes> {
        let free = self.card_free.filter(|_| self.cards_free.len() <= 1)?;
        let left = free.saturating_sub(self.load_buffers().map(|buffer| buffer.size).sum());
        (left < Bytes::mib(128) && self.refusals.is_empty()).then_some(left)
    }

    /// Memory that the failed load had placed on the cards, without the refused buffer.
    pub(crate) fn placed_by_load(&self) -> Bytes {
        let Some(refusal) = self.refusal() else { return Bytes::ZERO };
        let is_refused = |buffer: &PlacedBuffer| {
            Some(buffer.size) == refusal.requested && buffer.purpose == refusal.purpose
        };
        self.load_buffers().filter(|buffer| !is_refused(buffer)).map(|buffer| buffer.size).sum()
    }

    /// Memory on the cards of earlier loads; a load that failed has given its memory back.
    fn placed_earlier(&self) -> Bytes {
        let failed = |attempt| self.refusals.iter().any(|refusal| refusal.attempt == attempt);
        let buffers = self.buffers.iter();
        buffers.filter(|buffer| buffer.on_card && !failed(buffer.attempt)).map(|buffer| buffer.size).sum()
    }

    /// The card that refused, where the program numbers it.
    pub(crate) fn refusing_card(&self) -> Option<u64> {
        let torch = self.torch.as_ref().and_then(|torch| torch.device);
        torch.or_else(|| self.refusal()?.device)
    }

    /// A selection of cards that the refusing card is not part of.
    pub(crate) fn choice_missed(&self) -> Option<&CardChoice> {
        let card = self.refusing_card()?;
        let picks = || self.choices.iter().filter(|choice| !choice.hides);
        let hiding = self.choices.iter().rfind(|choice| choice.hides);
        // After a hiding choice of n cards the visible ones are numbered 0 to n - 1.
        let beyond =
            hiding.filter(|choice| usize::try_from(card).is_ok_and(|card| card >= choice.cards.len()));
        // Several options of one command line may select several cards, and any of them may refuse.
        let picked = picks().next().filter(|_| picks().all(|choice| !choice.cards.contains(&card)));
        picked.or(beyond.filter(|_| picks().next().is_none()))
    }

    /// The reporter's lines tell of memory that grows, or of a failure after several runs.
    pub(crate) fn grows(&self) -> bool {
        self.growth.is_some() || self.says(Pattern::Grows)
    }

    /// True if the card shares the host's memory.
    pub(crate) fn is_unified(&self) -> bool {
        // An L4T release or an NvMap line exists on Tegra boards only.
        self.release.is_some() || self.says_any(&[Pattern::NvMap, Pattern::UnifiedBoard, Pattern::Tegrastats])
    }

    /// All memory of the machine: by the kernel, or by the board's name.
    pub(crate) fn machine(&self) -> Option<Bytes> {
        self.host.total.or(self.host.of_board)
    }

    /// An allocation was refused, or the log contains the words for it.
    pub(crate) fn ran_out(&self) -> bool {
        self.was_refused() || self.says(Pattern::OutOfMemory)
    }

    /// Memory was refused, and no line names a size or a buffer, as of NCCL.
    pub(crate) fn is_bare_refusal(&self) -> bool {
        let is_bare =
            |refusal: &FailedAllocation| refusal.requested.is_none() && refusal.purpose == Purpose::Unknown;
        let refused = self.says(Pattern::BareRefused) || !self.refusals.is_empty();
        refused && self.torch.is_none() && self.refusals.iter().all(is_bare)
    }

    /// The log gives the size of a refused request.
    pub(crate) fn is_sized(&self) -> bool {
        self.torch.is_some() || self.refusals.iter().any(|refusal| refusal.requested.is_some())
    }

    /// An allocation was refused, in a form that only programs print; people write `out of memory` too.
    pub(crate) fn was_refused(&self) -> bool {
        const FORMS: [Pattern; 9] = [
            Pattern::Unworded,
            Pattern::TensorRefused,
            Pattern::BudgetRefused,
            Pattern::VllmNoBlocks,
            Pattern::TorchWouldExceed,
            Pattern::NvMap,
            Pattern::NvmlQueryAssert,
            Pattern::KernelMemory,
            Pattern::VulkanRefused,
        ];
        !self.refusals.is_empty() || self.torch.is_some() || self.guard.is_some() || self.says_any(&FORMS)
    }
}

/// True for a request of nearly the whole card: some frameworks take a card as one arena, whatever the model.
fn is_arena(requested: Bytes, card: Bytes) -> bool {
    requested.scaled(5, 4) >= card && requested <= card
}

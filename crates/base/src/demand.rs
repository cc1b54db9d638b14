//! States how much memory a model takes on a given set of cards.
//!
//! The demand is the model's memory plan for these cards, or the size that the user declared. If neither is
//! known, the model takes one whole card.

use std::fmt;

use plimsoll_wire::cache::CacheLayout;
use serde::Serialize;

use super::card::{Card, CardId, Share};
use super::curve::Curve;
use crate::Bytes;
use crate::{Hint, Reason};

/// Identifier of one start of an engine. It is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(pub u64);

/// Cards of a run, with the bytes that it may take on each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// In the order of the machine's cards; empty for an engine that needs no card.
    pub shares: Vec<Share>,
    /// The run takes a whole card because its need is unknown.
    pub alone: bool,
}

impl Placement {
    /// Bytes of the placement on `card`; zero if it has no share.
    pub fn on(&self, card: &CardId) -> Bytes {
        let on_card = self.shares.iter().filter(|share| share.card == *card);
        on_card.map(|share| share.bytes).sum()
    }

    pub fn cards(&self) -> impl Iterator<Item = &CardId> {
        self.shares.iter().map(|share| &share.card)
    }

    pub fn total(&self) -> Bytes {
        self.shares.iter().map(|share| share.bytes).sum()
    }
}

/// Cards that a model's own flags name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedDemand {
    /// It must have these.
    pub cards: Vec<CardId>,
    /// And no others.
    pub only: bool,
    /// Cards that the model's engine has no backend for.
    pub excluded: Vec<CardId>,
}

impl NamedDemand {
    /// False for a card that the flags or the engine rule out.
    pub fn allows(&self, card: &CardId) -> bool {
        // `--device` rules out all other cards; `--main-gpu` alone does not.
        (!self.only || self.cards.contains(card)) && !self.excluded.contains(card)
    }
}

static NO_NAMES: NamedDemand = NamedDemand { cards: Vec::new(), only: false, excluded: Vec::new() };

/// The engine's cache of idle prompts in host memory, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptCache {
    pub bytes: Bytes,
    /// A flag sets the limit; else it follows from the host's memory.
    pub is_set: bool,
}

/// Memory need of a model as data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelNeed {
    pub size: NeedSize,
    /// Cards that the model's own flags name.
    pub named: NamedDemand,
}

/// How the need follows from the cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NeedSize {
    /// That of a [`DeclaredSize`].
    Declared(Bytes),
    /// That of a [`DividedSize`].
    Divided(Bytes),
    /// That of an [`UnknownSize`]; on all cards that the flags name, if they rule out all others.
    #[default]
    Unknown,
    /// A plan tells it for each set of cards.
    Planned,
}

impl ModelNeed {
    pub fn new(size: NeedSize) -> Self {
        Self { size, named: NamedDemand::default() }
    }

    /// The need is unknown: the model gets its cards exclusively, until it is measured.
    pub fn is_alone(&self) -> bool {
        self.size == NeedSize::Unknown
    }

    /// False where the model runs on fewer cards alone, whatever is free of these. Cards of two makers serve
    /// together only where the flags name them: they have no interface in common but Vulkan.
    pub fn may_use<'a>(&self, mut cards: impl ExactSizeIterator<Item = &'a Card> + Clone) -> bool {
        let mut makers = cards.clone().map(|card| card.maker);
        let first = makers.next();
        if self.named.cards.is_empty() && makers.any(|maker| Some(maker) != first) {
            return false;
        }
        match self.size {
            NeedSize::Declared(size) => cards.len() < 2 || cards.all(|card| card.total < size),
            NeedSize::Unknown => cards.len() == 1 || cards.len() > 1 && self.named.only,
            NeedSize::Divided(_) | NeedSize::Planned => true,
        }
    }

    /// The most that the model takes of each of these cards, given with the memory that it could get there.
    /// `None` where a plan has to tell it.
    pub fn shares(&self, cards: &[(&Card, Bytes)]) -> Option<Result<CardShares, Reason>> {
        Some(match self.size {
            NeedSize::Declared(size) => declared(size, cards),
            NeedSize::Divided(size) => divided(size, cards),
            // The engine will split itself over all of them, in a ratio that is unknown.
            NeedSize::Unknown if self.named.only && cards.len() > 1 => {
                Ok(cards.iter().map(|(card, free)| (card.id.clone(), *free)).collect())
            }
            NeedSize::Unknown => whole(cards),
            NeedSize::Planned => return None,
        })
    }
}

/// Bytes of each card.
pub type CardShares = Vec<(CardId, Bytes)>;

/// Memory need of a model, as a function of the cards that it gets.
pub trait MemoryModel: fmt::Debug + Send + Sync {
    /// The need as data, which a scheduler takes.
    fn need(&self) -> ModelNeed {
        ModelNeed { size: NeedSize::Planned, named: self.named().clone() }
    }

    /// True where [`Self::on`] gives the same whatever is free of these cards.
    fn ignores_free(&self, _cards: &[Card]) -> bool {
        false
    }

    /// Returns the peak memory that the model would take on each of these cards.
    ///
    /// `free` of each card is the most that the model could get there. An error means that the model cannot
    /// run on this set of cards at all, whatever memory is free; too little memory is not an error.
    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason>;

    /// The cards that the model's own flags name; [`Self::on`] is called only for sets that match them.
    fn named(&self) -> &NamedDemand {
        &NO_NAMES
    }

    /// The need is unknown: the model gets one card exclusively, until it is measured.
    fn alone(&self) -> bool {
        false
    }

    /// True where the engine itself reported the sizes for these cards.
    fn reported(&self, _cards: &[Card]) -> bool {
        false
    }

    /// Bytes on these cards by depth; or the reason why depth is not tracked, as text.
    fn curve(&self, _cards: &[Card]) -> Result<Curve, String> {
        // Only a plan knows the growth; a declared size is a constant.
        Err("it is unknown how much memory the model needs for each further token".to_owned())
    }

    /// The reduced context, where the requested one is too large for these cards.
    fn lowered_context(&self) -> Option<u64> {
        None
    }

    /// Returns advice that would make the model smaller, best first.
    fn hints(&self, _cards: &[Card]) -> Vec<Hint> {
        Vec::new()
    }

    /// Doubts about a plan for these cards, or reasons for slowness there.
    fn doubts(&self, _cards: &[Card]) -> Vec<Reason> {
        Vec::new()
    }

    /// Memory that the engine will request on each of these cards, where known.
    fn requested(&self, _cards: &[Card]) -> Vec<RequestedMemory> {
        Vec::new()
    }

    /// The part of the model's cache that goes to host memory on each of these cards, if each has `free` for
    /// it. Empty where all of it stays on the cards.
    fn overflow(&self, _cards: &[Card]) -> Vec<CacheOverflow> {
        Vec::new()
    }

    /// The planned terms on each of these cards, such as `weights` and `kv`, where a plan has them.
    fn terms(&self, _cards: &[Card]) -> Vec<(CardId, Vec<(&'static str, Bytes)>)> {
        Vec::new()
    }

    /// Host memory of the model, on a host that is not served as a card.
    fn alongside_cards(&self, _cards: &[Card]) -> Option<HostNeed> {
        None
    }

    /// The cache of idle prompts, which is part of the need and of the terms of the host's memory.
    fn prompt_cache(&self) -> Option<PromptCache> {
        None
    }
}

/// The last positions of a cache, which are in host memory because their card has no room for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOverflow {
    pub card: CardId,
    /// Positions of each stream on the card. A conversation that is no longer reads nothing from host memory.
    pub tokens: u64,
    /// Bytes of the cache in host memory.
    pub on_host: Bytes,
    /// Bytes that a token reads from host memory for each position beyond those on the card.
    pub position_bytes: Bytes,
}

/// Memory that an engine requests of a card, without the driver's context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedMemory {
    pub card: CardId,
    pub bytes: Bytes,
    /// Allocations of caches among it that can be divided by position.
    pub caches: Vec<CacheLayout>,
    /// The allocation of the weights among it, which can give way to used positions of a cache.
    pub weights: Option<Bytes>,
}

impl RequestedMemory {
    /// The cache whose used positions can change places with weights.
    pub fn exchanged_cache(&self) -> Option<&CacheLayout> {
        self.caches.first().filter(|_| self.weights.is_some())
    }
}

/// Need of host memory that no account of a card has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostNeed {
    pub bytes: Bytes,
    /// The weights in it are pages of the model's file.
    pub mapped: bool,
}

// DECISION: a program whose flags name no cards computes on one. Seen two, it would open a context on both
// and take its whole memory on the first. Only a size that no single card has says that the program uses
// several.
/// A size declared by the user, on one card; on several only if none of them is large enough for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredSize(pub Bytes);

impl MemoryModel for DeclaredSize {
    fn need(&self) -> ModelNeed {
        ModelNeed::new(NeedSize::Declared(self.0))
    }

    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason> {
        declared(self.0, &as_they_are(cards))
    }
}

/// A declared size of a program that computes on all of its cards, divided in proportion to their free
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DividedSize(pub Bytes);

impl MemoryModel for DividedSize {
    fn need(&self) -> ModelNeed {
        ModelNeed::new(NeedSize::Divided(self.0))
    }

    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason> {
        divided(self.0, &as_they_are(cards))
    }
}

/// A model of unknown size, which needs one whole card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnknownSize;

impl MemoryModel for UnknownSize {
    fn need(&self) -> ModelNeed {
        ModelNeed::new(NeedSize::Unknown)
    }

    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason> {
        whole(&as_they_are(cards))
    }

    fn alone(&self) -> bool {
        true
    }
}

fn as_they_are(cards: &[Card]) -> Vec<(&Card, Bytes)> {
    cards.iter().map(|card| (card, card.free)).collect()
}

fn declared(size: Bytes, cards: &[(&Card, Bytes)]) -> Result<CardShares, Reason> {
    if cards.len() > 1 && cards.iter().any(|(card, _)| card.total >= size) {
        let text = "the model's memory is declared as a whole, so the model is loaded on one card";
        return Err(Reason::new("one_card", text));
    }
    divided(size, cards)
}

fn divided(size: Bytes, cards: &[(&Card, Bytes)]) -> Result<CardShares, Reason> {
    let all_free: Bytes = cards.iter().map(|(_, free)| *free).sum();
    let Some(((last, _), others)) = cards.split_last() else {
        return match size.is_zero() {
            true => Ok(Vec::new()),
            // Without a card, even a declared size has nowhere to go; zero is an engine on the CPU.
            false => {
                let text = "the model needs a GPU, and this machine has none";
                Err(Reason::new("no_card", text).fact("need", size))
            }
        };
    };
    let mut rest = size;
    let mut shares = Vec::with_capacity(cards.len());
    // The last card takes the remainder, so that rounding loses no byte of the declared size.
    for (card, free) in others {
        // With no free memory at all, scaled() divides by one and the ledger refuses the placement.
        let share = size.scaled(free.get(), all_free.get());
        rest = rest.saturating_sub(share);
        shares.push((card.id.clone(), share));
    }
    shares.push((last.id.clone(), rest));
    Ok(shares)
}

fn whole(cards: &[(&Card, Bytes)]) -> Result<CardShares, Reason> {
    match cards {
        [(card, free)] => Ok(vec![(card.id.clone(), *free)]),
        _ => Err(Reason::new(
            "unknown_need",
            "the model's memory need is unknown, so the model is loaded alone on one card",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CardKind, Counting};

    fn card(name: &str, free: Bytes) -> Card {
        Card {
            id: CardId::new(name),
            kind: CardKind::Cuda,
            name: name.to_owned(),
            uuid: None,
            total: free,
            free,
            compute_capability: None,
            legacy_pool: false,
            shares_host: false,
            counting: Counting::Driver,
            maker: crate::CardMaker::Nvidia,
            address: None,
        }
    }

    #[test]
    fn declared_memory_is_divided_as_free_memory_is_and_loses_no_byte() {
        let cards = [card("a", Bytes::new(100)), card("b", Bytes::new(200))];
        let shares = DividedSize(Bytes::new(100)).on(&cards).unwrap();
        assert_eq!(shares, [(CardId::new("a"), Bytes::new(33)), (CardId::new("b"), Bytes::new(67))]);
    }

    #[test]
    fn a_program_that_names_no_cards_gets_one_unless_no_card_is_large_enough() {
        let cards = [card("a", Bytes::new(100)), card("b", Bytes::new(200))];
        for (size, shares) in [(100, None), (200, None), (240, Some([80, 160]))] {
            let on = DeclaredSize(Bytes::new(size)).on(&cards).ok();
            let sizes = on.map(|shares| shares.iter().map(|(_, bytes)| bytes.get()).collect::<Vec<_>>());
            assert_eq!(sizes, shares.map(Vec::from), "{size}");
        }
    }

    #[test]
    fn a_need_of_nothing_is_met_without_a_card() {
        assert_eq!(DeclaredSize(Bytes::ZERO).on(&[]), Ok(Vec::new()));
        assert_eq!(DeclaredSize(Bytes::new(1)).on(&[]).unwrap_err().code, "no_card");
    }

    #[test]
    fn an_unknown_need_takes_one_whole_card_alone() {
        let cards = [card("a", Bytes::mib(9)), card("b", Bytes::mib(9))];
        assert_eq!(UnknownSize.on(&cards[..1]), Ok(vec![(CardId::new("a"), Bytes::mib(9))]));
        assert_eq!(UnknownSize.on(&cards).unwrap_err().code, "unknown_need");
        assert!(UnknownSize.alone());
    }
}

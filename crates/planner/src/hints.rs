//! What would make an impossible thing possible, each piece of advice weighed by planning with it.
//!
//! DECISION: advice is given only where the plan does not fit, and only if it saves something on the cards that are
//! short. What is enough stands first; then by bytes saved against what is lost, by the one table of prices below.
//! Where nothing alone is enough, pairs are tried, the cheapest first. A change that has a size (context, layers) is
//! given the mildest one that is enough.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_base::{Advice, Bytes, Card, CardKind, Hint};
use plimsoll_flags::{FlashAttention, GpuLayers, Program, SplitMode};
use plimsoll_model::{TensorType, types};

use super::cost::peak;
use super::fit::{Change, Price, Priced, QuickEstimate, smallest};
use super::request::PlanRequest;
use super::reserve::{CELLS, Reserve};

/// Advice that saves less is noise.
const WORTH_SAYING: Bytes = Bytes::mib(1);
/// Pairs that are said where nothing alone is enough.
const PAIRS: usize = 4;

/// What a change takes away: a weight for the order and words for people.
fn price_of(advice: &Advice) -> (u64, &'static str) {
    match advice {
        Advice::WindowedCache => (
            1,
            "tokens outside the window are read again where a prompt goes back to them",
        ),
        Advice::FreeCard { .. } => (1, "others give way"),
        Advice::FlashAttention | Advice::DivideLayers(_) => (1, "nothing"),
        Advice::QuantiseCache("q8_0") => (2, "hardly any precision"),
        Advice::NoOpOffload => (2, "prompts are slower where weights are in host memory"),
        Advice::ShrinkMicroBatch(_) => (2, "prompts are read more slowly"),
        Advice::ProjectorOnHost => (2, "images are read more slowly"),
        Advice::FewerSlots(_) => (3, "fewer requests at once"),
        Advice::QuantiseCache(_) => (4, "some precision"),
        Advice::ShrinkContext(_) => (4, "shorter conversations"),
        Advice::ExpertsOnHost(_) => (8, "every token waits for host memory"),
        Advice::AnotherCard => (8, "a card"),
        _ => (16, "slower with every layer in host memory"),
    }
}

pub(super) fn hints<P: Price>(request: &PlanRequest<'_>, price: &P, asked: &Priced) -> Vec<Hint> {
    if asked.fits(request.cards) {
        return Vec::new();
    }
    let weighing = HintSearch {
        request,
        price,
        outline: QuickEstimate::new(request, asked),
        asked,
    };
    let mut remedies = weighing.singles();
    if !remedies.iter().any(|remedy| remedy.enough) {
        remedies.extend(weighing.pairs(&remedies));
    }
    remedies.sort_by_key(Remedy::rank);
    let mut hints: Vec<Hint> = remedies.into_iter().map(Remedy::hint).collect();
    hints.extend(request.cards.iter().zip(&asked.cards).filter_map(free_card));
    hints.extend(weighing.another_card());
    hints
}

/// Changes that were priced together.
#[derive(Clone, Debug)]
struct Remedy {
    changes: Vec<Change>,
    saves: Bytes,
    enough: bool,
}

impl Remedy {
    fn advice(&self) -> Advice {
        let mut all: Vec<Advice> = self.changes.iter().map(Change::advice).collect();
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => only,
            (last, _) => Advice::Together(all.into_iter().chain(last).collect()),
        }
    }

    fn weight(&self) -> u64 {
        self.changes
            .iter()
            .map(|change| price_of(&change.advice()).0)
            .sum()
    }

    fn rank(&self) -> (bool, Reverse<u64>) {
        (!self.enough, Reverse(self.saves.get() / self.weight().max(1)))
    }

    fn hint(self) -> Hint {
        let dearest = self.changes.iter().map(|change| price_of(&change.advice())).max();
        Hint {
            enough: self.enough,
            costs: dearest.map(|(_, words)| words),
            ..Hint::saving(self.advice(), self.saves)
        }
    }
}

/// A change with a size: how much of it, from the mildest to the most.
struct SizedChange {
    end: u64,
    /// It moves whole tensors.
    has_steps: bool,
    change: Box<dyn Fn(u64) -> Change>,
}

struct HintSearch<'a, P> {
    request: &'a PlanRequest<'a>,
    price: &'a P,
    asked: &'a Priced,
    outline: Option<QuickEstimate<'a>>,
}

impl<P: Price> HintSearch<'_, P> {
    fn singles(&self) -> Vec<Remedy> {
        let mut remedies: Vec<Remedy> = Vec::new();
        for kind in self.plain() {
            remedies.extend(self.mildest_of(kind));
        }
        remedies.extend(self.sized().iter().filter_map(|sized| self.mildest(sized, None)));
        remedies
    }

    /// Of changes of one kind, mildest first, the mildest that is enough, else the last.
    fn mildest_of(&self, mut kind: Vec<Change>) -> Option<Remedy> {
        let most = self.weigh(vec![kind.pop()?])?;
        let milder = kind.into_iter().filter(|_| most.enough);
        let enough = milder
            .filter_map(|change| self.weigh(vec![change]))
            .find(|remedy| remedy.enough);
        Some(enough.unwrap_or(most))
    }

    /// Pairs that are enough, of a plain change that saves something and any other.
    fn pairs(&self, singles: &[Remedy]) -> Vec<Remedy> {
        let plain: Vec<&Change> = singles.iter().flat_map(|remedy| &remedy.changes).collect();
        let mut pairs = Vec::new();
        for (at, first) in plain.iter().enumerate() {
            let others = plain[at + 1..]
                .iter()
                .filter(|second| first.kind() != second.kind());
            let both = others.map(|second| vec![(*first).clone(), (*second).clone()]);
            pairs.extend(both.filter_map(|both| self.weigh(both)));
            pairs.extend(
                self.sized()
                    .iter()
                    .filter_map(|sized| self.mildest(sized, Some(first))),
            );
        }
        pairs.retain(|pair| pair.enough);
        pairs.sort_by_key(Remedy::rank);
        pairs.truncate(PAIRS);
        pairs
    }

    /// Prices changes; a remedy if they save memory on the cards that are short of it.
    fn weigh(&self, changes: Vec<Change>) -> Option<Remedy> {
        let after = self.price.price(&changes, self.request.cards).ok()?;
        self.remedy(changes, &after)
    }

    fn remedy(&self, changes: Vec<Change>, after: &Priced) -> Option<Remedy> {
        let remedy = Remedy {
            saves: self.saving(after),
            enough: after.fits(self.request.cards),
            changes,
        };
        (remedy.saves >= WORTH_SAYING).then_some(remedy)
    }

    /// Bytes saved on the cards where the request as it is does not fit.
    fn saving(&self, after: &Priced) -> Bytes {
        let before = self.request.cards.iter().zip(&self.asked.cards);
        let short = before
            .zip(&after.cards)
            .filter(|((card, before), _)| peak(before) > card.free);
        short
            .map(|((_, before), after)| peak(before).saturating_sub(peak(after)))
            .sum()
    }

    /// The mildest size of a change that is enough, beside another change if need be.
    fn mildest(&self, sized: &SizedChange, beside: Option<&Change>) -> Option<Remedy> {
        let changes = |size: u64| {
            let change = (sized.change)(size);
            beside.into_iter().cloned().chain([change]).collect::<Vec<_>>()
        };
        let cards = self.request.cards;
        let mut priced = BTreeMap::new();
        let foresee = |sizes: &[u64]| {
            let questions: Vec<Vec<Change>> = sizes.iter().map(|&size| changes(size)).collect();
            self.price.foresee(&questions);
        };
        let guess = self.guess(sized, changes);
        let found = smallest(0..=sized.end, guess, Some(Box::new(foresee)), |size| {
            if size == 0 && beside.is_none() {
                return Some(self.asked.slack(cards));
            }
            let after = self.price.price(&changes(size), cards).ok()?;
            let slack = after.slack(cards);
            priced.insert(size, after);
            Some(slack)
        })?;
        // What has no price may be milder and enough.
        let priced = priced.get(&found.at).filter(|_| !self.price.is_spent())?;
        self.remedy(changes(found.at), priced)
    }

    fn guess(&self, sized: &SizedChange, changes: impl Fn(u64) -> Vec<Change>) -> Option<u64> {
        let outline = self.outline.as_ref().filter(|_| sized.has_steps);
        let estimate = |size| {
            let changes = changes(size);
            let slack = self.price.estimate(&changes);
            slack.or_else(|| outline?.slack(&changes))
        };
        Some(smallest(0..=sized.end, None, None, estimate)?.at)
    }

    /// Changes of single flags that may save memory, those of one kind together, mildest first.
    fn plain(&self) -> Vec<Vec<Change>> {
        let (request, wish) = (self.request, self.request.wish);
        let reserve = Reserve::of_model(request, u64::from(wish.context));
        let (key, cached) = (wish.cache_key, request.model.hyper.cached);
        let smaller = |kind: &TensorType| cached && kind.size * key.block < key.size * kind.block;
        let batches = [wish.micro_batch / 2, 128].into_iter();
        let batches = batches.filter(|&tokens| tokens >= 128 && tokens < wish.micro_batch);
        let mut kinds = vec![
            [types::Q8_0, types::Q4_0]
                .into_iter()
                .filter(smaller)
                .map(Change::Cache)
                .collect(),
            batches
                .map(|tokens| Change::micro_batch(tokens, wish.batch))
                .collect(),
        ];
        let slots = Change::Slots {
            slots: 1,
            context: None,
        };
        let whole = matches!(wish.gpu_layers, GpuLayers::Auto | GpuLayers::All);
        let partly = !whole || wish.experts_on_host > 0 || !wish.overrides.is_empty();
        for (possible, change) in [
            (
                reserve.sequences > 1 && request.program == Program::LlamaServer,
                slots,
            ),
            (
                wish.flash_attention == FlashAttention::Off,
                Change::FlashAttention,
            ),
            (wish.op_offload && partly, Change::NoOpOffload),
            (
                wish.full_sliding_cache && request.model.hyper.sliding.is_some(),
                Change::WindowedCache,
            ),
            (
                request.projector.is_some() && wish.projector_offload,
                Change::ProjectorOnHost,
            ),
        ] {
            if possible {
                kinds.push(vec![change]);
            }
        }
        kinds
    }

    /// Changes that can be made more or less of.
    fn sized(&self) -> Vec<SizedChange> {
        let (request, wish) = (self.request, self.request.wish);
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let reserve = Reserve::of_model(request, u64::from(wish.context));
        let steps = reserve.context / CELLS;
        let mut sized = vec![SizedChange {
            end: steps.saturating_sub(1),
            has_steps: false,
            change: Box::new(move |fewer| Change::Context(number((steps - fewer) * CELLS))),
        }];
        if !request.cards.iter().any(|card| card.kind == CardKind::Cuda) {
            return sized;
        }
        let layers = request.model.hyper.layers;
        let started = wish.experts_on_host;
        if request.model.hyper.experts.is_some() && started < layers {
            sized.push(SizedChange {
                end: u64::from(layers - started),
                has_steps: true,
                change: Box::new(move |more| Change::ExpertsOnHost(started + number(more))),
            });
        }
        let all = layers.saturating_add(1);
        let now = match wish.gpu_layers {
            GpuLayers::Auto | GpuLayers::All => all,
            GpuLayers::Count(count) => count.min(all),
        };
        sized.push(SizedChange {
            end: u64::from(now),
            has_steps: true,
            change: Box::new(move |fewer| Change::Layers(now.saturating_sub(number(fewer)))),
        });
        sized
    }

    /// Another card like the first, if the model then fits.
    fn another_card(&self) -> Option<Hint> {
        let (request, wish) = (self.request, self.request.wish);
        let first = request.cards.iter().find(|card| card.kind == CardKind::Cuda)?;
        if wish.split_mode == SplitMode::None || !wish.devices.is_empty() || !wish.tensor_split.is_empty() {
            return None;
        }
        let mut cards = request.cards.to_vec();
        cards.push(Card {
            free: first.total,
            ..first.clone()
        });
        let fits = self
            .price
            .price(&[], &cards)
            .is_ok_and(|priced| priced.fits(&cards));
        fits.then(|| Hint {
            enough: true,
            ..Hint::new(Advice::AnotherCard)
        })
    }
}

fn free_card((card, terms): (&Card, &super::Terms)) -> Option<Hint> {
    let need = peak(terms);
    let held = card.total.saturating_sub(card.free);
    let enough = need > card.free && need <= card.total;
    enough.then(|| {
        let card = card.id.to_string();
        Hint::saving(Advice::FreeCard { card }, held)
    })
}

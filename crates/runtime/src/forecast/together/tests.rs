use std::collections::HashMap;
use std::num::NonZeroUsize;

use plimsoll_base::{Card, CardLimit, CardShares, Reason};
use proptest::prelude::*;

use super::*;

/// Memory of each further card, as contexts and buffers are.
const OVERHEAD: Bytes = Bytes::mib(512);

/// A plan of one size, whose layers are divided by what is free of several cards.
#[derive(Clone, Debug)]
struct Size(Bytes);

impl MemoryModel for Size {
    fn ignores_free(&self, cards: &[Card]) -> bool {
        cards.len() == 1
    }

    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason> {
        if cards.is_empty() {
            return Err(Reason::new("no_card", "no card"));
        }
        let all: Bytes = cards.iter().map(|card| card.free).sum();
        let share = |card: &Card| match cards.len() {
            1 => (card.id.clone(), self.0),
            _ => (card.id.clone(), OVERHEAD + self.0.scaled(card.free.get(), all.get())),
        };
        Ok(cards.iter().map(share).collect())
    }
}

fn ledger(cards: &[(&str, u64)]) -> Ledger {
    let limit = |(at, (name, gib)): (usize, &(&str, u64))| {
        let text = format!("name={name},total={gib}GiB,free={gib}GiB,cc=8.6");
        let card: Card = text.parse().unwrap();
        let card = Card { id: CardId::new(&format!("{name}#{at}")), ..card };
        CardLimit { card, budget: None, reserve: Bytes::ZERO }
    };
    Ledger::new(cards.iter().enumerate().map(limit).collect())
}

fn two_and_one() -> Ledger {
    ledger(&[("RTX3090", 24), ("RTX3090", 24), ("RTX4060Ti", 16)])
}

fn models<'a>(sizes: &'a [Size], names: &'a [String], company: &'a Company) -> Vec<CandidateModel<'a>> {
    let model = |(demand, name): (&'a Size, &'a String)| CandidateModel {
        name,
        demand,
        allowed: Vec::new(),
        company,
        port: None,
        pinned: false,
    };
    sizes.iter().zip(names).map(model).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("m{index}")).collect()
}

/// Worth of a group: pinned models, models, cards (fewer is better), bytes.
type Worth = (usize, usize, i64, u64);

/// Every group on every set of cards, without a bound: only the same free memory is not looked at twice.
struct Exhaustive<'a> {
    models: Vec<&'a CandidateModel<'a>>,
    cards: Vec<Card>,
    seen: HashMap<(usize, Vec<Bytes>), Worth>,
}

impl Exhaustive<'_> {
    fn best(&mut self, at: usize, free: &[Bytes]) -> Worth {
        let Some(model) = self.models.get(at).copied() else { return Worth::default() };
        if let Some(known) = self.seen.get(&(at, free.to_vec())) {
            return *known;
        }
        let mut best = self.best(at + 1, free);
        for count in 1..=self.cards.len() {
            let placed: Vec<Vec<Bytes>> = (1_u32..1 << self.cards.len())
                .filter(|mask| mask.count_ones() as usize == count)
                .filter_map(|mask| self.taken(model, mask, free))
                .collect();
            for taken in &placed {
                let left: Vec<Bytes> =
                    free.iter().zip(taken).map(|(free, it)| free.saturating_sub(*it)).collect();
                let rest = self.best(at + 1, &left);
                let bytes: u64 = taken.iter().map(|bytes| bytes.get()).sum();
                let with = (
                    rest.0 + usize::from(model.pinned),
                    rest.1 + 1,
                    rest.2 - i64::try_from(count).unwrap(),
                    rest.3 + bytes,
                );
                best = best.max(with);
            }
            // More cards than are needed are never taken.
            if !placed.is_empty() {
                break;
            }
        }
        self.seen.insert((at, free.to_vec()), best);
        best
    }

    /// Bytes on each card, if the model fits on those of `mask`.
    fn taken(&self, model: &CandidateModel<'_>, mask: u32, free: &[Bytes]) -> Option<Vec<Bytes>> {
        let with = |(at, card): (usize, &Card)| {
            (mask >> at & 1 == 1).then(|| Card { free: free[at], ..card.clone() })
        };
        let set: Vec<Card> = self.cards.iter().enumerate().filter_map(with).collect();
        if !model.allowed.is_empty() && set.iter().any(|card| !model.allowed.contains(&card.id)) {
            return None;
        }
        let shares = model.demand.on(&set).unwrap();
        let on = |card: &Card| {
            shares.iter().find(|(id, _)| *id == card.id).map_or(Bytes::ZERO, |(_, bytes)| *bytes)
        };
        let taken: Vec<Bytes> = self.cards.iter().map(on).collect();
        taken.iter().zip(free).all(|(taken, free)| taken <= free).then_some(taken)
    }
}

fn exhaustive(models: &[CandidateModel<'_>], ledger: &Ledger) -> Worth {
    let cards: Vec<Card> = ledger.accounts().iter().map(|account| account.card().clone()).collect();
    let free: Vec<Bytes> = cards.iter().map(|card| card.free).collect();
    let size = |model: &CandidateModel<'_>| model.demand.on(&cards[..1]).unwrap()[0].1;
    let mut order: Vec<&CandidateModel<'_>> = models.iter().collect();
    order.order_by_key(|model| (!model.pinned, std::cmp::Reverse(size(model))));
    Exhaustive { models: order, cards, seen: HashMap::new() }.best(0, &free)
}

/// Worth of the group that the search finds, and whether it knows that to be the best.
fn searched(models: &[CandidateModel<'_>], ledger: &Ledger) -> (Worth, bool) {
    let mut search = GroupSearch::new(models, (0..models.len()).collect(), ledger);
    let (Searched { group, .. }, is_best) = (search.run(), !search.is_over());
    let pinned = group.iter().filter(|(index, _)| models[*index].pinned).count();
    let cards: i64 = group.iter().map(|(_, it)| i64::try_from(it.shares.len()).unwrap()).sum();
    let bytes: u64 = group.iter().map(|(_, it)| it.total().get()).sum();
    ((pinned, group.len(), -cards, bytes), is_best)
}

/// No card holds more than it has.
fn assert_fits(found: &LoadedTogether, ledger: &Ledger) {
    for account in ledger.accounts() {
        let on = |verdict: &CandidateVerdict| match &verdict.beside {
            Beside::Member(placement) => placement.on(&account.card().id),
            _ => Bytes::ZERO,
        };
        assert!(found.models.iter().map(on).sum::<Bytes>() <= account.free(), "{found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_group_is_the_best_of_all(
        sizes in prop::collection::vec((1_u64..800, 0_u32..8, 0_u8..8), 1..9),
        small in 4_u64..20,
    ) {
        let ledger = ledger(&[("RTX3090", 24), ("RTX3090", 24), ("RTX4060Ti", small)]);
        let cards: Vec<CardId> = ledger.accounts().iter().map(|account| account.card().id.clone()).collect();
        let demands: Vec<Size> = sizes.iter().map(|(size, ..)| Size(Bytes::mib(size * 64))).collect();
        let (names, company) = (names(sizes.len()), Company::default());
        let mut models = models(&demands, &names, &company);
        for (model, (_, mask, pinned)) in models.iter_mut().zip(&sizes) {
            model.allowed = (0..3).filter(|at| mask >> at & 1 == 1).map(|at| cards[at].clone()).collect();
            model.pinned = *pinned == 0;
        }
        let (worth, is_best) = searched(&models, &ledger);
        prop_assert!(is_best);
        prop_assert_eq!(worth, exhaustive(&models, &ledger));
        let found = together(&models, &ledger);
        assert_fits(&found, &ledger);
        for (model, verdict) in models.iter().zip(&found.models) {
            if let Beside::After { leave, .. } = &verdict.beside {
                prop_assert!(!leave.is_empty() && leave.iter().all(|member| found.members().any(|it| it == *member)));
                prop_assert!(leave.iter().all(|member| !models[*member].pinned), "{}", model.name);
            }
        }
    }

    #[test]
    fn twelve_models_on_three_cards_are_the_best_of_all_within_the_steps(
        sizes in prop::collection::vec(16_u64..600, 12),
    ) {
        let ledger = two_and_one();
        let demands: Vec<Size> = sizes.iter().map(|size| Size(Bytes::mib(size * 64))).collect();
        let (names, company) = (names(sizes.len()), Company::default());
        let models = models(&demands, &names, &company);
        let (worth, is_best) = searched(&models, &ledger);
        prop_assert!(is_best);
        prop_assert_eq!(worth, exhaustive(&models, &ledger));
    }
}

#[test]
fn the_others_name_who_leaves_for_them() {
    let ledger = ledger(&[("RTX3090", 24), ("RTX4060Ti", 16)]);
    let demands = [20, 9, 5, 5, 36, 60].map(|gib| Size(Bytes::gib(gib)));
    let (names, company) = (names(demands.len()), Company::default());
    let found = together(&models(&demands, &names, &company), &ledger);
    assert_eq!(found.members().collect::<Vec<_>>(), [0, 1, 2]);
    let Beside::After { placement, leave } = &found.models[3].beside else { panic!("{found:?}") };
    assert_eq!((placement.shares.len(), &leave[..]), (1, &[2][..]));
    let Beside::After { placement, leave } = &found.models[4].beside else { panic!("{found:?}") };
    assert_eq!((placement.shares.len(), &leave[..]), (2, &[0, 1, 2][..]));
    assert_eq!(found.models[5].beside, Beside::Never);
    assert!(found.models[5].alone.is_err());
}

#[test]
fn a_limit_of_models_and_groups_hold_for_the_group() {
    let demands = [1, 2, 3].map(|gib| Size(Bytes::gib(gib)));
    let (names, company) = (names(3), Company::default());
    let two = ledger(&[("RTX3090", 24)]).with_most_runs(NonZeroUsize::new(2));
    let found = together(&models(&demands, &names, &company), &two);
    assert_eq!(found.members().collect::<Vec<_>>(), [1, 2]);
    let group =
        plimsoll_base::ModelGroup { name: "g".into(), swap: true, exclusive: false, persistent: false };
    let company = Company { group: Some(group), sets: None };
    let found = together(&models(&demands, &names, &company), &ledger(&[("RTX3090", 24)]));
    assert_eq!(found.members().collect::<Vec<_>>(), [2]);
    assert!(matches!(&found.models[0].beside, Beside::After { leave, .. } if leave[..] == [2]));
}

#[test]
fn a_group_of_small_models_is_found_among_many_large_ones() {
    // 19 models of 2 to 4 GiB fit; the eleven large ones come first in the order of the search.
    let large = [54, 54, 33, 33, 33, 33, 33, 20, 20, 20, 20].map(|gib| Size(Bytes::gib(gib)));
    let small = (0..19).map(|index| Size(Bytes::mib(2048 + 100 * index)));
    let sizes: Vec<Size> = large.into_iter().chain(small).collect();
    let (names, company) = (names(sizes.len()), Company::default());
    let found = together(&models(&sizes, &names, &company), &two_and_one());
    assert_fits(&found, &two_and_one());
    assert_eq!(found.members().collect::<Vec<_>>(), (11..30).collect::<Vec<_>>());
    assert!(found.most >= 19, "{}", found.most);
}

/// A plan that takes memory of the host beside its card.
#[derive(Clone, Debug)]
struct Hosted(Size, Bytes);

impl MemoryModel for Hosted {
    fn ignores_free(&self, cards: &[Card]) -> bool {
        self.0.ignores_free(cards)
    }

    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason> {
        let mut shares = self.0.on(cards)?;
        shares.push((CardId::new("host"), self.1));
        Ok(shares)
    }
}

#[test]
fn memory_of_the_host_bounds_the_group() {
    let host: Card = "name=host,kind=host,total=16GiB,free=16GiB".parse().unwrap();
    let mut limits: Vec<CardLimit> = Vec::new();
    for card in two_and_one().accounts() {
        limits.push(CardLimit { card: card.card().clone(), budget: None, reserve: Bytes::ZERO });
    }
    limits.push(CardLimit {
        card: Card { id: CardId::new("host"), ..host },
        budget: None,
        reserve: Bytes::ZERO,
    });
    let ledger = Ledger::new(limits);
    // By size on cards the first four, by memory of the host the others.
    let demands: Vec<Hosted> = (0..12)
        .map(|index| match index {
            0..4 => Hosted(Size(Bytes::gib(1)), Bytes::gib(8)),
            _ => Hosted(Size(Bytes::gib(3)), Bytes::gib(2)),
        })
        .collect();
    let (names, company) = (names(demands.len()), Company::default());
    let sizes = vec![Size(Bytes::ZERO); demands.len()];
    let mut models = models(&sizes, &names, &company);
    models.iter_mut().zip(&demands).for_each(|(model, demand)| model.demand = demand);
    let found = together(&models, &ledger);
    assert_fits(&found, &ledger);
    assert_eq!(found.members().collect::<Vec<_>>(), (4..12).collect::<Vec<_>>());
    assert!(found.is_largest(), "16 GiB hold no nine of 2 GiB");
}

#[test]
fn many_models_end_the_search_with_a_group() {
    let sizes: Vec<Size> = (0..60).map(|index| Size(Bytes::mib(700 + 37 * index))).collect();
    let (names, company) = (names(sizes.len()), Company::default());
    let found = together(&models(&sizes, &names, &company), &two_and_one());
    assert_fits(&found, &two_and_one());
    assert!(found.members().count() >= 30, "{}", found.members().count());
    assert!(found.members().count() <= found.most && found.most < 60, "{}", found.most);
    assert!(together(&[], &two_and_one()).models.is_empty());
}

//! Searches that group by branch and bound: each model is left out, or placed on each set of cards that has
//! memory for it.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_base::{Bytes, Card, CardId, ModelNeed, NeedSize, Order, Placement, Share};
use plimsoll_scheduler::place::{Account, Ledger, card_sets};

use super::{CandidateModel, apart};

/// Steps after which the search ends with the best group so far.
const STEPS: usize = 50_000;
/// Part of a planned size by which other free memory may lower it: layers are divided otherwise.
const VARIES: (u64, u64) = (7, 8);

/// Worth of a group. A larger one is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct GroupWorth {
    pinned: usize,
    models: usize,
    cards: Reverse<usize>,
    bytes: Bytes,
}

pub(super) type Group = Vec<(usize, Placement)>;
/// A set of cards, and what a model takes of it.
type Place = (Vec<usize>, Placement);
/// A model, a set of cards and what is free of each.
type Question = (usize, Vec<usize>, Vec<Bytes>);

pub(super) struct GroupSearch<'a> {
    models: &'a [CandidateModel<'a>],
    needs: Vec<ModelNeed>,
    ledger: &'a Ledger,
    /// Models in the order in which they are placed.
    order: Vec<usize>,
    /// For each model, the sets of cards that may hold it, fewest cards first.
    sets: Vec<Vec<Vec<usize>>>,
    /// For each place in the order, the least needs of the models from there on, summed up from the smallest.
    least: Vec<Vec<Bytes>>,
    /// Memory below which each model never is.
    sizes: Vec<Bytes>,
    /// For each card, the first that no model tells from it.
    twins: Vec<usize>,
    /// What each model takes of a set of cards with so much free memory each.
    known: RefCell<BTreeMap<Question, Option<Placement>>>,
    /// By the order of accounts.
    free: Vec<Bytes>,
    chosen: Group,
    best: Option<(GroupWorth, Group)>,
    steps: usize,
}

impl<'a> GroupSearch<'a> {
    pub(super) fn new(models: &'a [CandidateModel<'a>], able: Vec<usize>, ledger: &'a Ledger) -> Self {
        let needs: Vec<ModelNeed> = models.iter().map(|model| model.demand.need()).collect();
        let cards = |set: &Vec<usize>| set.clone().into_iter().map(|index| ledger.accounts()[index].card());
        let sets_of = |(model, need): (&CandidateModel<'_>, &ModelNeed)| {
            let mut sets = card_sets(ledger, &model.allowed, &need.named);
            sets.retain(|set| need.may_use(cards(set).collect::<Vec<_>>().into_iter()));
            // An engine that needs no card starts all the same.
            if sets.is_empty() { vec![Vec::new()] } else { sets }
        };
        let mut search = Self {
            models,
            ledger,
            order: able,
            sets: models.iter().zip(&needs).map(sets_of).collect(),
            least: Vec::new(),
            sizes: Vec::new(),
            twins: twins(models, &needs, ledger),
            needs,
            known: RefCell::default(),
            free: ledger.accounts().iter().map(Account::free).collect(),
            chosen: Vec::new(),
            best: None,
            steps: STEPS,
        };
        let sizes: Vec<Bytes> = (0..models.len()).map(|model| search.least_need(model)).collect();
        search.order.order_by_key(|model| (!models[*model].pinned, Reverse(sizes[*model])));
        search.least = (0..=search.order.len()).map(|at| sums(&search.order[at..], &sizes)).collect();
        search.sizes = sizes;
        search
    }

    /// The best group, and whether it is known to be.
    pub(super) fn run(&mut self) -> (Group, bool) {
        self.extend(0, GroupWorth::default());
        (self.best.take().map(|(_, group)| group).unwrap_or_default(), self.steps > 0)
    }

    fn extend(&mut self, at: usize, worth: GroupWorth) {
        if self.steps == 0 || self.best.as_ref().is_some_and(|(best, _)| self.most(at, worth) <= *best) {
            return;
        }
        self.steps -= 1;
        let Some(&model) = self.order.get(at) else {
            if self.best.as_ref().is_none_or(|(best, _)| worth > *best) {
                self.best = Some((worth, self.chosen.clone()));
            }
            return;
        };
        for (set, placement) in self.places(model) {
            let before = self.free.clone();
            for (free, account) in self.free.iter_mut().zip(self.ledger.accounts()) {
                *free = free.saturating_sub(placement.on(&account.card().id));
            }
            let more = GroupWorth {
                pinned: worth.pinned + usize::from(self.models[model].pinned),
                models: worth.models + 1,
                cards: Reverse(worth.cards.0 + set.len()),
                bytes: worth.bytes + placement.total(),
            };
            self.chosen.push((model, placement));
            self.extend(at + 1, more);
            self.chosen.pop();
            self.free = before;
        }
        self.extend(at + 1, worth);
    }

    /// A worth that no group reaches which has these members and others from `at` on.
    fn most(&self, at: usize, worth: GroupWorth) -> GroupWorth {
        let free: Bytes = self.free.iter().copied().sum();
        let rest = &self.order[at..];
        let runs = self.ledger.most_runs().map_or(usize::MAX, |most| most.get().saturating_sub(worth.models));
        let more = self.least[at].iter().take_while(|sum| **sum <= free).count().min(runs);
        GroupWorth {
            pinned: worth.pinned + rest.iter().filter(|model| self.models[**model].pinned).count(),
            models: worth.models + more,
            cards: worth.cards,
            bytes: if more == 0 { worth.bytes } else { worth.bytes + free },
        }
    }

    /// The places of a model now, on as few cards as have room for it; the tightest first.
    fn places(&self, model: usize) -> Vec<Place> {
        let members: Vec<usize> = self.chosen.iter().map(|(index, _)| *index).collect();
        let is_full = self.ledger.most_runs().is_some_and(|most| members.len() >= most.get());
        let port = self.models[model].port;
        let shares_port = port.is_some() && members.iter().any(|member| self.models[*member].port == port);
        if is_full || shares_port || apart(self.models, model, &members).contains(&true) {
            return Vec::new();
        }
        let mut places: Vec<Place> = Vec::new();
        let mut tried: Vec<Vec<(usize, Bytes)>> = Vec::new();
        for set in &self.sets[model] {
            if places.first().is_some_and(|(fewest, _)| fewest.len() < set.len()) {
                break;
            }
            let mut alike: Vec<_> = set.iter().map(|card| (self.twins[*card], self.free[*card])).collect();
            alike.order();
            let free: Bytes = set.iter().map(|card| self.free[*card]).sum();
            // Before a plan is made that cannot fit.
            if tried.contains(&alike) || self.sizes[model] > free {
                continue;
            }
            tried.push(alike);
            if let Some(placement) = self.placement(model, set, &self.free).filter(|it| self.has_room(it)) {
                places.push((set.clone(), placement));
            }
        }
        let left = |set: &[usize]| set.iter().map(|card| self.free[*card]).sum::<Bytes>();
        places.order_by_key(|(set, placement)| left(set).saturating_sub(placement.total()));
        places
    }

    fn has_room(&self, placement: &Placement) -> bool {
        let mut accounts = self.ledger.accounts().iter().zip(&self.free);
        accounts.all(|(account, free)| placement.on(&account.card().id) <= *free)
    }

    /// What the model takes of a set of cards with so much free memory.
    fn placement(&self, model: usize, set: &[usize], free: &[Bytes]) -> Option<Placement> {
        let of_set: Vec<Bytes> = set.iter().map(|card| free[*card]).collect();
        let key = (model, set.to_vec(), of_set);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let found = self.planned(model, set, free);
        self.known.borrow_mut().insert(key, found.clone());
        found
    }

    fn planned(&self, model: usize, set: &[usize], free: &[Bytes]) -> Option<Placement> {
        let accounts = self.ledger.accounts();
        let card = |index: &usize| Card { free: free[*index], ..accounts[*index].card().clone() };
        let cards: Vec<Card> = set.iter().map(card).collect();
        let offered: Vec<(&Card, Bytes)> = cards.iter().map(|card| (card, card.free)).collect();
        let (need, demand) = (&self.needs[model], self.models[model].demand);
        let shares = need.shares(&offered).unwrap_or_else(|| demand.on(&cards)).ok()?;
        // A run of unknown need is given all that the card can hold.
        let share = |(card, bytes): (CardId, Bytes)| {
            let bytes = if need.is_alone() { self.ledger.account(&card)?.capacity() } else { bytes };
            Some(Share::new(card, bytes))
        };
        let shares: Vec<Share> = shares.into_iter().map(share).collect::<Option<_>>()?;
        let is_empty = need.is_alone() && shares.iter().any(|share| share.bytes.is_zero());
        (!is_empty).then(|| Placement { shares, alone: need.is_alone() })
    }

    /// Memory below which the model never is, whatever is free.
    fn least_need(&self, model: usize) -> Bytes {
        match self.needs[model].size {
            NeedSize::Declared(size) | NeedSize::Divided(size) => size,
            NeedSize::Unknown => Bytes::ZERO,
            NeedSize::Planned => {
                // More cards only add to it.
                let fewest = self.sets[model].first().map_or(0, Vec::len);
                let sets = || self.sets[model].iter().filter(|set| set.len() == fewest);
                if fewest == 1 && !sets().all(|set| self.is_fixed(model, set)) {
                    return Bytes::ZERO;
                }
                // Host memory beside the cards is no part of what they must have.
                let on_set = |set: &Vec<usize>| {
                    let placement = self.placement(model, set, &self.free)?;
                    let on = |index: &usize| placement.on(&self.ledger.accounts()[*index].card().id);
                    Some(set.iter().map(on).sum::<Bytes>())
                };
                let least = sets().filter_map(on_set).min().unwrap_or(Bytes::ZERO);
                least.scaled(VARIES.0, VARIES.1)
            }
        }
    }

    /// True where the model takes the same of these cards whatever is free.
    fn is_fixed(&self, model: usize, set: &[usize]) -> bool {
        let cards: Vec<_> = set.iter().map(|index| self.ledger.accounts()[*index].card().clone()).collect();
        self.models[model].demand.ignores_free(&cards)
    }
}

/// Sums of the sizes of these models, from the smallest on.
fn sums(models: &[usize], sizes: &[Bytes]) -> Vec<Bytes> {
    let mut of_models: Vec<Bytes> = models.iter().map(|model| sizes[*model]).collect();
    of_models.order();
    let add = |sum: &mut Bytes, size: Bytes| {
        *sum += size;
        Some(*sum)
    };
    of_models.into_iter().scan(Bytes::ZERO, add).collect()
}

/// For each card, the first that is the same to every model.
fn twins(models: &[CandidateModel<'_>], needs: &[ModelNeed], ledger: &Ledger) -> Vec<usize> {
    let accounts = ledger.accounts();
    let names = |card: &CardId| {
        let allowed = models.iter().map(|model| model.allowed.contains(card));
        let named =
            needs.iter().map(|need| (need.named.cards.contains(card), need.named.excluded.contains(card)));
        (allowed.collect::<Vec<_>>(), named.collect::<Vec<_>>())
    };
    let traits = |account: &Account| {
        let card = account.card();
        let kind = (card.kind, card.maker, card.name.clone(), card.total, card.compute_capability);
        (kind, card.legacy_pool, card.shares_host, account.limit(), account.capacity(), names(&card.id))
    };
    let all: Vec<_> = accounts.iter().map(traits).collect();
    all.iter().map(|own| all.iter().position(|other| other == own).unwrap_or_default()).collect()
}

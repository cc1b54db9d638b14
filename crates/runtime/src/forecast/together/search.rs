//! Searches that group by branch and bound: each model is left out, or placed on each set of cards that has
//! memory for it.

mod grown;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_base::{Bytes, Card, CardId, ModelNeed, NeedSize, Order, Placement, Share};
use plimsoll_scheduler::place::{Account, Ledger, card_sets};

use super::{CandidateModel, apart};

/// Steps after which the search ends with the best group so far.
const STEPS: usize = 50_000;
/// Plans after which it ends: one takes as long as dozens of steps.
const PLANS: usize = 4000;
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
/// A model, the number of its set of cards, and what is free of each of these; nothing where that is ignored.
type Question = (usize, usize, Vec<Bytes>);

/// What the search found.
pub(super) struct Searched {
    pub(super) group: Group,
    /// No group has more models.
    pub(super) most: usize,
}

/// Memory of accounts that models take on their sets of cards, and beside these.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    on_cards: Bytes,
    beside: Bytes,
}

pub(super) struct GroupSearch<'a> {
    models: &'a [CandidateModel<'a>],
    needs: Vec<ModelNeed>,
    ledger: &'a Ledger,
    /// Models in the order in which they are placed.
    order: Vec<usize>,
    /// For each model, the sets of cards that may hold it, fewest cards first.
    sets: Vec<Vec<Vec<usize>>>,
    /// Sets that each model takes the same of, whatever is free.
    fixed: Vec<Vec<bool>>,
    /// For each account, whether it is in some set of cards; the host's memory often is in none.
    holds: Vec<bool>,
    /// For each place in the order, the least needs of the models from there on, summed up from the smallest:
    /// on cards and beside them.
    least: Vec<[Vec<Bytes>; 2]>,
    /// Memory below which each model never is.
    sizes: Vec<Amount>,
    /// For each card, the first that no model tells from it.
    twins: Vec<usize>,
    /// What each model takes of a set of cards with so much free memory each.
    known: RefCell<BTreeMap<Question, Option<Placement>>>,
    /// By the order of accounts.
    free: Vec<Bytes>,
    chosen: Group,
    best: Option<(GroupWorth, Group)>,
    steps: usize,
    plans: Cell<usize>,
}

impl<'a> GroupSearch<'a> {
    pub(super) fn new(models: &'a [CandidateModel<'a>], able: Vec<usize>, ledger: &'a Ledger) -> Self {
        let needs: Vec<ModelNeed> = models.iter().map(|model| model.demand.need()).collect();
        let cards = |set: &[usize]| -> Vec<&Card> {
            set.iter().map(|index| ledger.accounts()[*index].card()).collect()
        };
        let sets_of = |(model, need): (&CandidateModel<'_>, &ModelNeed)| {
            let mut sets = card_sets(ledger, &model.allowed, &need.named);
            sets.retain(|set| need.may_use(cards(set).into_iter()));
            // An engine that needs no card starts all the same.
            if sets.is_empty() { vec![Vec::new()] } else { sets }
        };
        let all: Vec<Vec<Vec<usize>>> = models.iter().zip(&needs).map(sets_of).collect();
        let is_fixed = |(model, sets): (&CandidateModel<'_>, &Vec<Vec<usize>>)| {
            let of = |set: &Vec<usize>| {
                model.demand.ignores_free(&cards(set).into_iter().cloned().collect::<Vec<_>>())
            };
            sets.iter().map(of).collect()
        };
        let in_some = |account: usize| all.iter().flatten().any(|set| set.contains(&account));
        let mut search = Self {
            models,
            ledger,
            order: able,
            fixed: models.iter().zip(&all).map(is_fixed).collect(),
            holds: (0..ledger.accounts().len()).map(in_some).collect(),
            sets: all,
            least: Vec::new(),
            sizes: Vec::new(),
            twins: twins(models, &needs, ledger),
            needs,
            known: RefCell::default(),
            free: ledger.accounts().iter().map(Account::free).collect(),
            chosen: Vec::new(),
            best: None,
            steps: STEPS,
            plans: Cell::new(PLANS),
        };
        let sizes: Vec<Amount> = (0..models.len()).map(|model| search.least_need(model)).collect();
        search.order.order_by_key(|model| (!models[*model].pinned, Reverse(sizes[*model].on_cards)));
        let sums_from = |at| {
            let of = |amount: fn(&Amount) -> Bytes| {
                sums(search.order[at..].iter().map(|model| amount(&sizes[*model])).collect())
            };
            [of(|it| it.on_cards), of(|it| it.beside)]
        };
        search.least = (0..=search.order.len()).map(sums_from).collect();
        search.sizes = sizes;
        search
    }

    /// The best group. It begins with one that is found at once, so that a search that ends early has a good
    /// one.
    pub(super) fn run(&mut self) -> Searched {
        let most = self.most(0, GroupWorth::default()).models;
        self.grow();
        self.extend(0, GroupWorth::default());
        let group = self.best.take().map(|(_, group)| group).unwrap_or_default();
        Searched { most: if self.is_over() { most } else { group.len() }, group }
    }

    /// True once the search has taken all its steps: a better group may exist.
    pub(super) fn is_over(&self) -> bool {
        self.steps == 0 || self.plans.get() == 0
    }

    fn extend(&mut self, at: usize, worth: GroupWorth) {
        let bound = self.most(at, worth);
        if self.is_over() || self.best.as_ref().is_some_and(|(best, _)| bound <= *best) {
            return;
        }
        self.steps -= 1;
        let Some(&model) = self.order.get(at) else {
            self.keep(worth);
            return;
        };
        for (set, placement) in self.places(model) {
            let (before, more) = self.put(model, &set, placement, worth);
            self.extend(at + 1, more);
            self.take_back(before);
        }
        self.extend(at + 1, worth);
    }

    /// Keeps the chosen models if they are worth more than the best so far.
    fn keep(&mut self, worth: GroupWorth) {
        if self.best.as_ref().is_none_or(|(best, _)| worth > *best) {
            self.best = Some((worth, self.chosen.clone()));
        }
    }

    /// Chooses a model; returns what was free before, and the worth of the group with it.
    fn put(
        &mut self,
        model: usize,
        set: &[usize],
        placement: Placement,
        worth: GroupWorth,
    ) -> (Vec<Bytes>, GroupWorth) {
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
        (before, more)
    }

    fn take_back(&mut self, before: Vec<Bytes>) {
        self.chosen.pop();
        self.free = before;
    }

    /// A worth that no group reaches which has these members and others from `at` on.
    fn most(&self, at: usize, worth: GroupWorth) -> GroupWorth {
        let (on_cards, beside) = (self.room(true), self.room(false));
        let rest = &self.order[at..];
        let runs = self.ledger.most_runs().map_or(usize::MAX, |most| most.get().saturating_sub(worth.models));
        let fitting = |sums: &[Bytes], free| sums.iter().take_while(|sum| **sum <= free).count();
        let [cards, others] = &self.least[at];
        let more = fitting(cards, on_cards).min(fitting(others, beside)).min(runs);
        GroupWorth {
            pinned: worth.pinned + rest.iter().filter(|model| self.models[**model].pinned).count(),
            models: worth.models + more,
            cards: worth.cards,
            bytes: if more == 0 { worth.bytes } else { worth.bytes + on_cards + beside },
        }
    }

    /// Free memory of the accounts that sets of cards hold, or of the others.
    fn room(&self, on_cards: bool) -> Bytes {
        let accounts = self.free.iter().zip(&self.holds);
        accounts.filter(|(_, holds)| **holds == on_cards).map(|(free, _)| *free).sum()
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
        for (number, set) in self.sets[model].iter().enumerate() {
            if places.first().is_some_and(|(fewest, _)| fewest.len() < set.len()) {
                break;
            }
            let mut alike: Vec<_> = set.iter().map(|card| (self.twins[*card], self.free[*card])).collect();
            alike.order();
            let free: Bytes = set.iter().map(|card| self.free[*card]).sum();
            // Before a plan is made that cannot fit.
            if tried.contains(&alike) || self.sizes[model].on_cards > free {
                continue;
            }
            tried.push(alike);
            if let Some(placement) = self.placement(model, number).filter(|it| self.has_room(it)) {
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

    /// What the model takes of its set of cards of this number, with what is free now.
    fn placement(&self, model: usize, number: usize) -> Option<Placement> {
        let set = &self.sets[model][number];
        let is_fixed = self.fixed[model][number];
        let of_set = if is_fixed { Vec::new() } else { set.iter().map(|card| self.free[*card]).collect() };
        let key = (model, number, of_set);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        self.plans.set(self.plans.get().saturating_sub(1));
        let found = self.planned(model, set);
        self.known.borrow_mut().insert(key, found.clone());
        found
    }

    fn planned(&self, model: usize, set: &[usize]) -> Option<Placement> {
        let accounts = self.ledger.accounts();
        let card = |index: &usize| Card { free: self.free[*index], ..accounts[*index].card().clone() };
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
    fn least_need(&self, model: usize) -> Amount {
        match self.needs[model].size {
            NeedSize::Declared(size) | NeedSize::Divided(size) => {
                Amount { on_cards: size, beside: Bytes::ZERO }
            }
            NeedSize::Unknown => Amount::default(),
            NeedSize::Planned => {
                // More cards only add to it.
                let fewest = self.sets[model].first().map_or(0, Vec::len);
                let numbers =
                    || (0..self.sets[model].len()).filter(|it| self.sets[model][*it].len() == fewest);
                let is_fixed = numbers().all(|number| self.fixed[model][number]);
                if fewest == 1 && !is_fixed {
                    return Amount::default();
                }
                let placed: Vec<Placement> =
                    numbers().filter_map(|number| self.placement(model, number)).collect();
                let least = |on_cards| {
                    let least = placed.iter().map(|it| self.part(it, on_cards)).min().unwrap_or_default();
                    if is_fixed { least } else { least.scaled(VARIES.0, VARIES.1) }
                };
                Amount { on_cards: least(true), beside: least(false) }
            }
        }
    }

    /// The part of a placement on accounts that sets of cards hold, or on the others.
    fn part(&self, placement: &Placement, on_cards: bool) -> Bytes {
        let accounts = self.ledger.accounts().iter().zip(&self.holds);
        let own = accounts.filter(|(_, holds)| **holds == on_cards);
        own.map(|(account, _)| placement.on(&account.card().id)).sum()
    }
}

/// Sums of these sizes, from the smallest on.
fn sums(mut sizes: Vec<Bytes>) -> Vec<Bytes> {
    sizes.order();
    let add = |sum: &mut Bytes, size: Bytes| {
        *sum += size;
        Some(*sum)
    };
    sizes.into_iter().scan(Bytes::ZERO, add).collect()
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

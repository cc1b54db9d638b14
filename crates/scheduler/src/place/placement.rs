//! Chooses the cards for a model, and the engines that would have to stop for it.
//!
//! The cheapest set of cards is chosen. Best is one where no engine must stop. Next is the one whose stops
//! cost clients the least time: the next loads of the engines, and the wait until the last of them is free.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use plimsoll_base::{Bytes, Card, CardId, CardShares, NeedSize, Placement, Reason, RunId, Share};

use super::answers::CardSet;
use super::evict::{self, EvictionCandidate};
use super::explain;
use super::ledger::{Account, Ledger};
use super::sets::card_sets;

pub use super::query::{
    CardStanding, CardTenant, LearnedNeed, NoPlacement, PlacementQuery, PlacementVerdict, PlanAdvice,
    Reservations,
};

/// Finds a place for the model.
pub fn place(
    query: &PlacementQuery,
    ledger: &Ledger,
    reserved: &Reservations,
    tenants: &[CardTenant],
) -> PlacementVerdict {
    let placer = Placer::new(query, ledger, reserved, tenants);
    let mut best: Option<(PlacementRank, PlacementVerdict)> = None;
    let mut unplanned = None;
    for set in card_sets(ledger, query.allowed, &query.need.named) {
        // Sets come smallest first: a larger one cannot beat a set that fits at once.
        if matches!(&best, Some((rank, PlacementVerdict::Fits(_))) if rank.cards < set.len())
            || unplanned.is_some_and(|size| size < set.len())
        {
            break;
        }
        let way = placer.way(&set);
        // The first of equals stays, so that the choice does not change from one search to the next.
        best = match (best, way) {
            (Some(best), Some(way)) => Some(if way.0 < best.0 { way } else { best }),
            (best, way) => best.or(way),
        };
        if unplanned.is_none() && placer.lacks_answers() {
            unplanned = Some(set.len());
        }
    }
    let verdict = match best {
        _ if unplanned.is_some() => PlacementVerdict::Later,
        None => placer.without_cards(),
        Some((_, verdict)) => verdict,
    };
    // A set that is not planned yet may be better than the best of the others.
    if placer.lacks_answers() {
        return PlacementVerdict::Unplanned(placer.unplanned.into_inner());
    }
    // A demand that fits on no card fits on none after an unpin either.
    if matches!(&verdict, PlacementVerdict::Never(never) if !never.crowded_out) {
        return verdict;
    }
    let never = if placer.apart_of_pinned() {
        explain::apart_pinned(query, ledger, tenants)
    } else if let Some(most) = placer.full_of_pinned() {
        explain::no_run_left(query, ledger, tenants, most)
    } else {
        return verdict;
    };
    PlacementVerdict::Never(Box::new(never))
}

/// Finds the runs that stop for a run that takes this much more of its own cards.
pub(crate) fn place_more(
    query: &PlacementQuery,
    more: &Placement,
    ledger: &Ledger,
    reserved: &Reservations,
    tenants: &[CardTenant],
) -> PlacementVerdict {
    let placer = Placer::new(query, ledger, reserved, tenants);
    if placer.deficits(more).all(|deficit| deficit.is_zero()) {
        return PlacementVerdict::Fits(more.clone());
    }
    placer.after_stops(more.clone())
}

/// Memory that the model would take on the first set of cards that suits it, if they were empty; zero if none
/// does. The sets of cards that the plan has to tell of, if it has not yet.
pub fn need(query: &PlacementQuery, ledger: &Ledger) -> Result<Bytes, Vec<CardSet>> {
    let reserved = Reservations::default();
    let placer = Placer::new(query, ledger, &reserved, &[]);
    for set in card_sets(ledger, query.allowed, &query.need.named) {
        let placement = placer.placement(&set, Account::limit);
        if placer.lacks_answers() {
            return Err(placer.unplanned.into_inner());
        }
        if let Ok(placement) = placement {
            return Ok(placement.total());
        }
    }
    Ok(Bytes::ZERO)
}

/// Cost of each further card, in milliseconds: an engine on more cards is slower for its whole life.
const SPREAD: u64 = 30_000;

/// Worth of a way to place the model on a set of cards; a smaller one is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacementRank {
    /// 0 where it fits now, 1 where runs must stop, 2 where others come first.
    ease: u8,
    /// Cost of the victims that do not leave anyway, and of further cards.
    cost: u64,
    cards: usize,
    /// The number of those victims, and the last use of the newest of them.
    stopped: usize,
    newest: u64,
    left_over: Bytes,
}

struct Placer<'a> {
    query: &'a PlacementQuery<'a>,
    ledger: &'a Ledger,
    reserved: &'a Reservations,
    tenants: &'a [CardTenant],
    /// Those that could be stopped, the readiest first, and of these the least recently used.
    stoppable: Vec<&'a CardTenant>,
    /// Sets of cards that the plan has to tell of.
    unplanned: RefCell<Vec<CardSet>>,
}

impl<'a> Placer<'a> {
    fn new(
        query: &'a PlacementQuery<'a>,
        ledger: &'a Ledger,
        reserved: &'a Reservations,
        tenants: &'a [CardTenant],
    ) -> Self {
        let is_stoppable = |tenant: &&CardTenant| {
            tenant.standing > CardStanding::Leaving && tenant.standing <= CardStanding::Protected
        };
        let mut stoppable: Vec<&CardTenant> = Vec::with_capacity(tenants.len());
        stoppable.extend(tenants.iter().filter(is_stoppable));
        stoppable.sort_by_key(|tenant| (tenant.standing, tenant.last_used));
        Self { query, ledger, reserved, tenants, stoppable, unplanned: RefCell::default() }
    }

    fn lacks_answers(&self) -> bool {
        !self.unplanned.borrow().is_empty()
    }

    /// What the model takes of these cards, as far as that is known.
    fn ask(&self, cards: &[(&Card, Bytes)]) -> Result<CardShares, Reason> {
        let query = self.query;
        if let Some(shares) = query.need.shares(cards) {
            return shares;
        }
        if let Some(answer) = query.answers.find(cards) {
            return answer.shares.clone();
        }
        let set: CardSet = cards.iter().map(|(card, free)| Card { free: *free, ..(*card).clone() }).collect();
        let mut unplanned = self.unplanned.borrow_mut();
        if !unplanned.contains(&set) {
            unplanned.push(set);
        }
        Err(Reason::new("unplanned", "the plan for these cards is not made yet"))
    }

    fn way(&self, set: &[usize]) -> Option<(PlacementRank, PlacementVerdict)> {
        // Before a refusal is written that nobody reads.
        if !self.query.need.may_use(set.iter().map(|index| self.ledger.accounts()[*index].card())) {
            return None;
        }
        let now = self.placement(set, Account::free).ok()?;
        if self.deficits(&now).all(|deficit| deficit.is_zero()) && self.enters(&now) {
            return Some(self.ranked(set, PlacementVerdict::Fits(now)));
        }
        // A size on one card is the same whatever is free of it.
        let placement = match self.query.need.size {
            NeedSize::Declared(_) | NeedSize::Divided(_) if set.len() == 1 => now,
            _ => self.placement(set, |account| self.at_best(account)).ok()?,
        };
        self.fits_at_best(&placement).then(|| self.ranked(set, self.after_stops(placement)))
    }

    /// The verdict on a placement for which runs have to stop.
    fn after_stops(&self, placement: Placement) -> PlacementVerdict {
        let Some(stop) = self.victims(&placement) else { return PlacementVerdict::Later };
        let waits = self.stopped(&stop).any(|tenant| tenant.standing != CardStanding::Idle);
        PlacementVerdict::FitsAfter { placement, stop, waits }
    }

    /// Those of the runs that do not leave anyway.
    fn stopped(&self, runs: &[RunId]) -> impl Iterator<Item = &CardTenant> {
        let leaves = |tenant: &&CardTenant| tenant.standing == CardStanding::Leaving;
        self.tenants.iter().filter(move |tenant| !leaves(tenant) && runs.contains(&tenant.run))
    }

    fn ranked(&self, set: &[usize], verdict: PlacementVerdict) -> (PlacementRank, PlacementVerdict) {
        let (ease, takes, runs) = match &verdict {
            PlacementVerdict::Fits(placement) => (0, placement.total(), &[][..]),
            PlacementVerdict::FitsAfter { placement, stop, .. } => (1, placement.total(), &stop[..]),
            // Ways that wait for other models are alike.
            _ => (2, Bytes::ZERO, &[][..]),
        };
        let stopped: Vec<&CardTenant> = self.stopped(runs).collect();
        let stopped = || stopped.iter();
        let free: Bytes = set.iter().map(|index| self.ledger.accounts()[*index].free()).sum();
        let spread = SPREAD.saturating_mul(u64::try_from(set.len().saturating_sub(1)).unwrap_or(u64::MAX));
        let wait = stopped().map(|tenant| tenant.wait).max().unwrap_or(0);
        let rank = PlacementRank {
            ease,
            cost: stopped()
                .fold(wait.saturating_add(spread), |sum, tenant| sum.saturating_add(tenant.cost.max(1))),
            cards: set.len(),
            stopped: stopped().count(),
            newest: stopped().map(|tenant| tenant.last_used).max().unwrap_or(0),
            left_over: free.saturating_sub(takes),
        };
        (rank, verdict)
    }

    /// Memory that the demand takes on the set if each card has `free` for it.
    fn placement(&self, set: &[usize], free: impl Fn(&Account) -> Bytes) -> Result<Placement, Reason> {
        if let (NeedSize::Declared(size) | NeedSize::Divided(size), [index]) = (self.query.need.size, set) {
            let more = if size.is_zero() { Bytes::ZERO } else { self.query.learned.total() };
            let card = self.ledger.accounts()[*index].card().id.clone();
            return Ok(Placement { shares: vec![Share::new(card, size + more)], alone: false });
        }
        let accounts = set.iter().map(|index| &self.ledger.accounts()[*index]);
        let cards: Vec<(&Card, Bytes)> = accounts.map(|account| (account.card(), free(account))).collect();
        // A run of unknown need is given all that the card can hold, whatever its demand answers.
        let alone = self.query.need.is_alone();
        let share = |(card, bytes): (CardId, Bytes)| {
            let account = self.ledger.account(&card).ok_or_else(|| explain::no_such_card(&card))?;
            let bytes = match alone {
                true => account.capacity(),
                // A card that the engine does not use gets no learned memory either, or it would be claimed
                // for nothing. Measurements on cards say nothing of the host beside them.
                false if bytes.is_zero() || !cards.iter().any(|(of_set, _)| of_set.id == card) => bytes,
                false => bytes + self.query.learned.total(),
            };
            Ok(Share::new(card, bytes))
        };
        let shares: Result<Vec<Share>, Reason> = self.ask(&cards)?.into_iter().map(share).collect();
        Ok(Placement { shares: shares?, alone })
    }

    /// Memory of a card for the model if all other unpinned runs stopped.
    fn at_best(&self, account: &Account) -> Bytes {
        let stay = self.tenants.iter().filter(|tenant| tenant.standing == CardStanding::Stays);
        account.capacity().saturating_sub(stay.map(|tenant| account.occupied_by(tenant.run)).sum())
    }

    fn fits_at_best(&self, placement: &Placement) -> bool {
        self.enters(placement) && self.is_within(placement, |account| self.at_best(account))
    }

    fn is_within(&self, placement: &Placement, room: impl Fn(&Account) -> Bytes) -> bool {
        let mut shares = placement.shares.iter();
        shares.all(|share| self.ledger.account(&share.card).is_some_and(|it| share.bytes <= room(it)))
    }

    /// The most runs at a time, if pinned ones are as many.
    fn full_of_pinned(&self) -> Option<usize> {
        let pinned = self.tenants.iter().filter(|tenant| tenant.standing == CardStanding::Stays).count();
        self.ledger.most_runs().map(NonZeroUsize::get).filter(|most| pinned >= *most)
    }

    /// True if a pinned run may not be beside the model.
    fn apart_of_pinned(&self) -> bool {
        self.tenants
            .iter()
            .any(|tenant| tenant.standing == CardStanding::Stays && self.query.is_apart(tenant))
    }

    /// Runs that may not be beside the model, and models before it; zero if nothing but memory decides.
    fn apart(&self) -> usize {
        self.tenants.iter().filter(|tenant| self.query.is_apart(tenant)).count() + self.query.apart
    }

    /// False for a model of unknown need on a card that reports no memory.
    fn enters(&self, placement: &Placement) -> bool {
        !placement.alone || placement.shares.iter().all(|share| !share.bytes.is_zero())
    }

    /// Missing memory on each card of the placement, runs beyond their limit if they have one, and runs that
    /// may not be beside the model.
    fn deficits<'p>(&'p self, placement: &'p Placement) -> impl Iterator<Item = Bytes> + use<'a, 'p> {
        let missing = move |card: &CardId| {
            let account = self.ledger.account(card)?;
            // Reservations of older models count as taken, so that a younger one never delays them.
            Some(account.lacking(placement.on(card) + self.reserved.on(card)))
        };
        let beyond = self.ledger.most_runs().map(|most| {
            let wanted = self.tenants.len().saturating_add(self.reserved.runs).saturating_add(1);
            Bytes::new(u64::try_from(wanted.saturating_sub(most.get())).unwrap_or(u64::MAX))
        });
        let apart = Some(self.apart()).filter(|apart| *apart > 0);
        let apart = apart.map(|apart| Bytes::new(u64::try_from(apart).unwrap_or(u64::MAX)));
        let memory = placement.cards().map(move |card| missing(card).unwrap_or(Bytes::MAX));
        memory.chain(beyond).chain(apart)
    }

    /// All runs that leave anyway and the cheapest others.
    fn victims(&self, placement: &Placement) -> Option<Vec<RunId>> {
        let mut rest: Vec<Bytes> = self.deficits(placement).collect();
        let accounts: Vec<Option<&Account>> =
            placement.cards().map(|card| self.ledger.account(card)).collect();
        let (limits_runs, any_apart) = (self.ledger.most_runs().is_some(), self.apart() > 0);
        let frees = |tenant: &CardTenant| {
            let run = tenant.run;
            let occupied = move |account: &Option<&Account>| {
                account.map_or(Bytes::ZERO, |account| account.occupied_by(run))
            };
            let place = limits_runs.then(|| Bytes::new(1));
            let apart = any_apart.then(|| Bytes::new(u64::from(self.query.is_apart(tenant))));
            accounts.iter().map(occupied).chain(place).chain(apart)
        };
        // Runs that leave anyway come first: stopping another while their memory is on its way would be in
        // vain.
        let mut gone = Vec::new();
        for tenant in self.tenants.iter().filter(|tenant| tenant.standing == CardStanding::Leaving) {
            if frees(tenant).any(|bytes| !bytes.is_zero()) {
                gone.push(tenant.run);
                rest.iter_mut()
                    .zip(frees(tenant))
                    .for_each(|(rest, freed)| *rest = rest.saturating_sub(freed));
            }
        }
        // In one piece of memory, since there are many. Those that free nothing are no candidates.
        let size = rest.len();
        let mut freed: Vec<Bytes> = Vec::with_capacity(size * self.stoppable.len());
        let mut able: Vec<&CardTenant> = Vec::with_capacity(self.stoppable.len());
        for tenant in &self.stoppable {
            let before = freed.len();
            freed.extend(frees(tenant));
            if freed[before..].iter().all(|bytes| bytes.is_zero()) {
                freed.truncate(before)
            } else {
                able.push(tenant)
            }
        }
        // The order decides among sets of one cost and size: the least recently used leaves.
        let each = able.iter().zip(freed.chunks(size.max(1)));
        let candidates: Vec<EvictionCandidate<&[Bytes]>> = each
            .map(|(tenant, frees)| EvictionCandidate {
                run: tenant.run,
                frees,
                cost: tenant.cost,
                wait: tenant.wait,
            })
            .collect();
        gone.extend(evict::cheapest(&rest, &candidates)?);
        Some(gone)
    }

    /// The verdict if no set of cards suits: an engine that needs no card starts all the same.
    fn without_cards(&self) -> PlacementVerdict {
        let is_free = self.placement(&[], Account::free).is_ok_and(|placement| placement.shares.is_empty());
        let way = is_free.then(|| self.way(&[])).flatten();
        way.map_or_else(|| PlacementVerdict::Never(Box::new(self.never())), |(_, verdict)| verdict)
    }

    fn never(&self) -> NoPlacement {
        // Asked again for the explanation, which is needed only once a model is refused.
        let sets = card_sets(self.ledger, self.query.allowed, &self.query.need.named);
        let roomy = |it: &Placement| self.enters(it) && self.is_within(it, Account::limit);
        let emptied =
            |set: &Vec<usize>| self.placement(set, Account::limit).is_ok_and(|placement| roomy(&placement));
        let crowded_out = sets.iter().any(emptied);
        // If even empty cards cannot hold it, the explanation uses empty cards.
        let room = |account: &Account| if crowded_out { self.at_best(account) } else { account.limit() };
        let requested: Vec<_> = sets.iter().map(|set| (set, self.placement(set, room))).collect();
        explain::never(self.query, self.ledger, self.tenants, crowded_out, &requested)
    }
}

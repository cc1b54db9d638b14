//! Lists the sets of cards on which a model could be placed.
//!
//! Cards of different kinds are never mixed. If the model's flags name cards, every set contains them.

use plimsoll_base::{CardId, CardKind, NamedDemand, Order};

use super::ledger::Ledger;

const EXACT: usize = 6;

/// Returns sets of indices into the ledger's accounts, fewest cards first.
pub fn card_sets(ledger: &Ledger, allowed: &[CardId], named: &NamedDemand) -> Vec<Vec<usize>> {
    let accounts = ledger.accounts();
    let of_kind = |kind: CardKind| -> Vec<usize> {
        let usable = accounts.iter().enumerate().filter(|(_, account)| {
            let card = account.card();
            let is_allowed = allowed.is_empty() || allowed.contains(&card.id);
            card.kind == kind && is_allowed && !named.excluded.contains(&card.id)
        });
        usable.map(|(index, _)| index).collect()
    };
    let (cards, host) = (of_kind(CardKind::Cuda), of_kind(CardKind::Host));
    if !named.cards.is_empty() {
        return around(ledger, &cards, named);
    }
    let mut sets = subsets(ledger, cards);
    // The host is far slower than any card, so it is never chosen while a card could serve.
    if sets.is_empty() || !allowed.is_empty() {
        sets.extend(host.into_iter().map(|index| vec![index]));
    }
    sets.order_by_key(Vec::len);
    sets
}

/// Sets that contain all named cards; none if one of these may not be used.
fn around(ledger: &Ledger, usable: &[usize], named: &NamedDemand) -> Vec<Vec<usize>> {
    let is_named = |index: &usize| named.cards.contains(&ledger.accounts()[*index].card().id);
    let (fixed, others): (Vec<usize>, Vec<usize>) = usable.iter().partition(|index| is_named(index));
    if fixed.len() < named.cards.len() {
        return Vec::new();
    }
    // The named cards alone come first: further cards only help if those are too small.
    let mut sets = vec![fixed];
    if !named.only {
        let wider = subsets(ledger, others).into_iter().map(|more| {
            let mut set = [sets[0].as_slice(), &more].concat();
            set.sort_unstable();
            set
        });
        let wider: Vec<Vec<usize>> = wider.collect();
        sets.extend(wider);
        sets.order_by_key(Vec::len);
    }
    sets
}

fn subsets(ledger: &Ledger, mut cards: Vec<usize>) -> Vec<Vec<usize>> {
    // With more than `EXACT` cards, only consecutive cards in the order of free memory are candidates.

    // 2^6 sets are tried in well under a millisecond; each one may cost a plan.
    if cards.len() <= EXACT {
        let masks = 1_u32..1 << cards.len();
        let chosen =
            |mask: u32| cards.iter().enumerate().filter(move |(i, _)| mask >> i & 1 == 1).map(|(_, c)| *c);
        return masks.map(|mask| chosen(mask).collect()).collect();
    }
    cards.order_by_key(|index| (ledger.accounts()[*index].free(), *index));
    let windows = (1..=cards.len()).flat_map(|size| cards.windows(size));
    let in_order = |window: &[usize]| {
        let mut set = window.to_vec();
        set.sort_unstable();
        set
    };
    windows.map(in_order).collect()
}

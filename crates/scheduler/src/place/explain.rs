//! Explains why a model fits on no card: its memory need, each card's memory and the engines that hold it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_base::{Advice, Bytes, Card, CardId, CardKind, Hint, Order, Placement, Reason, RunId};

use super::ledger::{Account, Ledger};
use super::placement::{CardStanding, CardTenant, NoPlacement, PlacementQuery, PlanAdvice};

/// Sets of cards that the reason lists; further ones are counted.
const SPELT_OUT: usize = 8;

pub(super) fn no_such_card(card: &CardId) -> Reason {
    Reason::new("no_such_card", format!("the model requires {card}, which this machine does not have"))
        .fact("card", card.as_str())
}

pub(super) fn never(
    query: &PlacementQuery,
    ledger: &Ledger,
    tenants: &[CardTenant],
    crowded_out: bool,
    requested: &[(&Vec<usize>, Result<Placement, Reason>)],
) -> NoPlacement {
    let name = query.name;
    // Empty cards have no pinned models.
    let tenants = if crowded_out { tenants } else { &[] };
    let text = match (requested.is_empty(), crowded_out) {
        (true, _) if !query.need.named.cards.is_empty() => {
            format!("{name} is not allowed to use some of the cards that its flags name")
        }
        (true, _) => format!("{name} is not allowed to use any card of this machine"),
        (_, true) if is_only_kept(ledger, tenants) => {
            format!("{name} does not fit beside the memory that is kept free for other programs")
        }
        (_, true) => format!("{name} does not fit beside the memory that other models and processes hold"),
        (_, false) => format!(
            "{name} would not fit on the cards that it may use even if those cards were \
            empty"
        ),
    };
    // Clients retry on `no_room` and give up on `never_fits`.
    let code = if crowded_out { "no_room" } else { "never_fits" };
    let reason = Reason::new(code, text).fact("model", name);
    // The most cards first: a line has room for one cause, and a part of them tells less than all.
    let mut sets: Vec<_> = requested.iter().collect();
    sets.order_by_key(|(set, _)| Reverse(set.len()));
    let mut reason =
        reason.because_all(sets.into_iter().take(SPELT_OUT).map(|(set, placement)| match placement {
            Ok(placement) => too_little(ledger, tenants, placement, crowded_out),
            Err(reason) => reason.clone().fact("cards", names(ledger, set)),
        }));
    if requested.len() > SPELT_OUT {
        let more = format!(
            "number of further sets of cards that are also too small: {}",
            requested.len() - SPELT_OUT
        );
        reason = reason.because(Reason::new("more_sets", more));
    }
    // Without these lines a model would be refused for a need that neither plan nor configuration shows.
    for (code, bytes, cause) in [
        ("measured", query.learned.measured, "an earlier run of the engine took this much, as measured"),
        ("lacked", query.learned.lacked, "an earlier run of the engine ran out of memory"),
    ] {
        if !bytes.is_zero() {
            let text =
                format!("the need includes {bytes} more on each card than planned or declared: {cause}");
            reason = reason.because(Reason::new(code, text).fact("learned", bytes));
        }
    }
    let (mut hints, advice) = hints(query, ledger, tenants, crowded_out);
    if !crowded_out && !query.learned.measured.is_zero() {
        let placements = requested.iter().filter_map(|(_, placement)| placement.as_ref().ok());
        hints.extend(placements.take(1).flat_map(|placement| after_measurement(ledger, placement)));
    }
    NoPlacement { crowded_out, reason, hints, advice }
}

/// True if no process and no pinned model holds memory of the cards that a yield keeps free.
fn is_only_kept(ledger: &Ledger, tenants: &[CardTenant]) -> bool {
    let occupied = |account: &Account| {
        !account.foreign().is_zero() || account.claims().iter().any(|claim| stays(tenants, claim.run))
    };
    let accounts = ledger.accounts();
    accounts.iter().any(|account| !account.kept_now().is_zero()) && !accounts.iter().any(occupied)
}

/// The refusal of a model beside pinned ones that are as many as may be loaded.
pub(super) fn no_run_left(
    query: &PlacementQuery,
    ledger: &Ledger,
    tenants: &[CardTenant],
    most: usize,
) -> NoPlacement {
    let claims = ledger.accounts().iter().flat_map(Account::claims);
    let pinned = claims.filter(|claim| stays(tenants, claim.run));
    let pinned: BTreeMap<&str, RunId> = pinned.map(|claim| (&*claim.holder, claim.run)).collect();
    let name = query.name;
    let text = format!("{name} cannot load: {}, and that many models are pinned", at_most(most));
    let reason = Reason::new("no_room", text)
        .fact("model", name)
        .fact("models_max", u64::try_from(most).unwrap_or(u64::MAX));
    let of_pinned =
        |name: &&str| Reason::new("pinned", format!("the model {name} is pinned")).fact("model", *name);
    let hints = pinned.iter().map(|(name, run)| Hint::new(Advice::Other(unpin(tenants, *run, name))));
    crowded_out(reason.because_all(pinned.keys().map(of_pinned)), hints.collect())
}

fn crowded_out(reason: Reason, hints: Vec<Hint>) -> NoPlacement {
    NoPlacement { crowded_out: true, reason, hints, advice: PlanAdvice::default() }
}

/// The refusal of a model beside which a pinned one may not run.
pub(super) fn apart_pinned(query: &PlacementQuery, ledger: &Ledger, tenants: &[CardTenant]) -> NoPlacement {
    let name = query.name;
    let of = |run: RunId| tenants.iter().find(|it| it.run == run && query.is_apart(it));
    let claims = ledger.accounts().iter().flat_map(Account::claims);
    let holder = claims.into_iter().find(|claim| stays(tenants, claim.run) && of(claim.run).is_some());
    let other = holder.map_or("a pinned model", |claim| &*claim.holder);
    let by_rule = holder.and_then(|claim| of(claim.run)).is_none_or(|tenant| tenant.apart);
    let no_room = |why: String| Reason::new("no_room", format!("{name} cannot load: {why}, and is pinned"));
    let reason = match query.port.filter(|_| !by_rule) {
        Some(port) => {
            no_room(format!("{other} listens on the same port ({port})")).fact("port", u64::from(port))
        }
        None => no_room(format!("{other} may not run beside it ({RULES})")),
    };
    let unpin = holder.map(|claim| Hint::new(Advice::Other(unpin(tenants, claim.run, &claim.holder))));
    crowded_out(reason.fact("model", name), unpin.into_iter().collect())
}

/// The settings that keep models apart.
pub(crate) const RULES: &str = "`groups` or `together` in the configuration";

/// Way to release a pinned model.
fn unpin(tenants: &[CardTenant], run: RunId, name: &str) -> String {
    if tenants.iter().any(|tenant| tenant.run == run && tenant.is_pinned_by_file) {
        format!("remove `pin` of {name} from the configuration and run `plimsoll reload`")
    } else {
        format!("unpin {name}")
    }
}

/// True for a run that no newcomer stops.
fn stays(tenants: &[CardTenant], run: RunId) -> bool {
    tenants.iter().any(|tenant| tenant.run == run && tenant.standing == CardStanding::Stays)
}

/// The limit of runs in words.
pub(crate) fn at_most(most: usize) -> String {
    match most {
        1 => "at most one model is loaded at a time (`models-max`)".to_owned(),
        _ => format!("at most {most} models are loaded at a time (`models-max`)"),
    }
}

/// Remedies for a model that fits by its plan, and was measured to take more than its cards may hold.
fn after_measurement(ledger: &Ledger, placement: &Placement) -> Vec<Hint> {
    let small = placement.shares.iter().filter_map(|share| {
        let account = ledger.account(&share.card)?;
        // A card of a vendor has no more than it has.
        let described = account.budget().is_some() || account.card().kind == CardKind::Host;
        (described && share.bytes > account.limit())
            .then(|| (&account.card().name, share.bytes + account.reserve()))
    });
    let more = small.map(|(card, bytes)| {
        format!("allow models {bytes} of {card}: raise `total=` or `budget=` in its `--card`")
    });
    let less = "make the engine take less memory: change its section and run `plimsoll reload`, which also \
            forgets the measurement";
    more.chain([less.to_owned()]).map(|text| Hint::new(Advice::Other(text))).collect()
}

fn names(ledger: &Ledger, set: &[usize]) -> String {
    let names: Vec<&str> = set.iter().map(|index| ledger.accounts()[*index].card().name.as_str()).collect();
    names.join(", ")
}

fn too_little(ledger: &Ledger, tenants: &[CardTenant], placement: &Placement, crowded_out: bool) -> Reason {
    let room =
        |account: &Account| if crowded_out { alongside_pinned(account, tenants) } else { account.limit() };
    let shares = placement.shares.iter();
    let shares: Vec<(&Account, Bytes)> =
        shares.filter_map(|share| Some((ledger.account(&share.card)?, share.bytes))).collect();
    let lacks = |(account, bytes): &&(&Account, Bytes)| placement.alone || *bytes > room(account);
    // A card with room enough is no reason.
    let any = shares.iter().any(|share| lacks(&share));
    let named = shares.iter().filter(|share| !any || lacks(share)).map(|(account, bytes)| {
        let causes = if crowded_out { occupied_parts(account, tenants) } else { withheld(account) };
        lacking(account, *bytes, placement.alone, room(account), causes)
    });
    let mut on_cards: Vec<Reason> = named.collect();
    // One card needs no sum above it.
    if shares.len() == 1 && on_cards.len() == 1 {
        return on_cards.remove(0);
    }
    let total = placement.total();
    let each: Vec<String> = shares
        .iter()
        .map(|(account, bytes)| {
            format!("{bytes} of the {} available on {}", room(account), account.card().name)
        })
        .collect();
    let cards = shares.iter().filter(|(account, _)| account.card().kind == CardKind::Cuda).count();
    let place = match (cards, shares.len() - cards) {
        (1, _) => "on one card and host memory".to_owned(),
        (_, 0) => format!("on {cards} cards together"),
        _ => format!("on {cards} cards and host memory together"),
    };
    let text = format!("{place} the model takes {total}: {}", each.join(", "));
    Reason::new("on_cards", text).fact("need", total).because_all(on_cards)
}

/// Memory of a card for models that are not pinned.
fn alongside_pinned(account: &Account, tenants: &[CardTenant]) -> Bytes {
    let pinned = account.claims().iter().filter(|claim| stays(tenants, claim.run));
    account.capacity().saturating_sub(pinned.map(|claim| claim.bytes).sum())
}

/// Memory of other processes, yields and pinned models. All other claims could be stopped.
fn occupied_parts(account: &Account, tenants: &[CardTenant]) -> Vec<(Bytes, Reason)> {
    let pinned = account.claims().iter().filter(|claim| stays(tenants, claim.run));
    let mut causes = kept_from_models(account);
    causes.extend(pinned.map(|claim| {
        let text = format!("the pinned model {} holds {}", claim.holder, claim.bytes);
        let reason = Reason::new("pinned", text).fact("model", &*claim.holder).fact("claim", claim.bytes);
        (claim.bytes, reason)
    }));
    causes
}

/// Memory that settings withhold from models, with its size.
fn withheld(account: &Account) -> Vec<(Bytes, Reason)> {
    let total = account.card().total;
    // A budget of the whole card explains nothing.
    let budget = account.budget().filter(|budget| *budget < total).map(|budget| {
        let text = format!("the budget is {budget} of the card's {total}");
        (total.saturating_sub(budget), Reason::new("budget", text).fact("budget", budget))
    });
    let reserve = holding("reserve", account.reserve(), "the `reserve` setting keeps free");
    budget.into_iter().chain([reserve]).collect()
}

/// Memory of a card that no model gets, by cause, with its size: what settings withhold, and what others
/// hold.
pub(crate) fn kept_from_models(account: &Account) -> Vec<(Bytes, Reason)> {
    let mut causes = withheld(account);
    causes.push(holding("foreign", account.foreign(), "the system and other processes hold"));
    causes.push(holding("yield", account.kept_now(), "`plimsoll yield` keeps free"));
    causes
}

/// A cause with its size, which the text ends in.
pub(crate) fn holding(code: &'static str, bytes: Bytes, text: &str) -> (Bytes, Reason) {
    (bytes, Reason::new(code, format!("{text} {bytes}")).fact(code, bytes))
}

/// The causes that hold any memory.
///
/// DECISION: the largest comes first, because a line has room for one.
pub(crate) fn largest_first(mut causes: Vec<(Bytes, Reason)>) -> impl Iterator<Item = Reason> {
    causes.retain(|(bytes, _)| !bytes.is_zero());
    causes.order_by_key(|(bytes, _)| Reverse(*bytes));
    causes.into_iter().map(|(_, reason)| reason)
}

fn lacking(
    account: &Account,
    need: Bytes,
    alone: bool,
    available: Bytes,
    causes: Vec<(Bytes, Reason)>,
) -> Reason {
    let (name, total) = (&account.card().name, account.card().total);
    let text = match alone {
        true if total.is_zero() => {
            format!("{name} reports a total of {total}, so it has no memory for models")
        }
        true if account.limit().is_zero() => format!("the limit of {name} leaves no memory for models"),
        true => format!("{name} would have to be empty, because the model's memory need is unknown"),
        false => {
            // 9.0 and 9.3 MiB read the same.
            let more = if available.to_string() == need.to_string() {
                format!(", {} more", need.saturating_sub(available))
            } else {
                String::new()
            };
            format!("{name} has {available} available, but the model needs {need}{more}")
        }
    };
    Reason::new("on_card", text)
        .fact("card", account.card().id.as_str())
        .fact("need", need)
        .fact("total", total)
        .fact("available", available)
        .because_all(largest_first(causes))
}

fn hints(
    query: &PlacementQuery,
    ledger: &Ledger,
    tenants: &[CardTenant],
    crowded_out: bool,
) -> (Vec<Hint>, PlanAdvice) {
    let usable = || {
        let accounts = ledger.accounts().iter();
        accounts.filter(|account| {
            let id = &account.card().id;
            (query.allowed.is_empty() || query.allowed.contains(id)) && query.need.named.allows(id)
        })
    };
    let at_best = |account: &Account| {
        // The model takes more than its plan on each card, as was measured.
        let beyond = query.learned.measured + query.learned.lacked;
        let free = alongside_pinned(account, tenants).saturating_sub(beyond);
        Card { free, ..account.card().clone() }
    };
    let mut hints = Vec::new();
    if crowded_out {
        for account in usable() {
            let card = &account.card().name;
            let pinned = account.claims().iter().filter(|claim| stays(tenants, claim.run));
            hints.extend(pinned.map(|claim| {
                let unpin = unpin(tenants, claim.run, &claim.holder);
                let text = format!("{unpin}, which holds {} on {card}", claim.bytes);
                Hint::new(Advice::Other(text))
            }));
            if !account.kept_now().is_zero() {
                let text = format!("end the yield on {card}: plimsoll yield --end");
                hints.push(Hint::new(Advice::Other(text)));
            }
            if !account.foreign().is_zero() {
                hints.push(Hint::new(Advice::FreeCard { card: card.clone() }));
            }
        }
    }
    // A plan's advice is for the memory that the cards could give, not for what is free now.
    let advice = PlanAdvice { cards: usable().map(at_best).collect(), place: hints.len(), model: None };
    if query.need.is_alone() {
        hints.push(Hint::new(Advice::DeclareMemory));
    }
    let is_further = |account: &Account| {
        let card = account.card();
        card.kind == CardKind::Cuda && !query.allowed.contains(&card.id)
    };
    if !query.allowed.is_empty() && ledger.accounts().iter().any(is_further) {
        hints.push(Hint::new(Advice::AnotherCard));
    }
    (hints, advice)
}

//! The words of every refusal.

use std::time::Duration;

use plimsoll_base::{Advice, Bytes, Card, Hint, Reason, Share, Slots};

use super::depth::Depth;
use super::effect::{Refusal, RefusalKind, State};
use super::model::{Model, Seeking};
use super::retry::Record;
use crate::place::{Ledger, Never};

/// When to ask again where nothing tells.
const SOON: Duration = Duration::from_secs(1);
/// When to ask again where only the outside world can change something.
const LATER: Duration = Duration::from_secs(10);

fn refusal(kind: RefusalKind, retry_after: Option<Duration>, reason: Reason) -> Refusal {
    Refusal {
        kind,
        retry_after,
        reason,
        hints: Vec::new(),
    }
}

pub(super) fn shutting_down() -> Refusal {
    let reason = Reason::new("shutting_down", "the daemon is shutting down");
    refusal(RefusalKind::ShuttingDown, Some(LATER), reason)
}

pub(super) fn unconfigured() -> Refusal {
    let reason = Reason::new(
        "unconfigured",
        "the model is not, or no longer, in the configuration",
    );
    refusal(RefusalKind::Unconfigured, None, reason)
}

pub(super) fn queue_full(name: &str, limit: usize) -> Refusal {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let reason =
        Reason::new("queue_full", format!("{limit} requests wait for {name} already")).fact("limit", limit);
    refusal(RefusalKind::QueueFull, Some(SOON), reason)
}

pub(super) fn unloaded(name: &str) -> Refusal {
    let text = format!("{name} was unloaded by hand while the request waited for it");
    refusal(RefusalKind::Unloaded, Some(SOON), Reason::new("unloaded", text))
}

pub(super) fn load_failed(name: &str, record: &Record, wait: Option<Duration>) -> Refusal {
    let mut reason = Reason::new("load_failed", format!("{name} could not be loaded"));
    if let Some(wait) = wait {
        let text = format!("it is not tried again for {:.1} s", wait.as_secs_f64());
        reason = reason.because(Reason::new("held_back", text));
    }
    let reason = reason.because_all(record.standing_failure());
    refusal(RefusalKind::LoadFailed, Some(wait.unwrap_or(LATER)), reason)
}

pub(super) fn engine_died(name: &str, record: &Record, wait: Option<Duration>) -> Refusal {
    let text = format!("the engine of {name} died under this request twice");
    let reason = Reason::new("engine_died", text).because_all(record.standing_failure());
    refusal(RefusalKind::EngineDied, Some(wait.unwrap_or(SOON)), reason)
}

pub(super) fn never(never: Never) -> Refusal {
    let (kind, retry_after) = match never.crowded_out {
        true => (RefusalKind::NoRoom, Some(LATER)),
        false => (RefusalKind::NeverFits, None),
    };
    Refusal {
        kind,
        retry_after,
        reason: never.reason,
        hints: never.hints,
    }
}

/// What is known of a request that goes too deep.
pub(super) struct Depths<'a> {
    pub(super) name: &'a str,
    pub(super) depth: Depth,
    pub(super) slots: &'a Slots,
    /// The depth that the run could have at best; `None` where not even the first step.
    pub(super) fits: Option<u64>,
    /// What the run takes before the first token, and what it would need.
    pub(super) loaded: Vec<Share>,
    pub(super) needs: Vec<Share>,
    pub(super) ledger: &'a Ledger,
    /// The run's cards, each with what it could give the run at best.
    pub(super) cards: &'a [Card],
    pub(super) hints: Vec<Hint>,
}

pub(super) fn too_deep(depths: &Depths) -> Refusal {
    let tokens = depths.depth.tokens(depths.slots);
    let fits = depths.fits.unwrap_or(0).min(depths.slots.full);
    let name = depths.name;
    let text = format!(
        "{name} may reach {tokens} tokens with this request, and has memory for {fits} on the cards it runs on"
    );
    let crowded_out = depths.needs.iter().all(|need| {
        let account = depths.ledger.account(&need.card);
        account.is_some_and(|account| need.bytes <= account.limit())
    });
    let reason = Reason::new("too_deep", text)
        .fact("model", name)
        .fact("depth", tokens)
        .fact("fits", fits)
        .because(asked(&depths.depth, depths.slots))
        .because_all(depths.cards.iter().filter_map(|card| on_card(depths, card)));
    let (kind, retry_after) = match crowded_out {
        true => (RefusalKind::NoRoom, Some(LATER)),
        false => (RefusalKind::TooDeep, None),
    };
    let mut hints: Vec<Hint> = shallower(&depths.depth, fits).into_iter().collect();
    hints.extend(depths.hints.iter().cloned());
    Refusal {
        kind,
        retry_after,
        reason,
        hints,
    }
}

/// How the depth of a request comes about.
fn asked(depth: &Depth, slots: &Slots) -> Reason {
    let prompt = match depth.prompt {
        Some(prompt) if depth.exact => format!("the prompt has {prompt} tokens"),
        Some(prompt) => format!("the prompt has at most {prompt} tokens"),
        None => "how many tokens the prompt has could not be told".to_owned(),
    };
    let answer = match depth.answer.or(slots.answer) {
        Some(answer) => format!("the answer may have {answer}"),
        None => format!("nothing limits the answer but the context of {}", slots.each),
    };
    let reason = Reason::new("asked", format!("{prompt} and {answer}")).fact("context", slots.each);
    let reason = match depth.prompt {
        Some(prompt) => reason.fact("prompt", prompt),
        None => reason,
    };
    match depth.answer.or(slots.answer) {
        Some(answer) => reason.fact("answer", answer),
        None => reason,
    }
}

fn on_card(depths: &Depths, card: &Card) -> Option<Reason> {
    let on = |shares: &[Share]| {
        let on_card = shares.iter().find(|share| share.card == card.id);
        on_card.map(|share| share.bytes)
    };
    let (need, loaded) = (on(&depths.needs)?, on(&depths.loaded)?);
    let (have, grows) = (card.free, need.saturating_sub(loaded));
    let text = format!(
        "on {} it takes {loaded} when loaded and {grows} more at that depth, {need} in all, where {have} is to be had",
        card.name
    );
    let reason = Reason::new("on_card", text)
        .fact("card", card.id.as_str())
        .fact("need", need)
        .fact("loaded", loaded)
        .fact("growth", grows)
        .fact("available", have);
    Some(reason.because_all(held_by_others(depths.ledger, card)))
}

/// What is not to be had on a card, and why.
fn held_by_others(ledger: &Ledger, card: &Card) -> Vec<Reason> {
    let Some(account) = ledger.account(&card.id) else {
        return Vec::new();
    };
    let total = account.card().total;
    let mut reasons = Vec::new();
    if let Some(budget) = account.budget() {
        let text = format!("the budget is {budget} of {total}");
        reasons.push(Reason::new("budget", text).fact("budget", budget));
    }
    for (code, bytes, text) in [
        (
            "foreign",
            account.foreign(),
            "is held by processes that are not ours",
        ),
        ("reserve", account.reserve(), "is kept in reserve"),
        (
            "pinned",
            account.capacity().saturating_sub(card.free),
            "is held by pinned models",
        ),
    ] {
        if bytes > Bytes::ZERO {
            reasons.push(Reason::new(code, format!("{bytes} {text}")).fact(code, bytes));
        }
    }
    reasons
}

/// What the client could ask for instead.
fn shallower(depth: &Depth, fits: u64) -> Option<Hint> {
    let prompt = depth.prompt.unwrap_or(u64::MAX);
    let text = match fits.checked_sub(prompt).map(|room| room / depth.answers.max(1)) {
        Some(room) if room > 0 => format!("limit the answer to {room} tokens (\"max_tokens\": {room})"),
        _ if fits > 0 => format!("ask with prompt and answer within {fits} tokens"),
        _ => return None,
    };
    Some(Hint::new(Advice::Other(text)))
}

pub(super) fn deadline(model: Option<&Model>, ledger: &Ledger, waited: Duration) -> Refusal {
    let name = model.map_or("the model", |model| &*model.name);
    let text = format!("the request waited {:.1} s for {name}", waited.as_secs_f64());
    let mut reason = Reason::new("deadline", text).fact("model", name);
    if let Some(model) = model {
        reason = reason
            .because(still(model, ledger))
            .because_all(model.record.standing_failure());
    }
    refusal(RefusalKind::Deadline, Some(SOON), reason)
}

/// What a model was doing when a request gave up on it.
fn still(model: &Model, ledger: &Ledger) -> Reason {
    let text = match (model.state(), &model.seeking) {
        (State::Queued, Seeking::Room(_)) => "it still waits for memory that others hold",
        (State::Queued, _) => "its files and its engine are still being looked at",
        (State::Loading, _) => "it is still loading",
        (State::Ready, _) if model.deep.is_some() => {
            "the next request goes deeper than the memory that the model has now, and waits for more"
        }
        (State::Ready, _) => "it is busy with as many requests as it takes at once",
        (State::Draining | State::Stopping, _) => "it is being stopped, and starts again after that",
        (State::Unloaded | State::Failed, _) => "it is not loaded",
    };
    let mut reason = Reason::new("still", text);
    if let Some(deep) = &model.deep {
        let runs = u64::try_from(deep.victims.len()).unwrap_or(u64::MAX);
        reason = reason.fact("runs_to_go", runs).because_all(holders(ledger));
    }
    if let Seeking::Room(room) = &model.seeking {
        let runs = u64::try_from(room.victims.len()).unwrap_or(u64::MAX);
        reason = reason.fact("runs_to_go", runs).because_all(holders(ledger));
    }
    reason
}

/// Who holds what on each card.
fn holders(ledger: &Ledger) -> impl Iterator<Item = Reason> {
    ledger.accounts().iter().flat_map(|account| {
        account.claims().iter().map(|claim| {
            let card = &account.card().id;
            let text = format!("{} holds {} on {card}", claim.holder, claim.bytes);
            Reason::new("holder", text)
                .fact("card", card.as_str())
                .fact("holds", claim.bytes)
        })
    })
}

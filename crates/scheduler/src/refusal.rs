//! Refusals of requests by the scheduler: error messages, causes and retry times.

use std::cmp::Reverse;
use std::time::Duration;

use plimsoll_base::{Advice, Bytes, Card, Hint, Order, Reason, RunId, Share, Slots};

use super::depth::RequestDepth;
use super::effect::{ModelState, RequestRefusal, RequestRefusalKind};
use super::failures::FailureRecord;
use super::models::{ModelSlot, RequestedState};
use crate::place::{Ledger, NoPlacement, at_most};

/// Retry time if no better one is known.
const SOON: Duration = Duration::from_secs(1);
/// Retry time if only a change outside the scheduler can help.
const LATER: Duration = Duration::from_secs(10);

fn refusal(kind: RequestRefusalKind, retry_after: Option<Duration>, reason: Reason) -> RequestRefusal {
    RequestRefusal { kind, retry_after, reason, hints: Vec::new() }
}

pub(crate) fn shutting_down() -> RequestRefusal {
    let reason = Reason::new("shutting_down", "the daemon is shutting down");
    refusal(RequestRefusalKind::ShuttingDown, Some(LATER), reason)
}

pub(crate) fn unconfigured() -> RequestRefusal {
    let reason = Reason::new(
        "unconfigured",
        "the configuration does not contain the model, or no longer \
        contains it",
    );
    refusal(RequestRefusalKind::Unconfigured, None, reason)
}

pub(crate) fn queue_full(name: &str, limit: usize) -> RequestRefusal {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let reason = Reason::new("queue_full", format!("{limit} requests are already waiting for {name}"))
        .fact("limit", limit);
    refusal(RequestRefusalKind::QueueFull, Some(SOON), reason)
}

pub(crate) fn unloaded(name: &str) -> RequestRefusal {
    let text = format!("{name} was unloaded by hand while the request waited for the model");
    refusal(RequestRefusalKind::Unloaded, Some(SOON), Reason::new("unloaded", text))
}

pub(crate) fn load_failed(name: &str, record: &FailureRecord, wait: Option<Duration>) -> RequestRefusal {
    let not_loaded = || format!("{name} could not be loaded");
    // A run that was ready and then died had no trouble with loading.
    let (kind, code, text) = match record.died_serving {
        true => (
            RequestRefusalKind::EngineDied,
            "engine_died",
            format!("the engine of {name} died while it served requests"),
        ),
        false if record.lasts() => (RequestRefusalKind::Unstartable, "load_failed", not_loaded()),
        false => (RequestRefusalKind::LoadFailed, "load_failed", not_loaded()),
    };
    let mut reason = Reason::new(code, text);
    // A load that succeeded since makes the old failure irrelevant. It comes first: lines of the log show one cause.
    reason = reason.because_all(record.standing_failure());
    if let Some(wait) = wait {
        let text = format!("the model is loaded again after {:.1} s at the earliest", wait.as_secs_f64());
        reason = reason.because(Reason::new("held_back", text));
    }
    // A file is as damaged, and a flag as unknown, after any wait.
    let retry = (kind != RequestRefusalKind::Unstartable).then(|| wait.unwrap_or(LATER));
    refusal(kind, retry, reason)
}

pub(crate) fn engine_died(name: &str, record: &FailureRecord, wait: Option<Duration>) -> RequestRefusal {
    let text = format!("the engine of {name} died twice during this request");
    let reason = Reason::new("engine_died", text).because_all(record.standing_failure());
    refusal(RequestRefusalKind::EngineDied, Some(wait.unwrap_or(SOON)), reason)
}

/// The engine closed the connection, and its health check succeeds: the cause is in the request.
pub(crate) fn unanswered(name: &str) -> RequestRefusal {
    let text =
        format!("the engine of {name} closed the connection without an answer, and is otherwise healthy");
    // A retry would reach the same engine with the same request.
    refusal(RequestRefusalKind::Unanswered, None, Reason::new("no_answer", text))
}

pub(crate) fn no_placement(never: NoPlacement) -> RequestRefusal {
    let (kind, retry_after) = match never.crowded_out {
        true => (RequestRefusalKind::NoRoom, Some(LATER)),
        // No time helps here, so no retry is suggested.
        false => (RequestRefusalKind::NeverFits, None),
    };
    RequestRefusal { kind, retry_after, reason: never.reason, hints: never.hints }
}

/// Figures of a request that is deeper than its run can ever be.
pub(crate) struct DepthRefusal<'a> {
    pub(crate) name: &'a str,
    pub(crate) depth: RequestDepth,
    pub(crate) slots: &'a Slots,
    /// Depth that the run could have at best; `None` if not even the first step fits.
    pub(crate) fits: Option<u64>,
    /// Memory of the run before the first token, and memory that it would need.
    pub(crate) loaded: Vec<Share>,
    pub(crate) needs: Vec<Share>,
    pub(crate) ledger: &'a Ledger,
    /// The run's cards, each with the memory that it could give the run at best.
    pub(crate) cards: &'a [Card],
    pub(crate) hints: Vec<Hint>,
}

pub(crate) fn too_deep(depths: &DepthRefusal) -> RequestRefusal {
    let tokens = depths.depth.tokens(depths.slots);
    let fits = depths.fits.unwrap_or(0).min(depths.slots.full);
    let name = depths.name;
    let text = format!(
        "{name} would reach up to {tokens} tokens with this request, but its cards have memory for only \
        {fits} tokens"
    );
    // If empty cards could hold that depth, only others' memory is in the way, and a retry may succeed.
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
        true => (RequestRefusalKind::NoRoom, Some(LATER)),
        false => (RequestRefusalKind::TooDeep, None),
    };
    let mut hints: Vec<Hint> = shallower(&depths.depth, fits).into_iter().collect();
    hints.extend(depths.hints.iter().cloned());
    RequestRefusal { kind, retry_after, reason, hints }
}

/// Parts of a request's depth.
fn asked(depth: &RequestDepth, slots: &Slots) -> Reason {
    let prompt = match depth.prompt {
        Some(prompt) if depth.exact => format!("the prompt has {prompt} tokens"),
        Some(prompt) => format!("the prompt has at most {prompt} tokens"),
        None => "the number of tokens in the prompt is unknown".to_owned(),
    };
    let answer = match depth.answer.or(slots.answer) {
        Some(answer) => format!("the answer may have {answer} tokens"),
        None => format!("the answer is limited only by the context of {} tokens", slots.each),
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

fn on_card(depths: &DepthRefusal, card: &Card) -> Option<Reason> {
    let on = |shares: &[Share]| {
        let on_card = shares.iter().find(|share| share.card == card.id);
        on_card.map(|share| share.bytes)
    };
    let (need, loaded) = (on(&depths.needs)?, on(&depths.loaded)?);
    let (have, grows) = (card.free, need.saturating_sub(loaded));
    let text = format!(
        "on {} the model takes {loaded} when loaded and {grows} more for the tokens of this request, {need} \
            in total; {have} is available",
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

/// Memory of a card that is not available, by cause, the largest first.
fn held_by_others(ledger: &Ledger, card: &Card) -> Vec<Reason> {
    let Some(account) = ledger.account(&card.id) else {
        return Vec::new();
    };
    let total = account.card().total;
    let mut causes = Vec::new();
    if let Some(budget) = account.budget().filter(|budget| *budget < total) {
        let text = format!("the budget is {budget} of the card's {total}");
        causes.push((total.saturating_sub(budget), Reason::new("budget", text).fact("budget", budget)));
    }
    for (code, bytes, text) in [
        ("foreign", account.foreign(), "the system and other processes hold"),
        ("reserve", account.reserve(), "the reserve is"),
        ("yield", account.kept_now(), "a yield to other programs keeps free"),
        ("pinned", account.capacity().saturating_sub(card.free), "pinned models hold"),
    ] {
        if bytes > Bytes::ZERO {
            causes.push((bytes, Reason::new(code, format!("{text} {bytes}")).fact(code, bytes)));
        }
    }
    causes.order_by_key(|(bytes, _)| Reverse(*bytes));
    causes.into_iter().map(|(_, reason)| reason).collect()
}

/// A request that would fit instead.
fn shallower(depth: &RequestDepth, fits: u64) -> Option<Hint> {
    let prompt = depth.prompt.unwrap_or(u64::MAX);
    let text = match fits.checked_sub(prompt).map(|room| room / depth.answers.max(1)) {
        Some(room) if room > 0 => format!("limit the answer to {room} tokens (\"max_tokens\": {room})"),
        // The prompt alone is too long; a shorter answer does not help.
        _ if fits > 0 => format!("keep prompt and answer within {fits} tokens"),
        _ => return None,
    };
    Some(Hint::new(Advice::Other(text)))
}

pub(crate) fn deadline(model: Option<&ModelSlot>, ledger: &Ledger, waited: Duration) -> RequestRefusal {
    let name = model.map_or("the model", |model| &*model.name);
    let text = format!("the request waited {:.1} s for {name}", waited.as_secs_f64());
    let mut reason = Reason::new("deadline", text).fact("model", name);
    if let Some(model) = model {
        reason = reason.because(wait(model, ledger).1).because_all(model.record.standing_failure());
    }
    refusal(RequestRefusalKind::Deadline, Some(SOON), reason)
}

/// The cause of the wait for a model, in a word and in a sentence.
pub(crate) fn wait_cause(model: &ModelSlot) -> (&'static str, &'static str) {
    // The state tells an operator which wait was too long.
    match (model.state(), model.seeking()) {
        (ModelState::Queued, RequestedState::Room(_)) => ("room", "the model still waits for memory"),
        (ModelState::Queued, _) => ("check", "the model's files and its engine are still being checked"),
        (ModelState::Loading, _) => ("load", "the model is still loading"),
        (ModelState::Ready, _) if model.depth_wait().is_some() => {
            ("room", "the next request needs more memory than the model has now, and waits for that memory")
        }
        (ModelState::Ready, _) if model.is_checked() => {
            ("check", "the engine gave a request no answer, so it is being checked")
        }
        (ModelState::Ready, _) if model.is_counting() => {
            ("check", "the tokens of the model's next request are being counted")
        }
        (ModelState::Ready, _) => ("slot", "the model already serves as many requests as it accepts at once"),
        (ModelState::Draining | ModelState::Stopping, _) => {
            ("load", "the model is being stopped, and will be started again")
        }
        (ModelState::Unloaded | ModelState::Failed, _) => ("load", "the model is not loaded"),
    }
}

/// The cause of the wait for a model, in a word and with its reason.
pub(crate) fn wait(model: &ModelSlot, ledger: &Ledger) -> (&'static str, Reason) {
    let (word, text) = wait_cause(model);
    let text = match model.room().and(ledger.full_at()) {
        Some(most) => format!("the model waits until another has left: {}", at_most(most)),
        None => text.to_owned(),
    };
    let mut reason = Reason::new("still", text);
    if let Some(deep) = model.depth_wait() {
        let runs = u64::try_from(deep.victims.len()).unwrap_or(u64::MAX);
        reason = reason.fact("runs_to_go", runs).because_all(holders(ledger, &deep.victims));
    }
    if let Some(room) = model.room() {
        let runs = u64::try_from(room.victims.len()).unwrap_or(u64::MAX);
        reason = reason.fact("runs_to_go", runs).because_all(holders(ledger, &room.victims));
    }
    (word, reason)
}

/// Memory of each card that is not available: claims of the runs that leave, memory that is kept free, other claims, the
/// largest first.
///
/// DECISION: a log line has only the first cause, so that is the one whose end the model most probably waits for.
fn holders(ledger: &Ledger, leaving: &[RunId]) -> Vec<Reason> {
    let mut holders = Vec::new();
    for account in ledger.accounts() {
        let (card, kept) = (account.card(), account.kept_now());
        holders.extend(account.claims().iter().map(|claim| {
            let text = format!("{} holds {} on {}", claim.holder, claim.bytes, card.name);
            let reason =
                Reason::new("holder", text).fact("card", card.id.as_str()).fact("holds", claim.bytes);
            (!leaving.contains(&claim.run), claim.bytes, reason)
        }));
        if !kept.is_zero() {
            let text = format!("a yield keeps {kept} of {} free for other programs", card.name);
            holders.push((true, Bytes::MAX, Reason::new("yield", text).fact("yield", kept)));
        }
    }
    holders.order_by_key(|(stays, bytes, _)| (*stays, Reverse(*bytes)));
    holders.into_iter().map(|(_, _, reason)| reason).collect()
}

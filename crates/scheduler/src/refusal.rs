//! Lists the reasons why the scheduler refuses a request, with the error message and the time to try again.

use std::time::Duration;

use plimsoll_base::{Advice, Bytes, Card, CardId, Hint, Reason, Slots, counted};

use super::depth::RequestDepth;
use super::effect::{RequestRefusal, RequestRefusalKind};
use super::failures::FailureRecord;
use super::models::ModelSlot;
use super::occupancy::Occupancy;
use super::time::ModelId;
use crate::place::{Account, Ledger, NoPlacement, PlanAdvice, holding, kept_from_models, largest_first};

/// Retry time if no better one is known.
const SOON: Duration = Duration::from_secs(1);
/// Retry time if only a change outside the scheduler can help.
const LATER: Duration = Duration::from_secs(10);

fn refusal(kind: RequestRefusalKind, retry_after: Option<Duration>, reason: Reason) -> RequestRefusal {
    RequestRefusal { kind, retry_after, reason, hints: Vec::new(), advice: PlanAdvice::default() }
}

pub(crate) fn shutting_down() -> RequestRefusal {
    let reason = Reason::new("shutting_down", "the server is shutting down");
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
    let reason = Reason::new(
        "queue_full",
        format!(
            "{} already waiting for {name}",
            if limit == 1 { "1 request is".to_owned() } else { format!("{limit} requests are") }
        ),
    )
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
    // A load that succeeded since makes the old failure irrelevant. It comes first: lines of the log show one
    // cause.
    reason = reason.because_all(record.standing_failure());
    if let Some(wait) = wait {
        let text = format!("the model can be loaded again in {:.1} s at the earliest", wait.as_secs_f64());
        reason = reason.because(Reason::new("held_back", text));
    }
    // A file is as damaged, and a flag as unknown, after any wait.
    let retry = (kind != RequestRefusalKind::Unstartable).then(|| wait.unwrap_or(LATER));
    refusal(kind, retry, reason)
}

/// The model stops no other for a time, because its last load failed.
pub(crate) fn sparing(name: &str, record: &FailureRecord, wait: Duration) -> RequestRefusal {
    let mut refusal = load_failed(name, record, None);
    let text = format!(
        "because its last load failed, it displaces no other model for another {:.0} s; until then it \
            uses only free memory",
        wait.as_secs_f64().ceil()
    );
    refusal.reason = refusal.reason.because(Reason::new("spares_others", text));
    refusal.retry_after = refusal.retry_after.map(|_| wait);
    refusal
}

/// `deaths` are the crashes under the request; a dropped request is no crash.
pub(crate) fn engine_died(
    name: &str,
    deaths: u32,
    record: &FailureRecord,
    wait: Option<Duration>,
) -> RequestRefusal {
    let times = if deaths > 2 { format!("{deaths} times") } else { "twice".to_owned() };
    let text = format!("the engine of {name} died {times} during this request");
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

pub(crate) fn no_placement(model: ModelId, never: NoPlacement) -> RequestRefusal {
    let (kind, retry_after) = match never.crowded_out {
        true => (RequestRefusalKind::NoRoom, Some(LATER)),
        // No time helps here, so no retry is suggested.
        false => (RequestRefusalKind::NeverFits, None),
    };
    let advice = PlanAdvice { model: Some(model), ..never.advice };
    RequestRefusal { kind, retry_after, reason: never.reason, hints: never.hints, advice }
}

/// The refusal of a request that is deeper than its run can ever be, with at best so much memory of each
/// card.
pub(crate) fn too_deep(
    (model, name): (ModelId, &str),
    depth: RequestDepth,
    run: &Occupancy,
    ledger: &Ledger,
    at_best: impl Fn(&CardId) -> Bytes,
) -> RequestRefusal {
    let tokens = depth.tokens(run.slots());
    let fits = run.covered(&at_best).unwrap_or(0).min(run.slots().full);
    let text = format!(
        "{name} would reach up to {} with this request, but its cards have memory for only {}",
        counted(tokens, "token"),
        counted(fits, "token")
    );
    let needs = run.needs(run.alone(tokens)).into_iter().zip(run.needs(0));
    let needs: Vec<(&Account, Bytes, Bytes)> = needs
        .filter_map(|(need, loaded)| Some((ledger.account(&need.card)?, need.bytes, loaded.bytes)))
        .collect();
    // If empty cards could hold that depth, only others' memory is in the way, and a retry may succeed.
    let crowded_out = needs.iter().all(|(account, need, _)| *need <= account.limit());
    let of_card = |account: &Account| Card { free: at_best(&account.card().id), ..account.card().clone() };
    let cards: Vec<Card> = needs.iter().map(|(account, ..)| of_card(account)).collect();
    let on_cards = needs
        .iter()
        .zip(&cards)
        .map(|((account, need, loaded), card)| on_card(account, *need, *loaded, card.free));
    let reason = Reason::new("too_deep", text)
        .fact("model", name)
        .fact("depth", tokens)
        .fact("fits", fits)
        .because(requested(&depth, run.slots()))
        .because_all(on_cards);
    let (kind, retry_after) = if crowded_out {
        (RequestRefusalKind::NoRoom, Some(LATER))
    } else {
        (RequestRefusalKind::TooDeep, None)
    };
    let hints: Vec<Hint> = shallower(&depth, fits).into_iter().collect();
    let advice = PlanAdvice { cards, place: hints.len(), model: Some(model) };
    RequestRefusal { kind, retry_after, reason, hints, advice }
}

/// Parts of a request's depth.
fn requested(depth: &RequestDepth, slots: &Slots) -> Reason {
    let prompt = match depth.prompt {
        Some(prompt) if depth.exact => format!("the prompt has {}", counted(prompt, "token")),
        Some(prompt) => format!("the prompt has at most {}", counted(prompt, "token")),
        None => "the number of tokens in the prompt is unknown".to_owned(),
    };
    let answer = match depth.answer.or(slots.answer) {
        Some(answer) => format!("the answer may have {}", counted(answer, "token")),
        None => format!("the answer is limited only by the context of {} tokens", slots.each),
    };
    let reason = Reason::new("asked", format!("{prompt} and {answer}")).fact("context", slots.each);
    let facts = [("prompt", depth.prompt), ("answer", depth.answer.or(slots.answer))];
    let known = facts.into_iter().filter_map(|(name, tokens)| Some((name, tokens?)));
    known.fold(reason, |reason, (name, tokens)| reason.fact(name, tokens))
}

fn on_card(account: &Account, need: Bytes, loaded: Bytes, have: Bytes) -> Reason {
    let (card, grows) = (account.card(), need.saturating_sub(loaded));
    let text = format!(
        "on {} the model takes {loaded} when loaded and {grows} more for the tokens of this request, {need} \
            in total; {have} is available",
        card.name
    );
    // Memory that is not available, by cause.
    let mut causes = kept_from_models(account);
    causes.push(holding("pinned", account.capacity().saturating_sub(have), "pinned models hold"));
    Reason::new("on_card", text)
        .fact("card", card.id.as_str())
        .fact("need", need)
        .fact("loaded", loaded)
        .fact("growth", grows)
        .fact("available", have)
        .because_all(largest_first(causes))
}

/// A request that would fit instead.
fn shallower(depth: &RequestDepth, fits: u64) -> Option<Hint> {
    let prompt = depth.prompt.unwrap_or(u64::MAX);
    let text = match fits.checked_sub(prompt).map(|room| room / depth.answers.max(1)) {
        Some(room) if room > 0 => {
            format!("limit the answer to {} (\"max_tokens\": {room})", counted(room, "token"))
        }
        // The prompt alone is too long; a shorter answer does not help.
        _ if fits > 0 => format!("keep prompt and answer within {}", counted(fits, "token")),
        _ => return None,
    };
    Some(Hint::new(Advice::Other(text)))
}

/// The refusal of a request that `still` waited, for this reason, at its deadline.
pub(crate) fn deadline(model: Option<&ModelSlot>, still: Option<Reason>, waited: Duration) -> RequestRefusal {
    let name = model.map_or("the model", |model| &*model.name);
    let text = format!("the request waited {:.1} s for {name}", waited.as_secs_f64());
    let reason = Reason::new("deadline", text).fact("model", name).because_all(still);
    let standing = model.and_then(|model| model.record.standing_failure());
    refusal(RequestRefusalKind::Deadline, Some(SOON), reason.because_all(standing))
}

//! The words of every refusal.

use std::time::Duration;

use super::effect::{Refusal, RefusalKind, State};
use super::model::{Model, Seeking};
use super::retry::Record;
use crate::explain::Reason;
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
        (State::Ready, _) => "it is busy with as many requests as it takes at once",
        (State::Draining | State::Stopping, _) => "it is being stopped, and starts again after that",
        (State::Unloaded | State::Failed, _) => "it is not loaded",
    };
    let mut reason = Reason::new("still", text);
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

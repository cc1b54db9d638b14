//! `plimsoll reclaim --card`: asks the processes that hold idle memory on a card to release it.

use std::fmt::Write as _;
use std::process::ExitCode;

use plimsoll_base::find_card;
use plimsoll_reclaim::{CardOutcome, CardRequest, reclaim_on};
use plimsoll_wire::options::Uuid;
use serde_json::{Value, json};

use super::{Arguments, json, text};
use crate::report::{ErrorReport, print_as, status};

pub(super) fn run(arguments: &Arguments, card: &str) -> Result<ExitCode, ErrorReport> {
    let request = request(arguments, card).map_err(ErrorReport::input)?;
    let outcome = reclaim_on(&request);
    print_as(arguments.json.as_deref(), &answer(&request, &outcome), || reported(&request, &outcome))?;
    // A dry run succeeds if the idle memory would suffice, so scripts can test before they ask.
    let is_met = outcome.short(&request).is_zero() || request.dry_run && outcome.is_reachable(&request);
    Ok(status(is_met))
}

fn request(arguments: &Arguments, name: &str) -> Result<CardRequest, ErrorReport> {
    let machine = plimsoll_cards::look();
    let names = machine.names();
    let number = find_card(name, &names)?;
    let card = machine.numbered(number);
    let (Some(card), Some(uuid)) = (card, names[number].of_guard().as_deref().and_then(Uuid::read)) else {
        return Err(ErrorReport::new(format!(
            "the free memory of the {} is unknown; `plimsoll doctor` shows why",
            names[number].name
        )));
    };
    Ok(CardRequest {
        card,
        uuid,
        need: arguments.need.unwrap_or_default(),
        patience: arguments.patience(),
        dry_run: arguments.dry_run,
    })
}

fn verdict(request: &CardRequest, outcome: &CardOutcome) -> &'static str {
    match (outcome.short(request).is_zero(), request.dry_run) {
        (true, _) => "enough",
        (false, true) if outcome.is_reachable(request) => "reachable",
        (false, _) => "beyond",
    }
}

fn answer(request: &CardRequest, outcome: &CardOutcome) -> Value {
    json!({
        "schema": "plimsoll.reclaim/1",
        "card": request.uuid.to_string(),
        "need": request.need,
        "dry_run": request.dry_run,
        "verdict": verdict(request, outcome),
        "short": outcome.short(request),
        "before": { "free": outcome.before },
        "asked": outcome.requested.iter().map(json::requested).collect::<Vec<_>>(),
        "idle_under_guard": outcome.neighbours.iter().map(json::neighbour).collect::<Vec<_>>(),
        // Read again from the driver: a neighbour may take what another one gave back.
        "after": { "free": outcome.after },
    })
}

fn reported(request: &CardRequest, outcome: &CardOutcome) -> String {
    let mut text =
        format!("need    {} on {}\nbefore  {} free\n", request.need, request.card.name, outcome.before);
    for neighbour in &outcome.neighbours {
        text += &text::holds(neighbour);
    }
    for requested in &outcome.requested {
        text += &text::requested(requested);
    }
    if !outcome.requested.is_empty() {
        let _ = writeln!(text, "after   {} free", outcome.after);
    }
    let short = outcome.short(request);
    text += &match verdict(request, outcome) {
        "enough" if outcome.requested.is_empty() => "enough memory is free: nothing to do\n".to_owned(),
        "enough" => "enough\n".to_owned(),
        "reachable" => "not enough now; the idle memory of guarded programs is enough, and they can be \
            asked to release it\n"
            .to_owned(),
        // Only guard can release another process's pool; a process without it can only be ended.
        _ if outcome.requested.is_empty() && outcome.neighbours.is_empty() => {
            format!(
                "not enough: {short} more are needed, and no process on the card runs under guard, so \
                none can be asked to release memory\n"
            )
        }
        _ => format!("not enough: {short} are still missing\n"),
    };
    text
}

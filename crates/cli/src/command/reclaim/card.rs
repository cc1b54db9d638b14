//! `plimsoll reclaim --card`: release of idle memory on a card by the processes that hold it.

use std::fmt::Write as _;
use std::process::ExitCode;

use plimsoll_reclaim::{CardOutcome, CardRequest, reclaim_on};
use plimsoll_wire::options::Uuid;
use serde_json::{Value, json};

use super::{Arguments, json, text};
use crate::command::run::cards::{CardError, find};
use crate::report::{ErrorReport, print_as, status};

pub(super) fn run(arguments: &Arguments, card: &str) -> Result<ExitCode, ErrorReport> {
    let wish = wish(arguments, card).map_err(ErrorReport::input)?;
    let outcome = reclaim_on(&wish);
    print_as(arguments.json.as_deref(), &answer(&wish, &outcome), || told(&wish, &outcome))?;
    // A dry run succeeds if the idle memory would suffice, so scripts can test before they ask.
    let is_met = outcome.short(&wish).is_zero() || wish.dry_run && outcome.is_reachable(&wish);
    Ok(status(is_met))
}

fn wish(arguments: &Arguments, name: &str) -> Result<CardRequest, ErrorReport> {
    let machine = plimsoll_cards::look();
    let uuid = find(name, &machine.cards)?;
    let mut cards = machine.cards.into_iter();
    let card = cards.find(|card| card.uuid.as_ref() == Some(&uuid));
    // `find` accepts a UUID where the driver shows no card; but then the free memory is not known.
    let (Some(card), Some(uuid)) = (card, Uuid::read(&uuid)) else {
        let card = name.to_owned();
        return Err(CardError::NoCards { card }.into());
    };
    Ok(CardRequest {
        card,
        uuid,
        need: arguments.need.unwrap_or_default(),
        patience: arguments.patience(),
        dry_run: arguments.dry_run,
    })
}

fn verdict(wish: &CardRequest, outcome: &CardOutcome) -> &'static str {
    match (outcome.short(wish).is_zero(), wish.dry_run) {
        (true, _) => "enough",
        (false, true) if outcome.is_reachable(wish) => "reachable",
        (false, _) => "beyond",
    }
}

fn answer(wish: &CardRequest, outcome: &CardOutcome) -> Value {
    json!({
        "schema": "plimsoll.reclaim/1",
        "card": wish.uuid.to_string(),
        "need": wish.need,
        "dry_run": wish.dry_run,
        "verdict": verdict(wish, outcome),
        "short": outcome.short(wish),
        "before": { "free": outcome.before },
        "asked": outcome.asked.iter().map(json::asked).collect::<Vec<_>>(),
        "idle_under_guard": outcome.neighbours.iter().map(json::neighbour).collect::<Vec<_>>(),
        // Read again from the driver: a neighbour may take what another one gave back.
        "after": { "free": outcome.after },
    })
}

fn told(wish: &CardRequest, outcome: &CardOutcome) -> String {
    let mut text = format!("need    {} on {}\nbefore  {} free\n", wish.need, wish.card.name, outcome.before);
    for neighbour in &outcome.neighbours {
        text += &text::holds(neighbour);
    }
    for asked in &outcome.asked {
        text += &text::asked(asked);
    }
    if !outcome.asked.is_empty() {
        let _ = writeln!(text, "after   {} free", outcome.after);
    }
    let short = outcome.short(wish);
    text += &match verdict(wish, outcome) {
        "enough" if outcome.asked.is_empty() => "enough memory is free: nothing to do\n".to_owned(),
        "enough" => "enough\n".to_owned(),
        "reachable" => "not enough now; the idle memory of guarded programs is enough, and they can be \
            asked to release it\n"
            .to_owned(),
        // Only guard can release another process's pool; a process without it can only be ended.
        _ if outcome.asked.is_empty() && outcome.neighbours.is_empty() => {
            format!(
                "not enough: {short} more are needed, and no process on the card runs under guard, so \
                none can be asked to release memory\n"
            )
        }
        _ => format!("not enough: {short} short\n"),
    };
    text
}

//! Writes the machine's cards in the report of `plimsoll doctor`, as text and as JSON.

use plimsoll_base::{Card, Reason};
use plimsoll_cards::{Board, KernelCard, Machine, RoomLimit};
use serde_json::{Value, json};

/// One sentence for each card, and what is unknown or missing. `has_chip` is true for a machine whose GPU is
/// part of its processor, and in no list of cards.
pub(super) fn reasons(machine: &Machine, has_chip: bool) -> Vec<Reason> {
    let of_library = machine.cards.iter().map(library_card);
    let cards = of_library.chain(machine.kernel_cards.iter().map(kernel_card));
    let mut seen: Vec<Reason> = cards
        .enumerate()
        .map(|(number, (text, reason))| Reason { text: format!("card {number}: {text}"), ..reason })
        .collect();
    let has_card = has_chip || !seen.is_empty();
    if machine.unified {
        seen.push(Reason::new("unified", "the cards share the host's memory"));
    }
    seen.extend(machine.notes.iter().map(|note| Reason::new("note", note.clone())));
    if !has_card {
        seen.push(Reason::new("no_card", "no GPU is visible"));
    }
    seen
}

fn library_card(card: &Card) -> (String, Reason) {
    let text = format!("{}, {} of {} free", card.name, card.free, card.total);
    (text, Reason::new("card", "").fact("free", card.free).fact("total", card.total))
}

fn kernel_card(card: &KernelCard) -> (String, Reason) {
    let mut reason = Reason::new("card", "");
    let mut text = match (card.free, card.total) {
        (Some(free), Some(total)) => format!("{}, {free} of {total} free", card.name),
        (None, Some(total)) => format!("{}, an unknown part of {total} free", card.name),
        (Some(free), None) => format!("{}, {free} free", card.name),
        (None, None) => format!("{}, memory unknown", card.name),
    };
    if let Some(limit) = card.limit.filter(|limit| *limit != RoomLimit::Vram) {
        text += &format!(", limited by {limit}");
    }
    if card.board == Some(Board::Shared) {
        text += "; it shares the host's memory";
    }
    for (name, bytes) in [("free", card.free), ("total", card.total), ("used", card.used)] {
        if let Some(bytes) = bytes {
            reason = reason.fact(name, bytes);
        }
    }
    let notes = card.notes.iter().map(|note| Reason::new("note", note.clone()));
    (text, reason.because_all(notes))
}

/// All cards in one form, sizes in bytes; what is unknown is null.
pub(super) fn in_json(machine: &Machine) -> Vec<Value> {
    let of_library = machine.cards.iter().map(|card| {
        json!({
            "id": card.id, "name": card.name, "uuid": card.uuid, "driver": "nvidia",
            "board": if card.shares_host { Board::Shared } else { Board::Own },
            "total": card.total, "used": card.total.saturating_sub(card.free), "free": card.free,
        })
    });
    of_library.chain(machine.kernel_cards.iter().map(|card| json!(card))).collect()
}

//! Finds this machine's cards on which `serve` would place a model of the installed engine.

use plimsoll_base::Card;
use plimsoll_cards::Machine;
use plimsoll_engine::program;

/// Those of one maker.
pub(in crate::command) fn served(machine: &Machine) -> Vec<Card> {
    if machine.kernel_cards.is_empty() {
        return machine.cards.clone();
    }
    let engine = program::usual_backends(None);
    let mut cards = machine.placeable(&engine);
    cards.retain(|card| engine.can_use(card.maker) != Some(false));
    let first = cards.first().map(|card| card.maker);
    cards.retain(|card| Some(card.maker) == first);
    cards
}

//! Reclaim on one card, of any memory type: only neighbours under guard are asked.

use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardId};

use plimsoll_wire::options::Uuid;

use super::neighbours::{Asked, Neighbour, ask, neighbours};

/// Request for free memory on a card.
#[derive(Debug)]
pub struct CardWish {
    pub card: Card,
    /// UUID of the card on the neighbours' pages.
    pub uuid: Uuid,
    pub need: Bytes,
    pub patience: Duration,
    pub dry_run: bool,
}

#[derive(Debug)]
pub struct CardOutcome {
    pub before: Bytes,
    /// Neighbours that could be asked, if none was.
    pub neighbours: Vec<Neighbour>,
    pub asked: Vec<Asked>,
    pub after: Bytes,
}

impl CardOutcome {
    /// By how much the need is missed.
    pub fn short(&self, wish: &CardWish) -> Bytes {
        wish.need.saturating_sub(self.after)
    }

    /// Returns true if the idle memory of all neighbours would be enough.
    pub fn is_reachable(&self, wish: &CardWish) -> bool {
        let idle: Bytes = self.neighbours.iter().map(|neighbour| neighbour.held.idle).sum();
        self.short(wish) <= idle
    }
}

/// Asks every neighbour on the card if too little is free; with `dry_run` only lists them.
pub fn reclaim_on(wish: &CardWish) -> CardOutcome {
    let before = wish.card.free;
    let neighbours = neighbours(&[wish.uuid]);
    if wish.dry_run || before >= wish.need {
        return CardOutcome {
            before,
            neighbours,
            asked: Vec::new(),
            after: before,
        };
    }
    let asked = ask(neighbours, &[wish.uuid], wish.patience);
    CardOutcome {
        before,
        neighbours: Vec::new(),
        asked,
        after: free(&wish.card.id).unwrap_or(before),
    }
}

fn free(card: &CardId) -> Option<Bytes> {
    let reading = plimsoll_probe::read();
    let found = reading.free.into_iter().find(|(id, _)| id == card);
    found.map(|(_, free)| free)
}

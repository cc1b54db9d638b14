//! Makes room on one card, whether or not its memory is the host's: asks the neighbours that run under guard, and nobody else.

use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardId};

use plimsoll_wire::options::Uuid;

use super::neighbours::{Asked, Neighbour, ask, neighbours};

/// What is wanted of a card.
#[derive(Debug)]
pub struct CardWish {
    pub card: Card,
    /// The card on the pages of those who are asked.
    pub uuid: Uuid,
    pub need: Bytes,
    pub patience: Duration,
    pub dry_run: bool,
}

#[derive(Debug)]
pub struct CardOutcome {
    pub before: Bytes,
    /// Who could be asked, where nobody was.
    pub neighbours: Vec<Neighbour>,
    pub asked: Vec<Asked>,
    pub after: Bytes,
}

impl CardOutcome {
    /// By how much the need is missed.
    pub fn short(&self, wish: &CardWish) -> Bytes {
        wish.need.saturating_sub(self.after)
    }

    /// Whether what is known to lie idle would be enough.
    pub fn is_reachable(&self, wish: &CardWish) -> bool {
        let idle: Bytes = self.neighbours.iter().map(|neighbour| neighbour.held.idle).sum();
        self.short(wish) <= idle
    }
}

/// Asks everybody who holds something of the card, if there is not enough free; with `dry_run` only says who that is.
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

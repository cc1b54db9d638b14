//! Asks the processes under guard (the preloaded library) to release their idle memory on one card.

use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardId};

use plimsoll_wire::options::Uuid;

use super::neighbours::{Neighbour, RequestedNeighbour, ask, neighbours};

/// A request for free memory on a card.
#[derive(Debug)]
pub struct CardRequest {
    pub card: Card,
    /// The card's UUID, as guard pages name it.
    pub uuid: Uuid,
    pub need: Bytes,
    pub patience: Duration,
    pub dry_run: bool,
}

#[derive(Debug)]
pub struct CardOutcome {
    pub before: Bytes,
    /// Guarded processes that could be asked, where none was.
    pub neighbours: Vec<Neighbour>,
    pub requested: Vec<RequestedNeighbour>,
    pub after: Bytes,
}

impl CardOutcome {
    /// Bytes still missing after the attempt.
    pub fn short(&self, request: &CardRequest) -> Bytes {
        request.need.saturating_sub(self.after)
    }

    /// True if the memory known to be idle covers the shortfall.
    pub fn is_reachable(&self, request: &CardRequest) -> bool {
        let idle: Bytes = self.neighbours.iter().map(|neighbour| neighbour.occupied.idle).sum();
        self.short(request) <= idle
    }
}

/// Asks every guarded process on the card to release idle memory, if too little is free. With `dry_run` only
/// lists the processes.
pub fn reclaim_on(request: &CardRequest) -> CardOutcome {
    let before = request.card.free;
    let neighbours = neighbours(&[request.uuid]);
    if request.dry_run || before >= request.need {
        return CardOutcome { before, neighbours, requested: Vec::new(), after: before };
    }
    let requested = ask(neighbours, &[request.uuid], request.patience);
    CardOutcome {
        before,
        neighbours: Vec::new(),
        requested,
        // Measured again: other processes may have allocated meanwhile, so the sum of the answers can be
        // wrong.
        after: free(&request.card.id).unwrap_or(before),
    }
}

fn free(card: &CardId) -> Option<Bytes> {
    let reading = plimsoll_cards::read();
    let found = reading.free.into_iter().find(|(id, _)| id == card);
    found.map(|(_, free)| free)
}

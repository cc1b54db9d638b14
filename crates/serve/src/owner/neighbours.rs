//! Asks neighbours under guard for what they hold idle, before the scheduler has anybody go.
//!
//! DECISION: asked are programs of this user under guard, ours or not, that hold something idle on the cards we serve, but not our
//! engines without a request: they call nothing of their driver, so they could not answer before they go, and would have to map it
//! all again for their next request. The pages are read and waited for on another thread.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_reclaim::{Asked, ask, neighbours};
use plimsoll_scheduler::{Event, ModelId};
use plimsoll_wire::options::Uuid;
use tokio::task::spawn_blocking;

use super::{Owner, memory};

/// Answers the scheduler's AskNeighbours.
pub(super) async fn ask_around(owner: Rc<Owner>, model: ModelId) {
    let (cards, resting) = (owner.uuids(), owner.resting());
    let patience = owner.terms.ask;
    let asked = spawn_blocking(move || ask_all(&cards, &resting, patience)).await;
    let gave: Vec<Asked> = asked
        .into_iter()
        .flatten()
        .filter(|asked| !asked.gave.is_zero())
        .collect();
    if !gave.is_empty() {
        owner.tell_neighbours(model, &gave);
        memory::look(&owner).await;
    }
    owner.submit(Event::NeighboursAsked { model });
}

fn ask_all(cards: &[Uuid], resting: &[PathBuf], patience: Duration) -> Vec<Asked> {
    if cards.is_empty() {
        return Vec::new();
    }
    let mut found = neighbours(cards);
    found.retain(|neighbour| {
        let rests = resting.iter().any(|pages| neighbour.is_in(pages));
        !rests && !neighbour.held.idle.is_zero()
    });
    ask(found, cards, patience)
}

impl Owner {
    /// The cards that are served from, as pages name them; none where they are only described.
    fn uuids(&self) -> Vec<Uuid> {
        let cards = self.terms.cards();
        cards
            .filter_map(|card| Uuid::read(card.uuid.as_deref()?))
            .collect()
    }

    /// Where the pages of engines without a request lie.
    pub(super) fn resting(&self) -> Vec<PathBuf> {
        let state = self.state.borrow();
        let resting = state.scheduler.idle_runs().into_iter();
        let guarded = resting.filter_map(|run| state.runs.get(&run)?.guarded());
        guarded.map(|guarded| guarded.pages().to_owned()).collect()
    }

    fn tell_neighbours(&self, model: ModelId, gave: &[Asked]) {
        let name = &self.entry(model).name;
        let each = gave.iter().map(|asked| {
            let who = asked.neighbour.name.as_deref().unwrap_or("a process");
            format!("{who} (pid {}) {}", asked.neighbour.pid, asked.gave)
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let all: Bytes = gave.iter().map(|asked| asked.gave).sum();
        tracing::info!("asked for {name}: neighbours under guard gave back {all} that lay idle: {each}");
        self.events.neighbours_gave(name, all);
    }
}

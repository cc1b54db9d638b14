//! Asks idle engines and other processes under guard (the preloaded library) to free memory, before a model
//! is stopped.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, Card};
use plimsoll_reclaim::{RequestedNeighbour, ask, neighbours};
use plimsoll_scheduler::{ModelId, SchedulerEffect, SchedulerEvent};
use plimsoll_wire::options::Uuid;

use super::guard::GuardHandler;
use plimsoll_route::ModelService;
use plimsoll_runtime::{Extension, Runtime, free_idle};
use plimsoll_task::{spawn_blocking, spawn_local};

#[derive(Debug)]
pub(super) struct Neighbours {
    guard: Rc<GuardHandler>,
    patience: Duration,
}

impl Neighbours {
    pub(super) fn new(guard: Rc<GuardHandler>, patience: Duration) -> Self {
        Self { guard, patience }
    }
}

impl Extension for Neighbours {
    fn on_effect(&self, runtime: &Rc<Runtime>, effect: &SchedulerEffect) {
        if let SchedulerEffect::AskNeighbours { model } = effect {
            // Without the library no process is guarded, so none could answer.
            let idle = self.guard.is_available().then(|| self.guard.idle_pages(runtime));
            spawn_local(ask_around(Rc::clone(runtime), *model, idle, self.patience));
        }
    }
}

async fn ask_around(runtime: Rc<Runtime>, model: ModelId, idle: Option<Vec<PathBuf>>, patience: Duration) {
    free_idle(&runtime).await;
    if let Some(idle) = idle {
        ask_guarded(&runtime, model, idle, patience).await;
    }
    runtime.submit(SchedulerEvent::NeighboursRequested { model });
}

async fn ask_guarded(runtime: &Rc<Runtime>, model: ModelId, idle: Vec<PathBuf>, patience: Duration) {
    // DECISION: every guarded process of this user that holds idle memory on a served card gets the request.
    // The daemon's own idle engines are left out, because they make no driver call and could not answer in
    // time.

    // Pages name cards by an identity, which cards that are only described do not have.
    let cards: Vec<Uuid> = runtime.settings.cards().filter_map(Card::identity).collect();
    let requested = spawn_blocking(move || ask_all(&cards, &idle, patience)).await;
    let mut gave: Vec<RequestedNeighbour> = requested.into_iter().flatten().collect();
    gave.retain(|requested| !requested.gave.is_zero());
    if !gave.is_empty() {
        report(runtime, model, &gave);
        // The scheduler decides on the answer, so it needs the new figures first.
        runtime.read_cards().await;
    }
}

fn ask_all(cards: &[Uuid], idle: &[PathBuf], patience: Duration) -> Vec<RequestedNeighbour> {
    // Without a UUID no page can be matched to a card.
    if cards.is_empty() {
        return Vec::new();
    }
    let mut found = neighbours(cards);
    found.retain(|neighbour| {
        let is_ours_and_idle = idle.iter().any(|pages| neighbour.is_in(pages));
        !is_ours_and_idle && !neighbour.occupied.idle.is_zero()
    });
    ask(found, cards, patience)
}

fn report(runtime: &Runtime, model: ModelId, gave: &[RequestedNeighbour]) {
    let name = &runtime.state.entry(model).name;
    let each = gave.iter().map(|requested| {
        let process = requested.neighbour.name.as_deref().unwrap_or("a process");
        format!("{process} (pid {}) {}", requested.neighbour.pid, requested.gave)
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let all: Bytes = gave.iter().map(|requested| requested.gave).sum();
    tracing::info!("to make room for {name}, guarded processes released {all} of idle memory: {each}");
    runtime.events().neighbours_gave(name, all);
}

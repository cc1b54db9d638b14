//! Keeps card memory free of models, so that other programs can use it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use http::StatusCode;
use plimsoll_base::{Bytes, Card, CardId, CardKind};
use plimsoll_cards::Reading;
use plimsoll_process::reading;
use plimsoll_scheduler::SchedulerEvent;

use super::memory::group_of;
use super::{RuntimeSettings, SchedulerState};
use plimsoll_route::HttpProblem;

/// The kernel keeps so many bytes of a process's name (`TASK_COMM_LEN` less its end).
const LONGEST_NAME: usize = 15;

/// Processes with precedence on each card, at the last reading.
#[derive(Debug, Default)]
pub(super) struct PrecedingPrograms(RefCell<HashSet<(CardId, u32)>>);

impl PrecedingPrograms {
    /// Takes a reading, and returns the programs of these names that have begun to use a card since the last
    /// one. `engines` are the process groups of our own.
    pub(super) fn newly_on<'a>(
        &self,
        reading: &Reading,
        names: &'a [String],
        engines: impl FnOnce() -> Vec<u32>,
    ) -> Vec<(CardId, u32, &'a String)> {
        if names.is_empty() {
            return Vec::new();
        }
        let engines = engines();
        let foreign = reading
            .holders
            .iter()
            .filter(|holder| !group_of(holder).is_some_and(|group| engines.contains(&group)));
        let mut present: Vec<(CardId, u32, &String)> = foreign
            .filter_map(|holder| {
                let called = |name: &&String| is_called(holder.pid, holder.name.as_deref(), name);
                Some((holder.card.clone(), holder.pid, names.iter().find(called)?))
            })
            .collect();
        let before = self.0.replace(present.iter().map(|(card, pid, _)| (card.clone(), *pid)).collect());
        present.retain(|(card, pid, _)| !before.contains(&(card.clone(), *pid)));
        present
    }
}

impl SchedulerState {
    /// The events by which memory of a card is kept free, or that ends with no bytes.
    pub(super) fn yields(
        &self,
        card: Option<&str>,
        bytes: Bytes,
        time: Duration,
    ) -> Result<Vec<SchedulerEvent>, HttpProblem> {
        let chosen = self.settings.yielding_cards(card, bytes)?;
        let until = self.now() + time;
        let is_kept = |card: &&Card| {
            let scheduler = self.scheduler.borrow();
            scheduler.ledger().account(&card.id).is_some_and(|account| account.kept().is_some())
        };
        let concerned = chosen.into_iter().filter(|card| !bytes.is_zero() || is_kept(card));
        let logged = concerned.map(|card| {
            let label = self.settings.label(&card.id);
            match (bytes, time) {
                (Bytes::ZERO, _) => {
                    tracing::info!("the yield on {label} ends: models may use its memory again")
                }
                (_, Duration::MAX) => tracing::info!("keep {bytes} of {label} free"),
                (_, time) => tracing::info!("keep {bytes} of {label} free for {} s", time.as_secs()),
            }
            SchedulerEvent::YieldWanted { card: card.id.clone(), bytes, until }
        });
        Ok(logged.collect())
    }
}

impl RuntimeSettings {
    /// The cards that an order to keep so much free is about.
    pub(super) fn yielding_cards(&self, card: Option<&str>, bytes: Bytes) -> Result<Vec<&Card>, HttpProblem> {
        // The host's memory beside cards has to be named.
        let (gpus, host): (Vec<&Card>, Vec<&Card>) =
            self.cards().partition(|card| card.kind != CardKind::Host);
        let only = gpus.first().or(host.first()).copied().filter(|_| gpus.len() < 2);
        let cards: Vec<&Card> = self.cards().collect();
        let names = || cards.iter().map(|card| card.id.as_str()).collect::<Vec<_>>().join(", ");
        let chosen: Vec<&Card> = match card {
            Some(name) => cards.iter().filter(|card| card.answers_to(name)).copied().collect(),
            None if bytes.is_zero() => cards.clone(),
            None if let Some(only) = only => vec![only],
            None => {
                let message = format!("several cards are served; name one of {}", names());
                return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "card_missing", message));
            }
        };
        if chosen.is_empty() {
            let message = format!("there is no such card; name one of {}", names());
            return Err(HttpProblem::new(StatusCode::NOT_FOUND, "card_not_found", message));
        }
        // Two cards may share a name.
        if chosen.len() > 1 && !bytes.is_zero() {
            let message = format!("several cards have this name; name one of {}", names());
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "card_missing", message));
        }
        if let Some(card) = chosen.iter().find(|card| bytes > card.total) {
            let message = format!(
                "{} has {} of memory, which is less than the {bytes} to keep free",
                card.name, card.total
            );
            return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "bad_yield", message));
        }
        Ok(chosen)
    }
}

/// True if the process has this name, or if its program or script lies in a folder of this name, as
/// `ComfyUI/main.py` does, which is Python's.
fn is_called(pid: u32, known: Option<&str>, name: &str) -> bool {
    let short = |name: &str| name.chars().take(LONGEST_NAME).collect::<String>().to_lowercase();
    if known.is_some_and(|known| short(known) == short(name)) {
        return true;
    }
    let program = reading::command_line(pid).into_iter().take(2);
    program.into_iter().any(|word| word.split('/').any(|part| part.eq_ignore_ascii_case(name)))
}

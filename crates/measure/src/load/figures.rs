//! Measures the memory of the server and the cards between rounds of requests.

use plimsoll_base::{Bytes, Card, CardKind};
use plimsoll_cards::{Reading, Sampler};
use plimsoll_process::reading::{MeasuredProcess, ProcessGauge};

use super::server::LoadTarget;

/// Name of the host memory figure.
pub(super) const PROCESS: &str = "host memory of the engine";

/// Suffix of a card figure that covers the server's own memory only.
const OWN: &str = "the server";

/// True if the figure is the server's own memory on a card.
pub fn is_own(name: &str) -> bool {
    name.starts_with("card ") && name.ends_with(OWN)
}

/// Meter of one server's memory.
#[derive(Debug)]
pub struct Figures {
    sampler: Sampler,
    cards: Vec<Card>,
    process: Option<(MeasuredProcess, ProcessGauge)>,
}

impl Figures {
    pub async fn new(sampler: Sampler) -> Self {
        let machine = sampler.machine().await;
        let cards = machine.map_or_else(Vec::new, |machine| machine.gpus());
        Self {
            sampler,
            cards: cards
                .into_iter()
                // The host is measured as the process is.
                .filter(|card| card.kind == CardKind::Cuda)
                .collect(),
            process: None,
        }
    }

    pub fn process(&self) -> Option<MeasuredProcess> {
        self.process.map(|(process, _)| process)
    }

    /// Finds the server's process again if it is unknown or has ended. Returns true if there is another one;
    /// one that is gone keeps its readings.
    pub async fn follow(&mut self, server: &LoadTarget) -> bool {
        if self.process.is_some_and(|(process, _)| process.lives()) {
            return false;
        }
        let Some(process) = server.process().await else { return false };
        let before = self.process.replace((process, process.gauge()));
        before.is_none_or(|(before, _)| before != process)
    }

    /// One measurement: the memory of each figure, by its name.
    pub async fn look(&self, server: &LoadTarget) -> Vec<(String, Bytes)> {
        let occupied = self.process.and_then(|(process, gauge)| process.occupied(gauge));
        let mut look: Vec<_> = occupied.map(|occupied| (PROCESS.to_owned(), occupied)).into_iter().collect();
        // The cards of this machine say nothing about a server on another one.
        if !self.cards.is_empty() && server.target.is_here() {
            look.extend(self.on_cards(&self.sampler.read().await));
        }
        look
    }

    /// The server's memory on each card. Where the driver does not list processes, all memory in use.
    fn on_cards(&self, reading: &Reading) -> Vec<(String, Bytes)> {
        // The whole tree: an engine may do its work in a child process.
        let tree = self.process.map_or_else(Vec::new, |(process, _)| process.tree());
        let own = reading.holders.iter().filter(|holder| tree.contains(&holder.pid));
        let own: Vec<_> = own.filter_map(|holder| Some((&holder.card, holder.used?))).collect();
        let occupied = |card: &Card| {
            let parts = own.iter().filter(|(id, _)| **id == card.id);
            let sum: Bytes = parts.map(|(_, used)| *used).sum();
            // In a container without the host's pids NVML lists no process of ours, so the card's total is
            // followed.
            if own.is_empty() {
                return Some(("all programs", card.total.saturating_sub(reading.free_on(&card.id)?)));
            }
            // The driver lists the server on some card, so a card without it holds nothing of the server's.
            (!sum.is_zero()).then_some((OWN, sum))
        };
        let figures = self.cards.iter().enumerate();
        figures
            .filter_map(|(number, card)| {
                occupied(card)
                    .map(|(whose, occupied)| (format!("{}, {whose}", named(number, card)), occupied))
            })
            .collect()
    }
}

fn named(number: usize, card: &Card) -> String {
    format!("card {number} {}", card.name)
}

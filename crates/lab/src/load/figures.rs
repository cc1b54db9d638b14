//! Memory of the server and of its cards between rounds, and sensors of the cards during them.

use plimsoll_base::{Bytes, Card, CardKind};
use plimsoll_probe::process::{Gauge, Process};
use plimsoll_probe::{Reading, Sampler, Sensors};

use super::server::Server;

/// The name of the figure of host memory.
pub(super) const PROCESS: &str = "host memory of the server";

/// Suffix of a figure of the server's own memory on a card.
const OWN: &str = "the server";

/// Is this figure what the server itself has of a card?
pub fn is_own(name: &str) -> bool {
    name.starts_with("card ") && name.ends_with(OWN)
}

/// Looks at one server.
#[derive(Debug)]
pub struct Figures {
    sampler: Sampler,
    cards: Vec<Card>,
    process: Option<(Process, Gauge)>,
}

/// One look.
#[derive(Clone, Debug, Default)]
pub struct MemorySample {
    pub held: Vec<(String, Bytes)>,
}

impl Figures {
    pub async fn new(sampler: Sampler) -> Self {
        let machine = sampler.machine().await;
        let cards = machine.map_or_else(Vec::new, |machine| machine.cards);
        Self {
            sampler,
            cards: cards
                .into_iter()
                .filter(|card| card.kind == CardKind::Cuda)
                .collect(),
            process: None,
        }
    }

    pub fn process(&self) -> Option<Process> {
        self.process.map(|(process, _)| process)
    }

    /// Finds the server's process again if there is none yet or it is gone; says whether it is another one
    /// now.
    pub async fn follow(&mut self, server: &Server) -> bool {
        if self.process.is_some_and(|(process, _)| process.lives()) {
            return false;
        }
        let before = self.process();
        self.process = server.process().await.map(|process| (process, process.gauge()));
        self.process() != before
    }

    pub async fn look(&self, server: &Server) -> MemorySample {
        let mut look = MemorySample::default();
        let held = self.process.and_then(|(process, gauge)| process.held(gauge));
        look.held.extend(held.map(|held| (PROCESS.to_owned(), held)));
        if !self.cards.is_empty() && server.target.is_here() {
            look.held.extend(self.on_cards(&self.sampler.read().await));
        }
        look
    }

    /// Reads temperature, clock and power of each card, by name.
    pub async fn feel(&self, server: &Server) -> Vec<(String, Sensors)> {
        if self.cards.is_empty() || !server.target.is_here() {
            return Vec::new();
        }
        let sensors = self.sampler.sensors().await.into_iter();
        sensors
            .filter_map(|sensors| {
                let number = self.cards.iter().position(|card| card.id == sensors.card)?;
                Some((named(number, &self.cards[number]), sensors))
            })
            .collect()
    }

    /// Returns the memory in use on all cards together; `None` where no card is visible.
    pub async fn taken(&self) -> Option<Bytes> {
        if self.cards.is_empty() {
            return None;
        }
        let reading = self.sampler.read().await;
        let taken = |card: &Card| Some(card.total.saturating_sub(reading.free_on(&card.id)?));
        Some(self.cards.iter().filter_map(taken).sum())
    }

    /// Memory of the server's processes on each card; where the driver names none, all memory in use on it.
    fn on_cards(&self, reading: &Reading) -> Vec<(String, Bytes)> {
        let tree = self.process.map_or_else(Vec::new, |(process, _)| process.tree());
        let own = reading.holders.iter().filter(|holder| tree.contains(&holder.pid));
        let own: Vec<_> = own
            .filter_map(|holder| Some((&holder.card, holder.used?)))
            .collect();
        let held = |card: &Card| {
            let parts = own.iter().filter(|(id, _)| **id == card.id);
            let sum: Bytes = parts.map(|(_, used)| *used).sum();
            // In a container the driver numbers processes of the host, so none of ours is found in its list.
            match own.is_empty() {
                true => Some((
                    "all programs",
                    card.total.saturating_sub(reading.free_on(&card.id)?),
                )),
                false => (!sum.is_zero()).then_some((OWN, sum)),
            }
        };
        let figures = self.cards.iter().enumerate();
        figures
            .filter_map(|(number, card)| {
                held(card).map(|(whose, held)| (format!("{}, {whose}", named(number, card)), held))
            })
            .collect()
    }
}

fn named(number: usize, card: &Card) -> String {
    format!("card {number} {}", card.name)
}

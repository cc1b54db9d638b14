//! Collects one sample for a memory recording: cards, machine, processes, guard's figures and kernel log.

use std::path::PathBuf;

use plimsoll_base::{Card, CardKind};
use plimsoll_cards::{Reading, Sampler};
use plimsoll_process::reading;

use super::guards::Guards;
use super::kernel_log::KernelLog;
use super::machine::WatchedMachine;
use super::processes::Processes;
use crate::record::{Figure, Group, Look, Pace, Source, Unit};

/// Object of a recording: a process or the machine.
#[derive(Clone, Debug, Default)]
pub struct WatchTarget {
    /// Root of a process tree; without one, the largest processes of the machine are followed.
    pub root: Option<u32>,
    /// Folder of guard pages; without it, all folders of this user.
    pub pages: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Collector {
    machine: WatchedMachine,
    processes: Processes,
    guards: Guards,
    kernel_log: Option<KernelLog>,
    sampler: Sampler,
    cards: Vec<Card>,
}

impl Collector {
    /// Opens all sources. Sources that cannot be read are reported in `notes`.
    pub async fn open(subject: WatchTarget, sampler: Sampler, notes: &mut Vec<String>) -> Self {
        let seen = sampler.machine().await;
        let cards = seen.map_or_else(Vec::new, |machine| {
            let cards = machine.gpus();
            notes.extend(machine.notes);
            cards
        });
        let kernel_log = KernelLog::open();
        // /dev/kmsg is closed to users where kernel.dmesg_restrict is 1, the default of many distributions.
        if let Err(error) = &kernel_log {
            notes.push(format!("the kernel's log (/dev/kmsg) cannot be read: {error}"));
        }
        Self {
            machine: WatchedMachine::open(),
            processes: Processes::new(subject.root),
            guards: Guards::new(subject.pages),
            kernel_log: kernel_log.ok(),
            sampler,
            cards: cards.into_iter().filter(|card| card.kind == CardKind::Cuda).collect(),
        }
    }

    pub fn cards(&self) -> &[Card] {
        &self.cards
    }

    pub async fn look(&mut self) -> (Look, Vec<(Source, String)>) {
        let mut look = Look::default();
        // The cards first: their answer takes longest, and the other figures should be close to each other.
        self.look_at_cards(&mut look).await;
        self.machine.look(&mut look);
        self.processes.look(&mut look);
        let refused = self.guards.look(&mut look);
        let mut stated: Vec<(Source, String)> =
            refused.into_iter().map(|text| (Source::Guard, text)).collect();
        let lines = self.kernel_log.as_mut().map_or_else(Vec::new, KernelLog::lines);
        stated.extend(lines.into_iter().map(|line| (Source::Kernel, line)));
        (look, stated)
    }

    async fn look_at_cards(&mut self, look: &mut Look) {
        if self.cards.is_empty() {
            return;
        }
        let reading = self.sampler.read().await;
        // A process on a card may be too small in host memory to be among the largest.
        self.processes.also(reading.holders.iter().map(|holder| holder.pid));
        self.push_reading(&reading, look);
    }

    fn push_reading(&self, reading: &Reading, look: &mut Look) {
        for (card, number) in self.cards.iter().zip(0_u32..) {
            if let Some(free) = reading.free_on(&card.id) {
                let used = card.total.saturating_sub(free).get() >> 10;
                look.push(Figure::new(Group::Card, Unit::Kib, card.id.as_str(), "used"), Pace::Fast, used);
            }
            // The driver hides the usage of single processes in some containers and under MIG.
            for holder in reading.holders.iter().filter(|holder| holder.card == card.id) {
                let Some(used) = holder.used else { continue };
                let name = holder.name.clone().or_else(|| reading::name(holder.pid)).unwrap_or_default();
                let subject = format!("{} {name}", holder.pid);
                let figure = Figure::new(Group::Process, Unit::Kib, subject, format!("on card {number}"));
                look.push(figure, Pace::Fast, used.get() >> 10);
            }
        }
    }
}

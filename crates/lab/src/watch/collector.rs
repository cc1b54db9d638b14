//! Collector of one sample of a memory recording, from cards, machine, processes, guard and kernel log.

use std::path::PathBuf;

use plimsoll_base::{Card, CardKind};
use plimsoll_probe::{Reading, Sampler, Sensors, process};
use plimsoll_telemetry::record::{Figure, Group, Look, Pace, Source, Unit};

use super::guards::Guards;
use super::kernel_log::KernelLog;
use super::machine::WatchedMachine;
use super::processes::Processes;

/// Sensors are read in one sample out of this many.
const SENSORS_EVERY: u64 = 4;

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
    looks: u64,
}

impl Collector {
    /// Opens all sources. Sources that cannot be read are reported in `notes`.
    pub async fn open(subject: WatchTarget, sampler: Sampler, notes: &mut Vec<String>) -> Self {
        let seen = sampler.machine().await;
        let cards = seen.map_or_else(Vec::new, |machine| {
            notes.extend(machine.notes);
            machine.cards
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
            looks: 0,
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
        let mut said: Vec<(Source, String)> = refused.into_iter().map(|text| (Source::Guard, text)).collect();
        let lines = self.kernel_log.as_mut().map_or_else(Vec::new, KernelLog::lines);
        said.extend(lines.into_iter().map(|line| (Source::Kernel, line)));
        (look, said)
    }

    async fn look_at_cards(&mut self, look: &mut Look) {
        if self.cards.is_empty() {
            return;
        }
        let reading = self.sampler.read().await;
        // A process on a card may be too small in host memory to be among the largest.
        self.processes.also(reading.holders.iter().map(|holder| holder.pid));
        self.push_reading(&reading, look);
        // Temperatures change slowly, and each sensor is another call into the driver.
        if self.looks.is_multiple_of(SENSORS_EVERY) {
            for sensors in self.sampler.sensors().await {
                push_sensors(&sensors, look);
            }
        }
        self.looks += 1;
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
                let name = holder.name.clone().or_else(|| process::name(holder.pid)).unwrap_or_default();
                let subject = format!("{} {name}", holder.pid);
                let figure = Figure::new(Group::Process, Unit::Kib, subject, format!("on card {number}"));
                look.push(figure, Pace::Fast, used.get() >> 10);
            }
        }
    }
}

fn push_sensors(sensors: &Sensors, look: &mut Look) {
    let values = [
        ("temperature", Unit::Celsius, sensors.celsius),
        ("clock", Unit::Megahertz, sensors.megahertz),
        ("power", Unit::Milliwatt, sensors.milliwatts),
        ("busy", Unit::Percent, sensors.busy_percent),
    ];
    for (what, unit, value) in values {
        if let Some(value) = value {
            look.push(Figure::new(Group::Card, unit, sensors.card.as_str(), what), Pace::Slow, value.into());
        }
    }
}

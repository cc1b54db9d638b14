//! Lists the two ways in which GPUs are found, and combines their results: NVML for NVIDIA's, the kernel's
//! files for AMD's and Intel's.
//!
//! To add a source, add a file to `sources/` and a row to [`SOURCES`].

mod kernel;
mod nvml;

use self::kernel::KernelSource;
pub(super) use self::kernel::release as kernel_release;
use self::nvml::NvmlSource;
use super::{Machine, Reading};

/// A library or a driver that reports cards. One that is not there has none, and says so in a note.
trait CardSource {
    /// Adds the cards that this process may use, and notes on the others.
    fn add_cards(&self, machine: &mut Machine);

    /// Adds the values that change. Cards that do not answer are left out.
    fn add_reading(&self, reading: &mut Reading);

    /// Drops what is kept of the last reading.
    fn forget(&self) {}
}

/// In the order in which their cards are listed.
const SOURCES: &[fn() -> Box<dyn CardSource>] =
    &[|| Box::new(NvmlSource::open()), || Box::new(KernelSource::open())];

/// All sources, open.
pub(super) struct CardSources(Vec<Box<dyn CardSource>>);

impl CardSources {
    pub(super) fn open() -> Self {
        Self(SOURCES.iter().map(|open| open()).collect())
    }

    pub(super) fn machine(&self) -> Machine {
        let mut machine = Machine::of_host();
        for source in &self.0 {
            source.add_cards(&mut machine);
        }
        machine
    }

    pub(super) fn forget(&self) {
        self.0.iter().for_each(|source| source.forget());
    }

    pub(super) fn reading(&self) -> Reading {
        let mut reading = Reading::default();
        for source in &self.0 {
            source.add_reading(&mut reading);
        }
        reading.add_host();
        reading
    }
}

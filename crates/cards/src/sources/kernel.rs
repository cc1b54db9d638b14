//! Reader of GPUs of AMD and Intel through the kernel.

use super::CardSource;
use crate::kernel::KernelSurvey;
use crate::{Machine, Reading, Sysroot};

pub(super) struct KernelSource;

impl CardSource for KernelSource {
    fn add_cards(&self, machine: &mut Machine) {
        let survey = KernelSurvey::of(&Sysroot::live());
        machine.kernel_cards.extend(survey.cards);
        machine.notes.extend(survey.notes);
    }

    fn add_reading(&self, reading: &mut Reading) {
        let survey = KernelSurvey::of(&Sysroot::live());
        let free = survey.cards.into_iter().filter_map(|card| Some((card.id, card.free?)));
        reading.free.extend(free);
        reading.holders.extend(survey.holders);
    }
}

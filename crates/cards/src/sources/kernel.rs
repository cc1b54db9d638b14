//! Reader of GPUs of AMD and Intel through the kernel.

use std::path::Path;

use super::CardSource;
use crate::kernel::KernelSurvey;
use crate::{Machine, Reading, Sysroot};

/// A folder whose `sys` and `proc` describe the cards, for tests.
const CARD_FILES: &str = "PLIMSOLL_CARD_FILES";

pub(super) struct KernelSource {
    /// The files, or the reason of their absence.
    files: Result<Sysroot, String>,
}

impl KernelSource {
    /// The machine's own files; `PLIMSOLL_CARD_FILES` names others.
    pub(super) fn open() -> Self {
        let folder = std::env::var_os(CARD_FILES);
        let files = Sysroot::of(folder.as_deref().map(Path::new)).map_err(|error| error.to_string());
        Self { files }
    }
}

impl CardSource for KernelSource {
    fn add_cards(&self, machine: &mut Machine) {
        match &self.files {
            Ok(files) => {
                let survey = KernelSurvey::of(files);
                machine.kernel_cards.extend(survey.cards);
                machine.notes.extend(survey.notes);
            }
            Err(cause) => machine.notes.push(cause.clone()),
        }
    }

    fn add_reading(&self, reading: &mut Reading) {
        let Ok(files) = &self.files else { return };
        let survey = KernelSurvey::of(files);
        reading.free.extend(survey.cards.iter().filter_map(|card| Some((card.id.clone(), card.free?))));
        reading.holders.extend(survey.holders);
        reading.kernel_cards.extend(survey.cards);
    }
}

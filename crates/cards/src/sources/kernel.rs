//! Reads GPUs of AMD and Intel from the kernel's files, at most once a second.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::CardSource;
use crate::kernel::KernelSurvey;
use crate::{Machine, Reading, Sysroot};

/// A folder whose `sys` and `proc` describe the cards, for tests.
const CARD_FILES: &str = "PLIMSOLL_CARD_FILES";

/// Time for which a survey stands for the next ones.
///
/// DECISION: a swap of models waits for readings, one each 25 ms, and a survey looks at each descriptor of
/// each process. No model is placed on these cards, so their figures may be a second old.
const STANDS: Duration = Duration::from_secs(1);

pub(super) struct KernelSource {
    /// The files, or the reason of their absence.
    files: Result<Sysroot, String>,
    last: RefCell<Option<(Instant, KernelSurvey)>>,
}

impl KernelSource {
    /// The machine's own files; `PLIMSOLL_CARD_FILES` names others.
    pub(super) fn open() -> Self {
        let folder = std::env::var_os(CARD_FILES);
        let files = Sysroot::of(folder.as_deref().map(Path::new)).map_err(|error| error.to_string());
        Self { files, last: RefCell::default() }
    }

    fn survey(&self, files: &Sysroot, now: Instant) -> KernelSurvey {
        let mut last = self.last.borrow_mut();
        let standing = last.take().filter(|(at, _)| now.saturating_duration_since(*at) < STANDS);
        last.insert(standing.unwrap_or_else(|| (now, KernelSurvey::of(files)))).1.clone()
    }
}

impl CardSource for KernelSource {
    fn add_cards(&self, machine: &mut Machine) {
        match &self.files {
            Ok(files) => {
                let survey = KernelSurvey::of_cards(files);
                machine.kernel_cards.extend(survey.cards);
                machine.notes.extend(survey.notes);
            }
            Err(cause) => machine.notes.push(cause.clone()),
        }
    }

    fn add_reading(&self, reading: &mut Reading) {
        let Ok(files) = &self.files else { return };
        let survey = self.survey(files, Instant::now());
        reading.free.extend(survey.cards.iter().filter_map(|card| Some((card.id.clone(), card.free?))));
        reading.holders.extend(survey.holders);
        reading.kernel_cards.extend(survey.cards);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_survey_stands_for_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("sys/class/drm/card0/device");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("uevent"), "DRIVER=xe\nPCI_ID=8086:E20B\nPCI_SLOT_NAME=0000:03:00.0\n")
            .unwrap();
        let files = Sysroot::captured(folder.path()).unwrap();
        let source = KernelSource { files: Ok(files.clone()), last: RefCell::default() };
        let (now, cards) = (Instant::now(), |at| source.survey(&files, at).cards.len());
        assert_eq!(cards(now), 1);
        fs::remove_dir_all(folder.path().join("sys/class/drm/card0")).unwrap();
        assert_eq!((cards(now + STANDS / 2), cards(now + STANDS), cards(now + STANDS)), (1, 0, 0));
    }
}

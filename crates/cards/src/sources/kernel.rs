//! Reads GPUs of AMD and Intel from the kernel's files, at most once a second.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::CardSource;
use crate::kernel::{CardFiles as _, KernelSurvey};
use crate::{Machine, Reading, Sysroot};

/// A folder whose `sys` and `proc` describe the cards, for tests.
const CARD_FILES: &str = "PLIMSOLL_CARD_FILES";

/// A survey stands for the next ones for this many times what it took, and a second at most.
///
/// DECISION: a swap of models waits for readings, one each 25 ms, and a survey looks at each descriptor of
/// each process: a millisecond on a small machine, a hundred on a large one. So a tenth of a processor is
/// spent on them at most.
const STANDS: u32 = 10;
const STANDS_AT_MOST: Duration = Duration::from_secs(1);

pub(super) struct KernelSource {
    /// The files, or the reason of their absence.
    files: Result<Sysroot, String>,
    last: RefCell<Option<LastSurvey>>,
}

struct LastSurvey {
    stands_until: Instant,
    survey: KernelSurvey,
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
        let standing = last.take().filter(|last| now < last.stands_until);
        let new = || {
            let began = Instant::now();
            let survey = KernelSurvey::of(files);
            LastSurvey { stands_until: now + stands(began.elapsed()), survey }
        };
        last.insert(standing.unwrap_or_else(new)).survey.clone()
    }
}

/// How long a survey stands that took so long.
fn stands(took: Duration) -> Duration {
    took.saturating_mul(STANDS).min(STANDS_AT_MOST)
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
        reading.add_survey(self.survey(files, Instant::now()));
    }

    fn forget(&self) {
        self.last.take();
    }
}

/// Release of the kernel whose files describe the cards: `6.17.0`.
pub(crate) fn release() -> Option<String> {
    let files = KernelSource::open().files.ok()?;
    files.value("proc/sys/kernel/osrelease")
}

impl Reading {
    pub(crate) fn add_survey(&mut self, survey: KernelSurvey) {
        self.free.extend(survey.cards.iter().filter_map(|card| Some((card.id.clone(), card.free?))));
        self.holders.extend(survey.holders);
        self.kernel_cards.extend(survey.cards);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_survey_stands_for_a_multiple_of_what_it_took_and_a_second_at_most() {
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
        // A machine takes a time for the survey, so at the same moment it stands.
        assert_eq!((cards(now), cards(now + STANDS_AT_MOST)), (1, 0));
        assert_eq!(stands(Duration::from_millis(3)), Duration::from_millis(30));
        assert_eq!(stands(Duration::from_secs(3)), STANDS_AT_MOST);
    }
}

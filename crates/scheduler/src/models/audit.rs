//! Checks the lists of the table of models after each event of a simulated world.

use std::time::Duration;

use super::{ModelSlot, ModelTable};
use crate::time::ModelId;

impl ModelTable {
    /// Name of a list or sum that contradicts the state of the models.
    pub(crate) fn stale_list(&self) -> Option<&'static str> {
        let ids = |which: fn(&ModelSlot) -> bool| -> Vec<ModelId> {
            self.iter().filter(|(_, slot)| which(slot)).map(|(id, _)| id).collect()
        };
        let times: Vec<Duration> = self.iter().filter_map(|(_, slot)| slot.load_time).collect();
        let sum = (times.iter().sum(), u32::try_from(times.len()).unwrap_or(u32::MAX));
        let stale = [
            ("running", self.running != ids(|slot| slot.run.is_some())),
            ("waiting", self.waiting != ids(ModelSlot::waits)),
            ("load times", self.load_times != sum),
        ];
        stale.into_iter().find(|(_, is_stale)| *is_stale).map(|(name, _)| name)
    }
}

//! Reads a waiting model's files into the page cache, while the models that must stop for it still answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_cards::HostMemory;
use plimsoll_config::ConfiguredModel;
use plimsoll_reclaim::read_ahead;
use plimsoll_scheduler::{ModelId, ModelState};

use super::model_files;
use plimsoll_task::spawn_blocking;

/// Part of the host's available memory that the files may take: beyond it their end would evict their
/// beginning.
const PART: (u64, u64) = (1, 2);

/// The models whose files are read, each with a switch that ends it.
#[derive(Debug, Default)]
pub(super) struct ReadAheads(RefCell<HashMap<ModelId, Arc<AtomicBool>>>);

impl ReadAheads {
    fn begin(&self, model: ModelId) -> Arc<AtomicBool> {
        let wanted = Arc::new(AtomicBool::new(true));
        let before = self.0.borrow_mut().insert(model, Arc::clone(&wanted));
        before.iter().for_each(|before| before.store(false, Relaxed));
        wanted
    }

    /// Ends what is not needed any more: the model does not wait, or a load reads from the disk itself.
    pub(super) fn state_changed(&self, model: ModelId, state: ModelState) {
        self.0.borrow_mut().retain(|other, wanted| {
            let ends = state == ModelState::Loading || (*other == model && state != ModelState::Queued);
            wanted.store(!ends, Relaxed);
            !ends
        });
    }

    pub(super) fn read(&self, model: ModelId, entry: &ConfiguredModel) {
        let (entry, wanted) = (entry.clone(), self.begin(model));
        // A hanging disk holds this thread, and no request.
        drop(spawn_blocking(move || {
            let files = model_files::size_of_entry(&entry);
            if files.is_zero() {
                return;
            }
            let available = HostMemory::read().map(|memory| memory.available.scaled(PART.0, PART.1));
            if available.is_none_or(|available| files > available) {
                return;
            }
            let name = &entry.name;
            match read_ahead(&model_files::of_entry(&entry), || wanted.load(Relaxed)) {
                Ok(bytes) if bytes.is_zero() => {}
                Ok(bytes) => {
                    tracing::info!("{name}: {bytes} of its files were read while it waited for memory")
                }
                // The engine will meet the same error and name it.
                Err(error) => tracing::debug!("the files of {name} are not read ahead: {error}"),
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ends_when_its_model_stops_waiting_and_when_any_load_begins() {
        let aheads = ReadAheads::default();
        let [a, b, c] = [0, 1, 2].map(|number| aheads.begin(ModelId(number)));
        let go_on = || [&a, &b, &c].map(|wanted| wanted.load(Relaxed));
        aheads.state_changed(ModelId(0), ModelState::Queued);
        aheads.state_changed(ModelId(7), ModelState::Ready);
        assert_eq!(go_on(), [true; 3]);
        aheads.state_changed(ModelId(0), ModelState::Unloaded);
        assert_eq!(go_on(), [false, true, true]);
        let again = aheads.begin(ModelId(1));
        assert_eq!((go_on(), again.load(Relaxed)), ([false, false, true], true));
        aheads.state_changed(ModelId(7), ModelState::Loading);
        assert!(go_on() == [false; 3] && !again.load(Relaxed) && aheads.0.borrow().is_empty());
    }
}

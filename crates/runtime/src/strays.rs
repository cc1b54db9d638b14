//! Finds an engine that holds memory of a card which is not its own.
//!
//! DECISION: the evidence is the kernel's: its figures of the process on each card. A variable may be unknown
//! to a runtime, and Vulkan's numbers are its loader's own. An open device is no evidence, because Vulkan
//! opens every card to list it; memory is.

use plimsoll_base::{Bytes, Card, CardId, Reason};
use plimsoll_cards::{Holder, Reading};
use plimsoll_scheduler::Stopping;

use super::Runtime;
use super::launch::unstartable_because;
use super::memory::group_of;
use super::run::EngineRun;

/// What a driver may count for a card that is only listed; the weights of a model are more.
const LISTED: Bytes = Bytes::mib(32);

impl Runtime {
    /// Why an engine must end, from the moment before it is ready; `None` where it holds its own cards alone.
    ///
    /// The kernel is asked only on a machine with cards that it describes: NVIDIA's are chosen by UUID, which
    /// the driver itself obeys.
    pub(super) async fn stray(&self, run: &EngineRun) -> Option<Reason> {
        if let Some(reason) = self.without_layer(run) {
            return Some(reason);
        }
        if self.settings.kernel_cards.is_empty() {
            return None;
        }
        self.on_other_card(run, &self.readings.sampler.read_fresh().await)
    }

    /// Ends engines that have come to hold another card since they were ready.
    pub(super) fn end_strays(&self, reading: &Reading) {
        if self.settings.kernel_cards.is_empty() {
            return;
        }
        for run in self.state.runs().into_iter().filter(|run| run.upstream().is_some()) {
            if let Some(reason) = self.on_other_card(&run, reading)
                && run.stray.set(reason).is_ok()
            {
                run.stop(Stopping::Kill);
            }
        }
    }

    /// The reason if the layer that shows the engine its cards has counted nothing on one of them.
    fn without_layer(&self, run: &EngineRun) -> Option<Reason> {
        let gpus = self.settings.cards_of(run.placement());
        let counted = || self.extensions.iter().flat_map(|extension| extension.measured(self, run));
        let is_counted = |card: &&&Card| counted().any(|(other, _)| other == card.id);
        let missing = gpus.iter().filter(|_| run.is_isolated_by_layer()).find(|card| !is_counted(card))?;
        let text = format!(
            "guard's Vulkan layer has counted no memory on {} ({}), so the engine has not loaded the layer, \
                without which it may use another card of the same name; let its command pass the \
                environment on",
            missing.name, missing.id
        );
        Some(unstartable_because(&run.entry.name, Reason::new("vulkan_layer_unused", text)))
    }

    fn on_other_card(&self, run: &EngineRun, reading: &Reading) -> Option<Reason> {
        let group = run.pid()?;
        let own: Vec<CardId> = run.placement().cards().cloned().collect();
        let gpus = self.settings.cards_of(run.placement());
        // Cards that are only described have no name in any runtime, so the user chose.
        if gpus.iter().any(|card| card.uuid.is_none() && card.address.is_none()) {
            return None;
        }
        let is_stray = |holder: &&Holder| {
            let held = holder.used.max(holder.outside).unwrap_or_default();
            group_of(holder) == Some(group) && !own.contains(&holder.card) && held >= LISTED
        };
        let holder = reading.holders.iter().find(is_stray)?;
        let held = holder.used.max(holder.outside).unwrap_or_default();
        let name = self.name_of(reading, &holder.card);
        let its: Vec<&str> = gpus.iter().map(|card| card.name.as_str()).collect();
        let its = if its.is_empty() { "the host".to_owned() } else { its.join(", ") };
        let text = format!(
            "the engine was assigned {its}, but holds {held} of {name}, so the variables that name its \
                cards did not reach it; let its command or container pass them on"
        );
        let cause = Reason::new("engine_on_other_card", text).fact("card", holder.card.as_str());
        Some(unstartable_because(&run.entry.name, cause))
    }

    fn name_of(&self, reading: &Reading, card: &CardId) -> String {
        let kernel = reading.kernel_cards.iter().find(|other| other.id == *card);
        let known = || self.settings.card(card).map(|card| card.name.clone());
        let name = kernel.map(|card| card.name.clone()).or_else(known);
        name.map_or_else(|| card.to_string(), |name| format!("{name} ({card})"))
    }
}

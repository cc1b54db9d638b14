//! Finds an engine that holds memory of a card which is not its own.
//!
//! DECISION: the evidence is the kernel's: its figures of the process on each card. A variable may be unknown
//! to a runtime, and Vulkan's numbers are its loader's own. An open device is no evidence, because Vulkan
//! opens every card to list it; memory is.

use plimsoll_base::{Bytes, CardId, Reason};
use plimsoll_cards::{Holder, Reading};

use super::Runtime;
use super::memory::group_of;
use super::run::EngineRun;

/// What a driver may count for a card that is only listed; the weights of a model are more.
const LISTED: Bytes = Bytes::mib(32);

impl Runtime {
    /// Why an engine that is about to be ready must end; `None` where it holds its own cards alone.
    ///
    /// It is asked only on a machine with cards that the kernel describes: NVIDIA's are chosen by UUID, which
    /// the driver itself obeys.
    pub(super) async fn stray(&self, run: &EngineRun) -> Option<Reason> {
        let group = run.pid().filter(|_| !self.settings.kernel_cards.is_empty())?;
        let own: Vec<CardId> = run.placement().cards().cloned().collect();
        let gpus = self.settings.cards_of(run.placement());
        // Cards that are only described have no name in any runtime, so the user chose.
        if gpus.iter().any(|card| card.uuid.is_none() && card.address.is_none()) {
            return None;
        }
        let reading = self.readings.sampler.read_fresh().await;
        let is_stray = |holder: &&Holder| {
            let held = holder.used.max(holder.outside).unwrap_or_default();
            group_of(holder) == Some(group) && !own.contains(&holder.card) && held >= LISTED
        };
        let holder = reading.holders.iter().find(is_stray)?;
        let held = holder.used.max(holder.outside).unwrap_or_default();
        let name = self.name_of(&reading, &holder.card);
        let its: Vec<&str> = gpus.iter().map(|card| card.name.as_str()).collect();
        let its = if its.is_empty() { "the host".to_owned() } else { its.join(", ") };
        let text = format!(
            "the engine was given {its}, but holds {held} of {name}; it chooses its cards by a way of its own: \
                a container, or its command, has to pass on the variables that name its cards"
        );
        let cause = Reason::new("engine_on_other_card", text).fact("card", holder.card.as_str());
        Some(Reason::new("unstartable", format!("{} could not be started", run.entry.name)).because(cause))
    }

    fn name_of(&self, reading: &Reading, card: &CardId) -> String {
        let kernel = reading.kernel_cards.iter().find(|other| other.id == *card);
        let known = || self.settings.card(card).map(|card| card.name.clone());
        let name = kernel.map(|card| card.name.clone()).or_else(known);
        name.map_or_else(|| card.to_string(), |name| format!("{name} ({card})"))
    }
}

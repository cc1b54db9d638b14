//! Explains a wait to the client in one line of plain English.

use plimsoll_base::{CardId, RunId, counted};

use super::StateRef;
use crate::effect::ModelState;
use crate::models::{ModelSlot, RequestedState, RoomObstacle, RunState};
use crate::time::ModelId;

impl StateRef<'_> {
    /// One line for a client: the cause of the wait for a model, and the models that leave for it.
    pub fn wait_line(self, id: ModelId) -> Option<String> {
        let slot = self.model(id)?;
        let name = &slot.name;
        Some(match (slot.state(), slot.seeking()) {
            (ModelState::Queued, RequestedState::Room(_)) => self.room_line(id, slot),
            (ModelState::Queued, _) => format!("waiting for the check of {name}'s files"),
            (ModelState::Loading, _) => format!("waiting for {name} to load"),
            (ModelState::Ready, _) if slot.depth_wait().is_some() => {
                let line = format!("waiting for memory for the tokens of the next request for {name}");
                line + &self.leaving(slot.victims())
            }
            (ModelState::Ready, _) if self.counts_tokens(slot) => {
                format!("waiting for the count of the tokens of the next request for {name}")
            }
            (ModelState::Ready, _) if slot.is_checked() => {
                format!("waiting for a check of {name}'s engine, which dropped the request")
            }
            (ModelState::Ready, _) => {
                let run = slot.run.as_ref().map_or(0, RunState::in_flight);
                format!("waiting for a free slot of {name}; it answers {} now", counted(run, "request"))
            }
            (ModelState::Draining | ModelState::Stopping, _) => {
                format!("waiting for {name}, which is being stopped and is loaded again if there is room")
            }
            (ModelState::Unloaded | ModelState::Failed, _) => match slot.record.deferred(self.now) {
                Some(left) => {
                    format!("waiting for {name}, which failed and is restarted in {} s", left.as_secs() + 1)
                }
                None => format!("waiting for {name}"),
            },
        })
    }

    fn room_line(self, id: ModelId, slot: &ModelSlot) -> String {
        let (kept, runs) = slot.obstacle().map_or((&[][..], &[][..]), RoomObstacle::occupied);
        if !kept.is_empty() {
            return format!("waiting for memory for {}{}", slot.name, self.kept_free(kept));
        }
        if let Some((port, other)) = self.on_port_of(slot, runs) {
            let line = format!("waiting for port {port}, on which {other} listens");
            return line + &self.leaving(slot.victims());
        }
        if let Some(other) = self.apart_from_any(id, runs) {
            return format!("waiting until {other} is unloaded") + &self.leaving(slot.victims());
        }
        let Some(wait) = slot.wait().filter(|wait| !wait.needs.is_zero()) else {
            return format!("waiting for memory for {}", slot.name);
        };
        let line = format!("waiting for {} of memory on {}", wait.needs, self.named(&wait.cards));
        if slot.victims().next().is_some() {
            return line + &self.leaving(slot.victims());
        }
        let ahead = self.ahead(id).count();
        let left = self.turns_left(id, runs).as_secs();
        match (ahead, left) {
            (0, 0) => line,
            (0, left) => format!("{line}; the models that use it may keep it for {} s", left + 1),
            (ahead, _) => {
                format!("{line}, behind {}", counted(ahead, "model"))
            }
        }
    }

    /// Memory of these cards that is kept free for other programs for a time.
    fn kept_free(self, cards: &[CardId]) -> String {
        let kept = cards.iter().filter_map(|card| self.ledger.account(card));
        let kept = kept.filter_map(|account| Some((account, account.kept()?)));
        let line = kept.map(|(account, kept)| {
            let (card, left) = (&account.card().name, kept.until.since(self.now).as_millis().div_ceil(1000));
            format!("; {} of {card} are kept free for {left} s", kept.bytes)
        });
        line.collect()
    }

    /// The cards' names; those that share a name, by their place in the machine.
    fn named(self, cards: &[CardId]) -> String {
        let accounts = self.ledger.accounts();
        let name = |id: &CardId| {
            let (at, account) = accounts.iter().enumerate().find(|(_, account)| account.card().id == *id)?;
            let name = &account.card().name;
            let alike = accounts.iter().filter(|other| other.card().name == *name).count();
            Some(if alike > 1 { format!("card {at} ({name})") } else { name.clone() })
        };
        cards.iter().filter_map(name).collect::<Vec<_>>().join(" and ")
    }

    /// The models of these runs, each with the event after which it leaves.
    fn leaving<'a>(self, runs: impl Iterator<Item = &'a RunId>) -> String {
        let line = |run: &RunId| {
            let Some((_, slot, live)) = self.live(*run) else {
                return "; the memory of an engine that ended is still being returned".to_owned();
            };
            let name = &slot.name;
            match live.in_flight() {
                _ if live.is_loading() => format!("; {name} is unloaded after its load and first answers"),
                // It was chosen, and may go on until its protection ends.
                _ if live.takes_requests() => format!("; {name} is unloaded after its first answers"),
                0 => format!("; {name} is being unloaded"),
                1 => format!("; {name} is unloaded when its answer ends"),
                answers => format!("; {name} is unloaded when its {answers} answers end"),
            }
        };
        runs.map(line).collect()
    }
}

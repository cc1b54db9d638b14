//! Names why a model waits: the engines, the memory kept free, and the earlier models in its way.
//!
//! A yield is memory that models leave to other programs.

use plimsoll_base::{Bytes, CardId, Reason, RunId};

use super::StateRef;
use crate::effect::ModelState;
use crate::models::{ModelSlot, NeighbourQuery, RequestedState, RoomObstacle};
use crate::place::{RULES, at_most};
use crate::time::ModelId;

impl StateRef<'_> {
    /// The cause of the wait for a model: `check`, `load`, `room` or `slot`, and the reason.
    pub fn wait_reason(self, id: ModelId) -> Option<(&'static str, Reason)> {
        let slot = self.model(id)?;
        let (word, text) = self.wait_cause(slot);
        let Some(obstacle) = slot.obstacle().filter(|_| word == "room") else {
            return Some((word, Reason::new("still", text)));
        };
        let causes = self.causes(id, obstacle);
        let (kept, runs) = obstacle.occupied();
        let text = if let Some(other) = self.apart_from_any(id, runs) {
            format!("the model waits until {other} is unloaded: both may not run at once ({RULES})")
        } else if let Some((port, other)) = self.on_port_of(slot, runs) {
            format!("the model waits until {other} is unloaded: both listen on port {port}")
        } else if let Some(most) = self.ledger.full_at()
            && slot.room().is_some()
            && kept.is_empty()
        {
            format!("the model waits until another is unloaded: {}", at_most(most))
        } else {
            format!("{text} {}", self.awaited(id, slot, obstacle))
        };
        // A reader has no use for victims that are not chosen yet, but programs count them.
        let runs = u64::try_from(slot.victims().count()).unwrap_or(u64::MAX);
        Some((word, Reason::new("still", text).fact("runs_to_go", runs).because_all(causes)))
    }

    /// The cause in a word and in a sentence, which the obstacle of a wait for `room` completes.
    pub(crate) fn wait_cause(self, slot: &ModelSlot) -> (&'static str, &'static str) {
        // The state shows an operator which wait was too long.
        match (slot.state(), slot.seeking()) {
            (ModelState::Queued, RequestedState::Room(_)) => ("room", "the model still waits for"),
            (ModelState::Queued, _) => ("check", "the model's files and its engine are still being checked"),
            (ModelState::Loading, _) => ("load", "the model is still loading"),
            (ModelState::Ready, _) if slot.depth_wait().is_some() => {
                ("room", "the next request needs more memory than the model has now, and waits for")
            }
            (ModelState::Ready, _) if self.counts_tokens(slot) => {
                ("check", "the tokens of the next request are being counted")
            }
            (ModelState::Ready, _) if slot.is_checked() => {
                ("check", "the engine dropped the request, and is asked whether it is healthy")
            }
            (ModelState::Ready, _) => {
                ("slot", "the model already serves as many requests as it accepts at once")
            }
            (ModelState::Draining | ModelState::Stopping, _) => {
                ("load", "the model is being stopped; it is loaded again if there is room for it then")
            }
            (ModelState::Unloaded | ModelState::Failed, _) => ("load", "the model is not loaded"),
        }
    }

    /// True while the depth of the model's next request is measured.
    pub(crate) fn counts_tokens(self, slot: &ModelSlot) -> bool {
        let front = slot.line.front().and_then(|id| self.queue.get(id));
        front.is_some_and(|request| request.measuring)
    }

    // A line of the log shows the first cause alone, so that this names all of them.
    /// Cause of a model's wait, in words.
    fn awaited(self, id: ModelId, slot: &ModelSlot, obstacle: &RoomObstacle) -> String {
        match obstacle {
            RoomObstacle::Unread => {
                if slot.room().is_some_and(|room| room.neighbours == NeighbourQuery::Pending) {
                    "other programs, which are asked for memory that they do not use".to_owned()
                } else {
                    "a new reading of the cards' free memory".to_owned()
                }
            }
            RoomObstacle::Unplanned => "the plan of its memory on the cards".to_owned(),
            RoomObstacle::Turn => {
                let ahead: Vec<&str> = self.ahead(id).map(|slot| &*slot.name).collect();
                if ahead.is_empty() {
                    "other models, which get memory first".to_owned()
                } else {
                    format!("memory that {} first", verb(&ahead, "gets", "get"))
                }
            }
            RoomObstacle::OwnRequests => "memory that the model's other requests use".to_owned(),
            RoomObstacle::Motion { of } => {
                let other = of.and_then(|model| self.model(model)).map_or("other models", |slot| &*slot.name);
                if slot.spec.measures_free {
                    format!(
                        "the load or stop of {other} on the same card, because its own engine \
                        measures the free memory there"
                    )
                } else {
                    format!("the start of {other}, whose engine is measuring the free memory of the card")
                }
            }
            RoomObstacle::Occupied { kept, runs } => {
                let mut names: Vec<&str> = Vec::new();
                for (_, _, name, _) in self.holds(runs) {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                let occupied = verb(&names, "holds", "hold");
                match (kept.is_empty(), names.len()) {
                    (true, 0 | 1) => "memory that other models hold".to_owned(),
                    (true, _) => format!("memory that {occupied}"),
                    (false, 0) => "memory that is kept free for other programs".to_owned(),
                    (false, _) => {
                        format!("memory that is kept free for other programs, and memory that {occupied}")
                    }
                }
            }
        }
    }

    /// The obstacle's parts, each with its figure.
    fn causes(self, id: ModelId, obstacle: &RoomObstacle) -> Vec<Reason> {
        match obstacle {
            RoomObstacle::Turn => self.ahead(id).map(before).collect(),
            RoomObstacle::Occupied { kept, runs } => {
                let contention = self.contention();
                let yields = kept.iter().filter_map(|card| {
                    let account = self.ledger.account(card)?;
                    let (bytes, name) = (account.kept_now(), &account.card().name);
                    let text = format!("`plimsoll yield` keeps free {bytes} of {name}");
                    Some(Reason::new("yield", text).fact("card", card.as_str()).fact("yield", bytes))
                });
                let holders = self.holds(runs).map(|(run, card, holder, bytes)| {
                    let sum = self.runs.model_of(run).and_then(|of| self.swap_sum(&contention, id, of));
                    let name = self.ledger.account(card).map_or("", |account| &account.card().name);
                    let text = format!("{holder} holds {bytes} on {name}");
                    Reason::new("holder", text)
                        .fact("card", card.as_str())
                        .fact("holds", bytes)
                        .because_all(sum)
                });
                yields.chain(holders).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The claims of the runs: run, card, model and bytes.
    fn holds<'a>(self, runs: &'a [RunId]) -> impl Iterator<Item = (RunId, &'a CardId, &'a str, Bytes)>
    where
        Self: 'a,
    {
        self.ledger.accounts().iter().flat_map(move |account| {
            let claims = account.claims().iter().filter(|claim| runs.contains(&claim.run));
            claims.map(|claim| (claim.run, &account.card().id, &*claim.holder, claim.bytes))
        })
    }

    /// Models that wait for memory and get it before this one.
    pub(crate) fn ahead<'a>(self, id: ModelId) -> impl Iterator<Item = &'a ModelSlot>
    where
        Self: 'a,
    {
        let key = move |id: ModelId, slot: &ModelSlot| {
            slot.obstacle().map(|_| self.turn(id, slot, slot.room()).key())
        };
        let own = self.model(id).and_then(|slot| key(id, slot));
        let models = self.models.iter();
        models
            .filter(move |(other, slot)| *other != id && key(*other, slot).is_some_and(|key| Some(key) < own))
            .map(|(_, slot)| slot)
    }
}

fn before(slot: &ModelSlot) -> Reason {
    let name = &slot.name;
    let needs = slot.wait().map_or(Bytes::ZERO, |wait| wait.needs);
    match needs.is_zero() {
        true => Reason::new("before", format!("{name} comes first")),
        false => Reason::new("before", format!("{name} comes first and needs {needs}")).fact("need", needs),
    }
    .fact("model", &**name)
}

/// Names and their verb: "a holds", "a, b and c hold".
fn verb(names: &[&str], one: &str, many: &str) -> String {
    match names {
        [] => String::new(),
        [name] => format!("{name} {one}"),
        [others @ .., last] => format!("{} and {last} {many}", others.join(", ")),
    }
}

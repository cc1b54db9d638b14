//! States why an engine is stopped, for the operator's log.

use plimsoll_base::{Reason, RunId, counted};

use super::StateRef;
use crate::models::{Drain, PartingCause};
use crate::place::{RULES, at_most};

impl StateRef<'_> {
    /// The reason why `run` stops; None if it is unknown, or the run does not stop any more.
    pub fn stop_reason(self, run: RunId) -> Option<Reason> {
        let (_, slot) = self.model_of(run)?;
        let state = slot.run.as_ref()?;
        if let Some(reason) = &state.killed_for {
            return Some(reason.clone());
        }
        if self.closing {
            return Some(Reason::new("shutting_down", "the server is shutting down"));
        }
        if state.draining == Some(Drain::Leave) {
            return state.parts_for.map(|cause| match cause {
                PartingCause::Hand if slot.is_pinned() => Reason::new(
                    "unloaded",
                    "the model was unloaded by hand; its pin stays, and holds again once it is loaded",
                ),
                cause => parting(cause),
            });
        }
        if state.suspect.is_some() {
            let text =
                "the engine failed a health check or a test request of Plimsoll, and is considered dead";
            return Some(Reason::new("unresponsive", text));
        }
        state.draining?;
        let sum = state.swap_sum.clone();
        let needed = self
            .newcomer(run)
            .map(|reason| reason.because_all(sum))
            .or_else(|| Some(self.yielding.get(&run)?.1.clone()));
        needed.or_else(|| {
            let text = "its memory was needed by a model that is not waiting any more";
            Some(Reason::new("makes_room", text))
        })
    }

    /// The model or run that needs the memory.
    fn newcomer(self, run: RunId) -> Option<Reason> {
        let makes_room = |text: String| Reason::new("makes_room", text);
        if let Some(request) = self.budgets.iter().find(|request| request.after.contains(&run)) {
            let name = &self.model_of(request.run)?.1.name;
            let text = format!("{name} requests {} more memory", request.requested);
            return Some(makes_room(text).fact("need", request.requested));
        }
        self.models.iter().find_map(|(id, slot)| {
            let name = &slot.name;
            let Some(room) = slot.room() else {
                let wait = slot.depth_wait().filter(|wait| wait.victims.contains(&run))?;
                let text = format!("{name} needs {} more memory for a request with more tokens", wait.needs);
                return Some(makes_room(text).fact("need", wait.needs));
            };
            if !room.wait.victims.contains(&run) {
                let text = format!("{name} ran out of memory while loading");
                return room.after.contains(&run).then(|| makes_room(text));
            }
            Some(if let Some(port) = self.port_between(slot, run) {
                makes_room(format!("{name} listens on the same port ({port})")).fact("port", u64::from(port))
            } else if self.apart_from_any(id, &[run]).is_some() {
                makes_room(format!("{name} is to be loaded, and both may not run at once ({RULES})"))
            } else if let Some(most) = self.ledger.full_at() {
                makes_room(format!("{name} is to be loaded, and {}", at_most(most)))
            } else {
                makes_room(format!("{name} needs {}", room.wait.needs)).fact("need", room.wait.needs)
            })
        })
    }
}

fn parting(cause: PartingCause) -> Reason {
    let (code, text) = match cause {
        PartingCause::Hand => ("unloaded", "the model was unloaded by hand"),
        PartingCause::Reconfigured => ("reconfigured", "the model's configuration has changed"),
        PartingCause::Unconfigured => ("unconfigured", "the model is no longer in the configuration"),
        PartingCause::Afresh => {
            ("starts_afresh", "the model's next request fits only after the caches of idle slots are freed")
        }
        PartingCause::Lent => {
            ("starts_afresh", "pinned models now use the memory that the engine freed when it went to sleep")
        }
        PartingCause::Idle { ttl } => {
            let ttl = ttl.as_secs_f64();
            let text = format!("the model was idle for {ttl:.0} s, which is its ttl (time to live)");
            return Reason::new("idle", text);
        }
        PartingCause::Served { most } => {
            let text = format!(
                "the engine has served {}, its `max-requests`, and is restarted for the next one",
                counted(most, "request")
            );
            return Reason::new("max_requests", text);
        }
    };
    Reason::new(code, text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_base::{Bytes, Card, CardId, CardKind, Counting, ModelNeed, NeedSize, Priority};

    use super::*;
    use crate::scheduler::Scheduler;
    use crate::time::Moment;
    use crate::{
        CardLimit, ConfigChange, ModelId, ModelSpec, RequestId, SchedulerEffect, SchedulerEvent,
        SchedulerSettings,
    };

    /// A scheduler with one card of 1 GiB and two models of 600 MiB.
    fn desk() -> Scheduler {
        let card = Card {
            id: CardId::new("card"),
            kind: CardKind::Host,
            name: "card".to_owned(),
            uuid: None,
            total: Bytes::gib(1),
            free: Bytes::gib(1),
            compute_capability: None,
            legacy_pool: false,
            shares_host: false,
            counting: Counting::Driver,
            maker: plimsoll_base::CardMaker::Nvidia,
            address: None,
        };
        let limit = CardLimit { card, budget: None, reserve: Bytes::ZERO };
        let mut scheduler = Scheduler::new(SchedulerSettings::new(vec![limit]));
        let added = |id, name: &str| (ModelId(id), ConfigChange::Added(ModelSpec::new(name)));
        notify(&mut scheduler, SchedulerEvent::Configured(vec![added(0, "alpha"), added(1, "beta")]));
        scheduler
    }

    fn notify(scheduler: &mut Scheduler, event: SchedulerEvent) -> Vec<SchedulerEffect> {
        let mut effects = Vec::new();
        scheduler.on_event(Moment::START, event, &mut effects).unwrap();
        effects
    }

    /// Requests a model, and answers everything that comes before its start.
    fn ask(scheduler: &mut Scheduler, id: u32) -> Vec<SchedulerEffect> {
        let model = ModelId(id);
        let deadline = Moment::START + Duration::from_secs(60);
        let request = RequestId(id.into());
        let arrived = SchedulerEvent::Arrived {
            request,
            model,
            client: crate::ClientId(0),
            priority: Priority::Normal,
            deadline,
            traits: crate::RequestTraits::default(),
        };
        notify(scheduler, arrived);
        let result = Ok(ModelNeed::new(NeedSize::Declared(Bytes::mib(600))));
        let mut effects = notify(scheduler, SchedulerEvent::Surveyed { model, result });
        let free = vec![(CardId::new("card"), scheduler.ledger().accounts()[0].card().free)];
        let taken = Moment::START;
        effects.extend(notify(scheduler, SchedulerEvent::CardsRead { free, taken }));
        effects
    }

    fn run_alpha(scheduler: &mut Scheduler) -> RunId {
        let effects = ask(scheduler, 0);
        let started = effects.iter().find_map(|effect| match effect {
            SchedulerEffect::Start { run, .. } => Some(*run),
            _ => None,
        });
        let run = started.expect("alpha starts");
        notify(scheduler, SchedulerEvent::Ready { run });
        let request = RequestId(0);
        let tokens = None;
        notify(scheduler, SchedulerEvent::Finished { request, tokens, failed: false });
        run
    }

    #[test]
    fn an_eviction_names_the_newcomer_and_its_need() {
        let mut scheduler = desk();
        let run = run_alpha(&mut scheduler);
        ask(&mut scheduler, 1);
        let reason = scheduler.at(Moment::START).stop_reason(run).unwrap();
        assert_eq!((reason.code, reason.text.as_str()), ("makes_room", "beta needs 600 MiB"));
    }

    #[test]
    fn a_hand_a_configuration_and_an_end_are_distinguished() {
        for (event, code) in [
            (SchedulerEvent::UnloadWanted { model: ModelId(0) }, "unloaded"),
            (SchedulerEvent::Configured(vec![(ModelId(0), ConfigChange::Removed)]), "unconfigured"),
            (
                SchedulerEvent::Configured(vec![(
                    ModelId(0),
                    ConfigChange::Replaced(ModelSpec::new("alpha")),
                )]),
                "reconfigured",
            ),
            (SchedulerEvent::Shutdown, "shutting_down"),
        ] {
            let mut scheduler = desk();
            let run = run_alpha(&mut scheduler);
            notify(&mut scheduler, event);
            let reason = scheduler.at(Moment::START).stop_reason(run).unwrap();
            assert_eq!(reason.code, code);
        }
    }
}

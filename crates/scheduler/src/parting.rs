//! Why a run that was told to stop goes. Decides nothing: for the log, right after the stop was decided.

use plimsoll_base::{Reason, RunId};

use super::model::{Drain, Model, Seeking};
use super::moment::Moment;
use super::scheduler::Scheduler;

impl Scheduler {
    /// Says why `run` goes; None where it is not known, or goes no more.
    pub fn why_stopped(&self, run: RunId, now: Moment) -> Option<Reason> {
        let model = self.model(*self.living.get(&run)?)?;
        let life = model.run.as_ref()?;
        if let Some(reason) = &life.killed_for {
            return Some(reason.clone());
        }
        if self.closing.is_some() {
            return Some(Reason::new("shutting_down", "the daemon is shutting down"));
        }
        if life.afresh {
            let text = "its next request fits only where idle slots keep nothing";
            return Some(Reason::new("starts_afresh", text));
        }
        let evicted = life.draining == Some(Drain::Evict);
        evicted
            .then(|| self.newcomer(run))
            .flatten()
            .or_else(|| reconfigured(model))
            .or_else(|| expired(model, now))
            .or_else(|| Some(Reason::new("unloaded", "it was unloaded by hand")))
    }

    /// The model that makes the run go.
    fn newcomer(&self, run: RunId) -> Option<Reason> {
        self.pleader(run)
            .or_else(|| self.loader(run))
            .or_else(|| self.diver(run))
    }

    /// The run that asked for more.
    fn pleader(&self, run: RunId) -> Option<Reason> {
        let plea = self.pleas.iter().find(|plea| plea.after.contains(&run))?;
        let name = &self.model(*self.living.get(&plea.run())?)?.name;
        let text = format!("{name} asks for {} more", plea.asked());
        Some(Reason::new("makes_room", text).fact("need", plea.asked()))
    }

    /// The run whose next request goes deeper than its claim covers.
    fn diver(&self, run: RunId) -> Option<Reason> {
        let deeper = |model: &&Model| {
            model
                .deep
                .as_ref()
                .is_some_and(|deep| deep.victims.contains(&run))
        };
        let model = self.models.iter().flatten().find(deeper)?;
        let need = model.deep.as_ref()?.needs;
        let text = format!("{} needs {need} more for a request of this depth", model.name);
        Some(Reason::new("makes_room", text).fact("need", need))
    }

    fn loader(&self, run: RunId) -> Option<Reason> {
        self.models.iter().flatten().find_map(|model| {
            let Seeking::Room(room) = &model.seeking else {
                return None;
            };
            let name = &model.name;
            if room.victims.contains(&run) {
                let text = format!("{name} needs {}", room.needs);
                return Some(Reason::new("makes_room", text).fact("need", room.needs));
            }
            let text = format!("{name} ran out of memory while it loaded");
            room.after.contains(&run).then(|| Reason::new("makes_room", text))
        })
    }
}

fn reconfigured(model: &Model) -> Option<Reason> {
    if model.removed {
        let text = "it is no longer in the configuration";
        return Some(Reason::new("unconfigured", text));
    }
    // A run of an older kind is taken up again as soon as it has ended.
    let text = "its configuration has changed";
    (model.load_wanted.is_some()).then(|| Reason::new("reconfigured", text))
}

fn expired(model: &Model, now: Moment) -> Option<Reason> {
    let ttl = model.spec.ttl?;
    let idle = model.last_used.is_none_or(|used| now.since(used) >= ttl);
    let text = format!("nobody asked for it in {:.0} s, its ttl", ttl.as_secs_f64());
    idle.then(|| Reason::new("idle", text))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use plimsoll_base::{Bytes, Card, CardId, CardKind, Counting, Declared};

    use super::*;
    use crate::{CardLimit, Change, Effect, Event, ModelId, ModelSpec, RequestId, Settings};

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
            counting: Counting::Driver,
        };
        let limit = CardLimit {
            card,
            budget: None,
            reserve: Bytes::ZERO,
        };
        let mut scheduler = Scheduler::new(Settings::new(vec![limit]));
        let added = |id, name: &str| (ModelId(id), Change::Added(ModelSpec::new(name)));
        tell(
            &mut scheduler,
            Event::Configured(vec![added(0, "alpha"), added(1, "beta")]),
        );
        scheduler
    }

    fn tell(scheduler: &mut Scheduler, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        scheduler.on_event(Moment::START, event, &mut effects);
        effects
    }

    /// Asks for a model until it needs nothing but a start.
    fn ask(scheduler: &mut Scheduler, id: u32) -> Vec<Effect> {
        let model = ModelId(id);
        let deadline = Moment::START + Duration::from_secs(60);
        let request = RequestId(id.into());
        let arrived = Event::Arrived {
            request,
            model,
            deadline,
        };
        tell(scheduler, arrived);
        let result = Ok(Arc::new(Declared(Bytes::mib(600))) as Arc<_>);
        tell(scheduler, Event::Surveyed { model, result })
    }

    fn run_alpha(scheduler: &mut Scheduler) -> RunId {
        let effects = ask(scheduler, 0);
        let started = effects.iter().find_map(|effect| match effect {
            Effect::Start { run, .. } => Some(*run),
            _ => None,
        });
        let run = started.expect("alpha starts");
        tell(scheduler, Event::Ready { run });
        let request = RequestId(0);
        let tokens = None;
        tell(scheduler, Event::Finished { request, tokens });
        run
    }

    #[test]
    fn an_eviction_names_the_newcomer_and_its_need() {
        let mut scheduler = desk();
        let run = run_alpha(&mut scheduler);
        ask(&mut scheduler, 1);
        let why = scheduler.why_stopped(run, Moment::START).unwrap();
        assert_eq!(
            (why.code, why.text.as_str()),
            ("makes_room", "beta needs 600 MiB")
        );
    }

    #[test]
    fn a_hand_a_configuration_and_an_end_are_told_apart() {
        for (event, code) in [
            (Event::UnloadWanted { model: ModelId(0) }, "unloaded"),
            (
                Event::Configured(vec![(ModelId(0), Change::Removed)]),
                "unconfigured",
            ),
            (
                Event::Configured(vec![(ModelId(0), Change::Replaced(ModelSpec::new("alpha")))]),
                "reconfigured",
            ),
            (Event::Shutdown, "shutting_down"),
        ] {
            let mut scheduler = desk();
            let run = run_alpha(&mut scheduler);
            tell(&mut scheduler, event);
            let why = scheduler.why_stopped(run, Moment::START).unwrap();
            assert_eq!(why.code, code);
        }
    }
}

//! Why a run that was told to stop goes. Decides nothing: for the log, right after the stop was decided.

use super::model::{Model, Seeking};
use super::moment::Moment;
use super::scheduler::Scheduler;
use crate::explain::Reason;
use crate::place::RunId;

impl Scheduler {
    /// Says why `run` goes; None where it is not known, or goes no more.
    pub fn why_stopped(&self, run: RunId, now: Moment) -> Option<Reason> {
        let model = self.model(*self.living.get(&run)?)?;
        if let Some(reason) = &model.run.as_ref()?.killed_for {
            return Some(reason.clone());
        }
        if self.closing.is_some() {
            return Some(Reason::new("shutting_down", "the daemon is shutting down"));
        }
        self.newcomer(run)
            .or_else(|| reconfigured(model))
            .or_else(|| expired(model, now))
            .or_else(|| Some(Reason::new("unloaded", "it was unloaded by hand")))
    }

    /// The model that makes the run go.
    fn newcomer(&self, run: RunId) -> Option<Reason> {
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

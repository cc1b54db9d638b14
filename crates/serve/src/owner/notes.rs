//! What the owner remembers of each model for those who look: listings, counters, logs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use plimsoll_base::{End, Hint, Reason};
use plimsoll_launch::Log;
use plimsoll_scheduler::{ModelId, State};

use super::run::Run;
use crate::route::{Exposition, Kind};

/// One model's.
#[derive(Debug, Default)]
pub(super) struct Note {
    pub(super) state: Option<State>,
    /// The context that it gets instead of the one that it asks for, since it was last looked at.
    pub(super) lowered: Option<u64>,
    /// The run that is up, or was last.
    pub(super) run: Option<Rc<Run>>,
    /// The failure that the operator was told of last.
    pub(super) told: Option<Reason>,
    /// What is to be said beside a failure of the load that is under way, or was last.
    pub(super) hints: Vec<Hint>,
    log: Option<Log>,
    loads: u64,
    crashes: u64,
    out_of_memory: u64,
    unstartable: u64,
}

/// All models'.
#[derive(Debug, Default)]
pub(super) struct Notes(RefCell<HashMap<ModelId, Note>>);

impl Notes {
    pub(super) fn with<T>(&self, model: ModelId, look: impl FnOnce(&mut Note) -> T) -> T {
        look(self.0.borrow_mut().entry(model).or_default())
    }

    /// The model's log, made by `make` when it is first asked for.
    pub(super) fn log(&self, model: ModelId, make: impl FnOnce() -> Log) -> Log {
        self.with(model, |note| note.log.get_or_insert_with(make).clone())
    }

    pub(super) fn started(&self, model: ModelId, run: &Rc<Run>) {
        self.with(model, |note| {
            note.loads += 1;
            note.hints.clear();
            note.run = Some(Rc::clone(run));
        });
    }

    pub(super) fn ended(&self, model: ModelId, end: &End) {
        self.with(model, |note| match end {
            End::Expected => {}
            End::Crashed { .. } => note.crashes += 1,
            End::OutOfMemory { .. } => note.out_of_memory += 1,
            End::Unstartable { .. } => note.unstartable += 1,
        });
    }

    /// Writes the counters of `models`, by name.
    pub(super) fn write(&self, page: &mut Exposition, models: &[(ModelId, String)]) {
        page.family(
            "plimsoll_loads_total",
            Kind::Counter,
            "Engines started for a model",
        );
        for (model, name) in models {
            page.sample(
                "plimsoll_loads_total",
                &[("model", name)],
                self.with(*model, |note| note.loads),
            );
        }
        let name = "plimsoll_failures_total";
        page.family(
            name,
            Kind::Counter,
            "Engines that ended without being asked to, by cause",
        );
        for (model, model_name) in models {
            let counts = self.with(*model, |note| {
                [note.crashes, note.out_of_memory, note.unstartable]
            });
            for (cause, count) in ["crash", "out_of_memory", "unstartable"].iter().zip(counts) {
                page.sample(name, &[("model", model_name), ("cause", cause)], count);
            }
        }
    }
}

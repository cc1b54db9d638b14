//! Drives the scheduler: passes events to it, and carries out the actions that it returns.
//!
//! Slow work, such as an engine's start, continues as a task and reports its result as another event.
//! [`Extension`]s add guard (the preloaded library), reclaim and metrics.
#![forbid(unsafe_code)]

mod admission;
mod answer_tally;
mod board;
mod config_error;
mod config_file;
mod deadly;
mod downloads;
mod event_queue;
mod extension;
mod fixed_port;
mod flags_file;
mod forecast;
mod freeing;
mod health;
mod holders;
mod host_bound;
mod key_file;
mod last_advice;
mod launch;
mod load_inputs;
mod memory;
pub mod model_files;
mod moved;
mod needs;
mod operator_log;
mod overflow;
mod parts;
mod post_mortem;
mod private_folder;
mod probe;
mod probe_kind;
mod read_ahead;
mod registry;
mod reload;
mod request_log;
mod requests;
mod run;
mod service;
mod settings;
mod slots;
mod state;
mod state_file;
mod status;
mod strays;
mod survey;
mod ticks;
mod traces;
mod work;
mod yields;

use std::fmt;
use std::rc::{Rc, Weak};

use plimsoll_base::{BusRate, Hint};
use plimsoll_cards::{KernelCard, Sampler};
use plimsoll_config::Configuration;
use plimsoll_process::Launcher;
use plimsoll_scheduler::{ModelId, ModelState, Moment, SchedulerEffect, SchedulerEvent};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::board::{Board, Webhook};
use self::deadly::DeadlyBodies;
use self::forecast::answers;
use self::host_bound::follow_host_claim;
use self::last_advice::LastAdvice;
use self::parts::{Driver, EngineStarts, ModelFiles, Readings, Reports, Turns};
use self::requests::{AdmissionAnswer, RequestTable, report_stray};
use self::slots::WarmSlots;
use self::traces::Traces;
use plimsoll_route::ModelService;
use plimsoll_task::spawn_local;

pub use admission::RunPass;
pub use config_error::ReadConfigError;
pub use config_file::Config;
pub use extension::{BeforeLoad, Extension};
pub use forecast::{
    Beside, CandidateModel, CandidateVerdict, FlagsLeftOut, Forecast, LoadedTogether, StandingConflicts,
    TogetherForecast, conflicts, loaded_together, this_host, together, widest,
};
pub use freeing::free_idle;
pub use needs::{KnownNeeds, MeasuredNeeds};
pub use operator_log::{in_a_line, label};
pub use post_mortem::post_mortem;
pub use registry::UnknownCard;
pub use run::EngineRun;
pub use settings::{ConfigureError, RuntimeSettings};
pub use state::SchedulerState;
pub use survey::{ExactAnswers, Patience, Surveyor, named};

pub struct Runtime {
    me: Weak<Self>,
    pub settings: Rc<RuntimeSettings>,
    pub state: Rc<SchedulerState>,
    driver: Driver,
    requests: Rc<RequestTable>,
    extensions: Vec<Rc<dyn Extension>>,
    board: Board,
    deadly: DeadlyBodies,
    engines: EngineStarts,
    readings: Readings,
    reports: Reports,
    files: ModelFiles,
    turns: Turns,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Starts without models; call inside a `LocalRuntime` or a `LocalSet`.
    pub fn start(
        settings: RuntimeSettings,
        launcher: Launcher,
        sampler: Sampler,
        extensions: Vec<Rc<dyn Extension>>,
    ) -> Rc<Self> {
        let settings = Rc::new(settings);
        let state = Rc::new(SchedulerState::new(Rc::clone(&settings)));
        let slots = WarmSlots::new(settings.warm, settings.engine_user.is_some());
        let (news, heard) = mpsc::unbounded_channel();
        // Without a thread there is no webhook and no trace, and the daemon serves all the same.
        let webhook = settings.webhook.clone().and_then(|address| Webhook::start(address).ok());
        let board = Board::of(Rc::clone(&state), webhook);
        let readings = Readings::of(Rc::clone(&state), sampler, news);
        let traces = settings.traces.clone().and_then(|address| Traces::start(address).ok());
        let reports = Reports::to(Rc::clone(&state), traces);
        let runtime = Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            settings,
            state,
            driver: Driver::default(),
            requests: Rc::default(),
            extensions,
            board,
            deadly: DeadlyBodies::default(),
            engines: EngineStarts::with(launcher),
            readings,
            reports,
            files: ModelFiles::of(slots),
            turns: Turns::default(),
        });
        spawn_local(ticks::tick(Rc::clone(&runtime)));
        spawn_local(memory::watch(Rc::clone(&runtime)));
        spawn_local(board::publish(Rc::clone(&runtime)));
        spawn_local(board::keep(Rc::clone(&runtime)));
        spawn_local(survey::hear(Rc::clone(&runtime), heard));
        for extension in &runtime.extensions {
            Rc::clone(extension).start(&runtime);
        }
        runtime
    }

    /// Applies a list of models and returns those that have changed; unchanged ones are not touched.
    pub fn configure(&self, roster: Configuration) -> Result<Vec<ModelId>, UnknownCard> {
        let cards: Vec<_> = self.settings.cards().cloned().collect();
        let mut registry = self.state.registry.borrow_mut();
        let changes = registry.update(roster.models, &cards)?;
        registry.set_rules(&roster.serve, roster.refused);
        registry.set_unfit(roster.unfit);
        drop(registry);
        let changed = changes.iter().map(|(id, _)| *id).collect();
        self.submit(SchedulerEvent::Configured(changes));
        self.reports.events.reloaded();
        Ok(changed)
    }

    /// Reports an event to the scheduler and carries out the effects.
    pub fn submit(&self, event: SchedulerEvent) {
        self.submit_at(self.state.now(), event);
    }

    /// The same at a time that the caller has just read.
    fn submit_at(&self, now: Moment, event: SchedulerEvent) {
        self.driver.queue.submit((now, event), |(now, event)| self.handle(now, event));
    }

    fn handle(&self, now: Moment, event: SchedulerEvent) {
        let mut effects = self.driver.effects.take();
        if let SchedulerEvent::Ended { run, .. } = &event {
            // In the same moment for both, so that the scheduler names no run that is not there.
            self.state.engines.borrow_mut().remove(run);
        }
        // Effects look up runs and models themselves, so the scheduler is borrowed for this line alone.
        report_stray(self.state.scheduler.borrow_mut().on_event(now, event, &mut effects));
        let (runtime, mut advice) = (self.me(), LastAdvice::default());
        for mut effect in effects.drain(..) {
            self.readings.name_holders_in(&mut effect);
            advice.complete(&mut effect, &self.state.statuses);
            let was = match &effect {
                SchedulerEffect::StateChanged { model, .. } => self.state.statuses.shown(*model),
                _ => ModelState::Unloaded,
            };
            self.carry_out(&effect);
            self.board.mark_effect(&effect, was);
            // After the runtime, so that an extension finds the run that a start has added.
            for extension in &self.extensions {
                extension.on_effect(&runtime, &effect);
            }
        }
        self.driver.effects.set(effects);
        self.board.touch();
    }

    /// Carries out one effect. An event that this leads to is handled after all effects of the present one.
    fn carry_out(&self, effect: &SchedulerEffect) {
        self.reports.operator_log.effect(effect);
        match effect {
            SchedulerEffect::Dispatch { request, run } => {
                if let Some(run) = self.state.run(*run) {
                    self.requests.send_on(*request, run);
                }
            }
            SchedulerEffect::Refuse { request, refusal } => {
                self.requests.answer(*request, AdmissionAnswer::Refused(refusal.clone()))
            }
            SchedulerEffect::MeasureDepth { request, run, exact } => {
                if let Some(run) = self.state.run(*run) {
                    self.requests.answer(*request, AdmissionAnswer::MeasureDepth { run, exact: *exact });
                }
            }
            SchedulerEffect::Suspected { request, model, kills } => {
                self.deadly.suspected(*request, *model, *kills);
            }
            SchedulerEffect::Survey { model } => drop(spawn_local(survey::survey(self.me(), *model))),
            SchedulerEffect::AskNeed { model, search, sets } => {
                if let Some(demand) = self.state.statuses.demand(*model) {
                    let (model, search, answers) = (*model, *search, answers(&*demand, sets));
                    self.submit(SchedulerEvent::NeedAnswered { model, search, answers });
                }
            }
            SchedulerEffect::PlanGrowth { run, model, cards } => {
                let demand = self.state.statuses.demand(*model);
                let demand = demand.ok_or_else(|| "the model's memory has not been planned yet".to_owned());
                let curve = demand.and_then(|demand| demand.curve(cards));
                self.submit(SchedulerEvent::GrowthPlanned { run: *run, curve });
            }
            SchedulerEffect::ReadAhead { model } => self.files.ahead.read(*model, &self.state.entry(*model)),
            SchedulerEffect::ReadCards => drop(spawn_local(memory::read_for_load(self.me()))),
            SchedulerEffect::Start { run, model, placement } => {
                let entry = self.state.entry(*model);
                let overflow = self.state.overflow(*model, placement);
                let log = self.reports.model_log(*model);
                let (run, orders) = EngineRun::new(*run, *model, entry, log, placement.clone(), overflow);
                self.readings.bus.log_overflow(&run);
                // Before the task is spawned, because its first event looks the run up.
                self.state.statuses.started(*model, &run);
                self.state.engines.borrow_mut().insert(run.id, Rc::clone(&run));
                spawn_local(run::live(self.me(), run, orders));
            }
            SchedulerEffect::CheckHealth { run } => drop(spawn_local(health::check(self.me(), *run))),
            SchedulerEffect::Probe { run } => drop(spawn_local(probe::probe(self.me(), *run))),
            SchedulerEffect::Stop { run, how } => {
                if let Some(run) = self.state.run(*run) {
                    run.stop(*how);
                }
            }
            SchedulerEffect::AwaitMemory { run, taken } => {
                drop(spawn_local(memory::await_return(self.me(), *run, taken.clone())));
            }
            SchedulerEffect::StateChanged { model, state } => {
                let before = self.state.statuses.with(*model, |status| status.state.replace(*state));
                self.reports.state_changed(*model, before, *state);
                self.files.ahead.state_changed(*model, *state);
                // Another model waits for this memory, so a client that reads nothing must not hold it for
                // long.
                if *state == ModelState::Draining {
                    self.state
                        .runs()
                        .iter()
                        .filter(|run| run.model == *model)
                        .for_each(|run| run.shorten_stalls());
                }
            }
            SchedulerEffect::WakeAt(moment) => drop(self.driver.wake.send_replace(*moment)),
            SchedulerEffect::Drained => self.driver.drained.notify_waiters(),
            // Only extensions hold engines to their claims and ask other processes. A load that is given up
            // is reported alone.
            SchedulerEffect::AskNeighbours { .. }
            | SchedulerEffect::AnswerBudget { .. }
            | SchedulerEffect::GiveUpLoad { .. } => {}
            SchedulerEffect::ClaimChanged { run, share } => {
                if let Some(run) = self.state.run(*run) {
                    follow_host_claim(&self.engines.launcher, &run, share);
                }
            }
        }
    }

    /// Refuses waiting requests, lets answers finish, ends every engine; returns when none is left.
    pub async fn shut_down(&self) {
        let drained = self.driver.drained.notified();
        tokio::pin!(drained);
        // Enabled first, because the scheduler may report the end before this task waits for it.
        drained.as_mut().enable();
        self.submit(SchedulerEvent::Shutdown);
        drained.await;
    }

    /// Requests since the start, in words.
    pub fn counted(&self) -> impl fmt::Display {
        &self.reports.counts
    }

    /// Hints for the load that is under way, or the last one.
    pub fn show_hints(&self, model: ModelId, hints: Vec<Hint>) {
        self.state.statuses.with(model, |status| status.hints = hints);
    }

    /// Takes the rate of the bus that an engine's guard has measured.
    pub fn bus_measured(&self, rate: BusRate) {
        if self.readings.bus.measured(rate) {
            self.board.touch();
        }
    }

    /// Cards that are shown and not served on, by the last reading.
    pub fn other_cards(&self) -> Vec<KernelCard> {
        let is_served = |card: &&KernelCard| self.settings.card(&card.id).is_some();
        let reading = self.readings.last.borrow();
        reading.kernel_cards.iter().filter(|card| !is_served(card)).cloned().collect()
    }

    /// The status document with the marks after number `after`; 0 gives all, and the history of residency.
    fn document_after(&self, after: u64) -> Value {
        let mut document = self.board.document(after, &self.readings);
        document["server"] = self.about();
        document["downloads"] = json!(self.files.downloads.shown());
        let others = self.other_cards();
        if !others.is_empty() {
            document["other_cards"] = json!(others);
        }
        let moved = self.moved();
        if !moved.is_empty() {
            document["moved_to_host"] = json!(moved);
        }
        for extension in &self.extensions {
            extension.add_to_document(&mut document);
        }
        document
    }

    /// Ends the engine that is being asked for the memory of a model.
    pub fn end_questions(&self) {
        self.readings.answers.end();
    }

    pub fn me(&self) -> Rc<Self> {
        // `Rc::new_cyclic` made it, so it is dead only after the last owner has let go.
        self.me.upgrade().expect("the caller holds it")
    }
}

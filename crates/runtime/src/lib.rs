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
mod forecast;
mod freeing;
mod health;
mod holders;
mod host_bound;
mod key_file;
mod launch;
mod load_inputs;
mod memory;
pub mod model_files;
mod need_answers;
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
mod state_file;
mod status;
mod survey;
mod ticks;
mod traces;
mod work;
mod yields;

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Instant;

use plimsoll_base::{Bytes, CardId, Hint, IdMap};
use plimsoll_cards::Sampler;
use plimsoll_config::{Configuration, ConfiguredModel};
use plimsoll_log::Log;
use plimsoll_process::Launcher;
use plimsoll_scheduler::{
    ModelId, ModelState, Moment, RunId, Scheduler, SchedulerEffect, SchedulerEvent, SchedulerSnapshot,
};
use serde_json::Value;
use tokio::sync::mpsc;

use self::board::{Board, Webhook};
use self::deadly::DeadlyBodies;
use self::need_answers::LastAdvice;
use self::parts::{Driver, EngineStarts, ModelFiles, Readings, Reports, Turns};
use self::registry::ModelRegistry;
use self::requests::{AdmissionAnswer, RequestTable};
use self::slots::WarmSlots;
use self::status::ModelStatuses;
use self::traces::Traces;
use plimsoll_route::{self};
use plimsoll_task::spawn_local;

pub use admission::RunPass;
pub use config_error::ReadConfigError;
pub use config_file::Config;
pub use extension::{BeforeLoad, Extension};
pub use forecast::{FlagsLeftOut, Forecast, StandingConflicts, conflicts, forecast, this_host, widest};
pub use needs::{KnownNeeds, MeasuredNeeds};
pub use operator_log::{in_a_line, label};
pub use post_mortem::post_mortem;
pub use registry::UnknownCard;
pub use run::EngineRun;
pub use settings::{ConfigureError, RuntimeSettings};
pub use survey::{Asking, ExactAnswers, Patience, named};

/// Bytes of log kept for one model.
const MODEL_LOG: Bytes = Bytes::kib(256);

pub struct Runtime {
    me: Weak<Self>,
    pub settings: RuntimeSettings,
    driver: Driver,
    state: RefCell<SchedulerState>,
    requests: RequestTable,
    pub(crate) statuses: ModelStatuses,
    extensions: Vec<Rc<dyn Extension>>,
    board: Board,
    deadly: DeadlyBodies,
    engines: EngineStarts,
    readings: Readings,
    reports: Reports,
    files: ModelFiles,
    turns: Turns,
}

/// The scheduler, with the models and runs that its numbers refer to.
struct SchedulerState {
    scheduler: Scheduler,
    registry: ModelRegistry,
    runs: IdMap<RunId, Rc<EngineRun>>,
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
        let state = SchedulerState {
            scheduler: Scheduler::new(settings.scheduler.clone()),
            registry: ModelRegistry::default(),
            runs: IdMap::default(),
        };
        let slots = WarmSlots::new(settings.warm, settings.engine_user.is_some());
        let (news, heard) = mpsc::unbounded_channel();
        // Without a thread there is no webhook and no trace, and the daemon serves all the same.
        let webhook = settings.webhook.clone().and_then(|address| Webhook::start(address).ok());
        let board = Board::of(&settings.config, webhook);
        let needs = MeasuredNeeds::of(&settings.config);
        let traces = settings.traces.clone().and_then(|address| Traces::start(address).ok());
        let runtime = Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            settings,
            driver: Driver::default(),
            state: RefCell::new(state),
            requests: RequestTable::default(),
            statuses: ModelStatuses::default(),
            extensions,
            board,
            deadly: DeadlyBodies::default(),
            engines: EngineStarts::with(launcher),
            readings: Readings::of(sampler, needs, news),
            reports: Reports::to(traces),
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

    fn is_present(&self, model: ModelId) -> bool {
        self.state.borrow().registry.is_present(model)
    }

    /// Applies a list of models and returns those that have changed; unchanged ones are not touched.
    pub fn configure(&self, roster: Configuration) -> Result<Vec<ModelId>, UnknownCard> {
        let cards: Vec<_> = self.settings.cards().cloned().collect();
        let mut state = self.state.borrow_mut();
        let changes = state.registry.update(roster.models, &cards)?;
        state.registry.set_rules(&roster.serve, roster.refused);
        drop(state);
        let changed = changes.iter().map(|(id, _)| *id).collect();
        self.submit(SchedulerEvent::Configured(changes));
        self.reports.events.reloaded();
        Ok(changed)
    }

    /// Reports an event to the scheduler and carries out the effects.
    pub fn submit(&self, event: SchedulerEvent) {
        self.submit_at(self.now(), event);
    }

    /// The same at a time that the caller has just read.
    fn submit_at(&self, now: Moment, event: SchedulerEvent) {
        self.driver.queue.submit((now, event), |(now, event)| self.handle(now, event));
    }

    fn handle(&self, now: Moment, event: SchedulerEvent) {
        let mut effects = self.driver.effects.take();
        let mut state = self.state.borrow_mut();
        if let SchedulerEvent::Ended { run, .. } = &event {
            // In the same moment for both, so that the scheduler names no run that is not there.
            state.runs.remove(run);
        }
        let handled = state.scheduler.on_event(now, event, &mut effects);
        // Effects look up runs and models themselves.
        drop(state);
        self.report_stray(handled);
        let (runtime, mut advice) = (self.me(), LastAdvice::default());
        for mut effect in effects.drain(..) {
            self.name_holders_in(&mut effect);
            self.advise_in(&mut effect, &mut advice);
            let was = match &effect {
                SchedulerEffect::StateChanged { model, .. } => self.shown(*model),
                _ => ModelState::Unloaded,
            };
            self.carry_out(&effect);
            self.mark_effect(&effect, was);
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
        self.log_effect(effect);
        match effect {
            SchedulerEffect::Dispatch { request, run } => {
                if let Some(run) = self.run(*run) {
                    self.send_on(*request, run);
                }
            }
            SchedulerEffect::Refuse { request, refusal } => {
                self.answer(*request, AdmissionAnswer::Refused(refusal.clone()))
            }
            SchedulerEffect::MeasureDepth { request, run, exact } => {
                if let Some(run) = self.run(*run) {
                    self.answer(*request, AdmissionAnswer::MeasureDepth { run, exact: *exact });
                }
            }
            SchedulerEffect::Suspected { request, model, kills } => {
                self.deadly.suspected(*request, *model, *kills);
            }
            SchedulerEffect::Survey { model } => drop(spawn_local(survey::survey(self.me(), *model))),
            SchedulerEffect::AskNeed { model, search, sets } => self.answer_need(*model, *search, sets),
            SchedulerEffect::PlanGrowth { run, model, cards } => self.plan_growth(*run, *model, cards),
            SchedulerEffect::ReadAhead { model } => self.read_ahead(*model),
            SchedulerEffect::ReadCards => drop(spawn_local(memory::read_for_load(self.me()))),
            SchedulerEffect::Start { run, model, placement } => {
                let entry = self.entry(*model);
                let overflow = self.overflow(*model, placement);
                let log = self.model_log(*model);
                let run = EngineRun::new(*run, *model, entry, log, placement.clone(), overflow);
                self.log_overflow(&run);
                // Before the task is spawned, because its first event looks the run up.
                self.statuses.started(*model, &run);
                self.state.borrow_mut().runs.insert(run.id, Rc::clone(&run));
                spawn_local(run::live(self.me(), run));
            }
            SchedulerEffect::CheckHealth { run } => drop(spawn_local(health::check(self.me(), *run))),
            SchedulerEffect::Probe { run } => drop(spawn_local(probe::probe(self.me(), *run))),
            SchedulerEffect::Stop { run, how } => {
                if let Some(run) = self.run(*run) {
                    run.stop(*how);
                }
            }
            SchedulerEffect::AwaitMemory { run, taken } => {
                drop(spawn_local(memory::await_return(self.me(), *run, taken.clone())));
            }
            SchedulerEffect::StateChanged { model, state } => {
                let before = self.statuses.with(*model, |status| status.state.replace(*state));
                self.report_state(*model, before, *state);
                self.files.ahead.state_changed(*model, *state);
                // Another model waits for this memory, so a client that reads nothing must not hold it for
                // long.
                if *state == ModelState::Draining {
                    self.shorten_stalls(*model);
                }
            }
            SchedulerEffect::WakeAt(moment) => drop(self.driver.wake.send_replace(*moment)),
            SchedulerEffect::Drained => self.driver.drained.notify_waiters(),
            // Only extensions hold engines to their claims and ask other processes. A load that is given up
            // is reported alone.
            SchedulerEffect::AskNeighbours { .. }
            | SchedulerEffect::AnswerBudget { .. }
            | SchedulerEffect::GiveUpLoad { .. } => {}
            SchedulerEffect::ClaimChanged { run, share } => self.follow_host_claim(*run, share),
        }
    }

    pub fn run(&self, run: RunId) -> Option<Rc<EngineRun>> {
        self.state.borrow().runs.get(&run).cloned()
    }

    pub fn runs(&self) -> Vec<Rc<EngineRun>> {
        self.state.borrow().runs.values().cloned().collect()
    }

    /// Runs that could be sent a request and have none.
    pub fn idle_runs(&self) -> Vec<RunId> {
        self.state.borrow().scheduler.idle_runs()
    }

    /// The models of the configuration.
    pub fn present(&self) -> Vec<(ModelId, Rc<ConfiguredModel>)> {
        let state = self.state.borrow();
        let present = state.registry.present();
        present.map(|(id, entry)| (id, Rc::clone(entry))).collect()
    }

    pub fn scheduler_snapshot(&self) -> SchedulerSnapshot {
        self.state.borrow().scheduler.snapshot(self.now())
    }

    /// Publishes the state of a model, with `info` about it, to event streams.
    fn publish(&self, model: ModelId, state: ModelState, info: &Value) {
        self.reports.events.state_changed(&self.entry(model).name, state, info);
    }

    /// Publishes a model's new state, unless clients have the same word for the state before.
    fn report_state(&self, model: ModelId, before: Option<ModelState>, state: ModelState) {
        let is_new =
            before.is_none_or(|before| plimsoll_route::status(before) != plimsoll_route::status(state));
        // A loaded model is told by its run, which knows what the engine says of it.
        if is_new && state != ModelState::Ready {
            self.publish(model, state, &Value::Null);
        }
    }

    fn find(&self, name: &str) -> Option<ModelId> {
        self.state.borrow().registry.find(name)
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
        self.statuses.with(model, |status| status.hints = hints);
    }

    pub fn up_since(&self) -> Instant {
        self.driver.start
    }

    fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    fn moment(&self, time: Instant) -> Moment {
        Moment::at(time.saturating_duration_since(self.driver.start))
    }

    pub fn me(&self) -> Rc<Self> {
        // `Rc::new_cyclic` made it, so it is dead only after the last owner has let go.
        self.me.upgrade().expect("the caller holds it")
    }

    pub fn entry(&self, model: ModelId) -> Rc<ConfiguredModel> {
        Rc::clone(self.state.borrow().registry.entry(model))
    }

    fn shown(&self, model: ModelId) -> ModelState {
        self.statuses.with(model, |status| status.state.unwrap_or(ModelState::Unloaded))
    }

    fn model_log(&self, model: ModelId) -> Log {
        // Made on demand, because many models of a long configuration never start.
        let make = || {
            let file = self.settings.log_file.clone();
            Log::feeding(&self.entry(model).name, MODEL_LOG, &self.reports.log, file)
        };
        self.statuses.log(model, make)
    }

    /// The name of a card for the operator: its own, with its identifier if other cards share the name.
    pub fn label(&self, id: &CardId) -> String {
        let cards: Vec<_> = self.settings.cards().collect();
        label(&cards, id)
    }
}

//! Holds the scheduler, tells it what happened, and does what it says.
//!
//! Everything here lives on one thread. An event is taken by [`Owner::submit`], which asks the scheduler and
//! carries its effects out before it returns; whatever takes time (a survey, a child, a wait for memory) goes
//! on as a task and comes back as an event. So there is no lock, and nobody else decides anything.

mod forecast;
mod gauges;
mod guard;
mod harbor;
mod memory;
mod neighbours;
mod notes;
mod pass;
mod roll;
mod run;
mod survey;
mod talk;
mod unified;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Card};
use plimsoll_config::{Entry, GuardWish, ReclaimBeforeLoad};
use plimsoll_launch::{Launcher, Log, LogFile};
use plimsoll_probe::{Reading, Sampler};
use plimsoll_scheduler::place::Ledger;
use plimsoll_scheduler::{Effect, Event, ModelId, Moment, RequestId, RunId, Scheduler};
use serde_json::Value;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::spawn_local;

use self::guard::Guard;
use self::notes::Notes;
use self::pass::Answer;
use self::roll::Roll;
use self::run::Run;
use crate::config_file::{Config, ReadConfigError};
use crate::route::{Events, Harbor};

use self::talk::Talk;
pub(crate) use forecast::forecast;
pub use forecast::{Forecast, widest};
pub use roll::UnknownCard;

/// Bytes of log kept for one model, and for all together.
const MODEL_LOG: Bytes = Bytes::kib(256);
const WHOLE_LOG: Bytes = Bytes::mib(1);

/// What the owner needs to know beside the models.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) config: PathBuf,
    pub(crate) settings: plimsoll_scheduler::Settings,
    /// The program of models that give only flags, where the user chose one.
    pub(crate) engine: Option<Vec<String>>,
    /// How long a request may wait for its model.
    pub(crate) wait: Duration,
    /// What guard does for models that say nothing of it.
    pub(crate) guard: GuardWish,
    /// How long neighbours may take to give back what they hold idle; none are asked where that is no time.
    pub(crate) ask: Duration,
    /// The cards take the host's memory.
    pub(crate) unified: bool,
    /// What is done before a load where they do.
    pub(crate) reclaim_before_load: ReclaimBeforeLoad,
    /// Where engines' lines go beside the ring.
    pub(crate) log_file: Option<LogFile>,
}

impl Terms {
    /// The cards that are served from, in their order.
    fn cards(&self) -> impl Iterator<Item = &Card> {
        self.settings.cards.iter().map(|limit| &limit.card)
    }

    /// The same, each with what it has for us if nobody else is on it.
    fn served(&self) -> Vec<Card> {
        forecast::served(&Ledger::new(self.settings.cards.clone()))
    }
}

/// Says whether models could be taken over: whether the cards that they name are there.
pub(crate) fn check(models: Vec<Entry>, cards: &[Card]) -> Result<(), UnknownCard> {
    Roll::check(models, cards)
}

/// A configuration that cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    #[error(transparent)]
    Read(#[from] ReadConfigError),
    #[error(transparent)]
    Card(#[from] UnknownCard),
}

pub(crate) struct Owner {
    me: Weak<Self>,
    start: Instant,
    terms: Terms,
    launcher: Launcher,
    sampler: Sampler,
    /// The cards when they were last read.
    reading: RefCell<Reading>,
    state: RefCell<Books>,
    notes: Notes,
    guard: Guard,
    /// Whoever makes room before a load does it alone.
    reclaiming: Arc<tokio::sync::Mutex<()>>,
    talk: Talk,
    next_request: Cell<u64>,
    wake: watch::Sender<Moment>,
    drained: Notify,
    events: Events,
    log: Log,
}

struct Books {
    scheduler: Scheduler,
    roll: Roll,
    /// Requests that the scheduler has not answered yet.
    waiting: HashMap<RequestId, oneshot::Sender<Answer>>,
    runs: HashMap<RunId, Rc<Run>>,
}

impl Owner {
    /// Starts with no models; call inside a `LocalRuntime` or a `LocalSet`.
    pub(crate) fn start(terms: Terms, launcher: Launcher, sampler: Sampler) -> Rc<Self> {
        let guard = Guard::new(terms.guard, terms.cards().map(|card| card.kind));
        let settings = plimsoll_scheduler::Settings {
            asks: guard.is_there() && !terms.ask.is_zero(),
            ..terms.settings.clone()
        };
        let books = Books {
            scheduler: Scheduler::new(settings),
            roll: Roll::default(),
            waiting: HashMap::new(),
            runs: HashMap::new(),
        };
        let owner = Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            start: Instant::now(),
            terms,
            launcher,
            sampler,
            reading: RefCell::default(),
            state: RefCell::new(books),
            notes: Notes::default(),
            guard,
            reclaiming: Arc::default(),
            talk: Talk::default(),
            next_request: Cell::new(0),
            wake: watch::Sender::new(Moment::NEVER),
            drained: Notify::new(),
            events: Events::default(),
            log: Log::new("plimsoll", WHOLE_LOG),
        });
        spawn_local(tick(Rc::clone(&owner)));
        spawn_local(memory::watch(Rc::clone(&owner)));
        spawn_local(guard::watch(Rc::clone(&owner)));
        owner
    }

    /// Reads a configuration and takes it over; what is wrong with it changes nothing.
    pub(crate) fn read_config(&self, path: &Path) -> Result<usize, ConfigureError> {
        let config = Config::read(path)?;
        config.warn();
        let changed = self.configure(config.roster.models)?;
        let count = changed.len();
        let present = changed.into_iter().filter(|id| self.is_present(*id)).collect();
        spawn_local(self.me().foresee(present));
        Ok(count)
    }

    fn is_present(&self, model: ModelId) -> bool {
        let books = self.state.borrow();
        books.roll.present().any(|(id, _)| id == model)
    }

    /// Takes models over and returns those that have changed; those that are as they were are not touched.
    pub(crate) fn configure(&self, models: Vec<Entry>) -> Result<Vec<ModelId>, UnknownCard> {
        let cards: Vec<_> = self.terms.cards().cloned().collect();
        let changes = self.state.borrow_mut().roll.update(models, &cards)?;
        let changed = changes.iter().map(|(id, _)| *id).collect();
        self.submit(Event::Configured(changes));
        self.events.reloaded();
        Ok(changed)
    }

    /// Tells the scheduler what happened and carries out what follows from it.
    fn submit(&self, event: Event) {
        let mut effects = Vec::new();
        self.state
            .borrow_mut()
            .scheduler
            .on_event(self.now(), event, &mut effects);
        for effect in effects {
            self.carry_out(effect);
        }
    }

    /// Never submits by itself: what comes of an effect comes back from a task.
    fn carry_out(&self, effect: Effect) {
        self.tell_operator(&effect);
        match effect {
            Effect::Dispatch { request, run } => self.dispatch(request, run),
            Effect::Refuse { request, refusal } => self.answer(request, Answer::Refused(refusal)),
            Effect::Sound { request, run, exact } => {
                let run = self.state.borrow().runs.get(&run).cloned();
                if let Some(run) = run {
                    self.answer(request, Answer::Sound { run, exact });
                }
            }
            Effect::Survey { model } => drop(spawn_local(survey::survey(self.me(), model))),
            Effect::Start {
                run,
                model,
                placement,
            } => {
                let run = Run::new(run, model, self.entry(model), self.model_log(model), placement);
                self.notes.started(model, &run);
                self.state.borrow_mut().runs.insert(run.id, Rc::clone(&run));
                spawn_local(run::live(self.me(), run));
            }
            Effect::Stop { run, how } => {
                if let Some(run) = self.state.borrow().runs.get(&run) {
                    run.stop(how);
                }
            }
            Effect::AwaitMemory { run, taken } => {
                drop(spawn_local(memory::await_return(self.me(), run, taken)))
            }
            Effect::AskNeighbours { model } => drop(spawn_local(neighbours::ask_around(self.me(), model))),
            Effect::Pleaded { run, claim } => self.answer_plea(run, claim),
            Effect::Claimed { run, share } => self.follow_claim(run, &share),
            Effect::Changed { model, state } => {
                self.notes.with(model, |note| note.state = Some(state));
                self.tell(model, state, &Value::Null);
            }
            Effect::WakeAt(moment) => drop(self.wake.send_replace(moment)),
            Effect::Drained => self.drained.notify_waiters(),
        }
    }

    fn dispatch(&self, request: RequestId, run: RunId) {
        let run = self.state.borrow().runs.get(&run).cloned();
        if let Some(run) = run {
            self.answer(request, Answer::Go(run));
        }
    }

    /// A request whose client has left meanwhile has said so itself.
    fn answer(&self, request: RequestId, answer: Answer) {
        let waiting = self.state.borrow_mut().waiting.remove(&request);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// Tells whoever watches that a model's state is `state`, with what goes with it.
    fn tell(&self, model: ModelId, state: plimsoll_scheduler::State, info: &Value) {
        self.events.state_changed(&self.entry(model).name, state, info);
        self.events.show(|| self.snapshot());
    }

    /// Refuses what waits, lets answers finish, ends every engine; returns when none is left.
    pub(crate) async fn shut_down(&self) {
        let drained = self.drained.notified();
        tokio::pin!(drained);
        drained.as_mut().enable();
        self.submit(Event::Shutdown);
        drained.await;
    }

    fn now(&self) -> Moment {
        Moment::at(self.start.elapsed())
    }

    fn me(&self) -> Rc<Self> {
        self.me.upgrade().expect("whoever calls holds it")
    }

    fn entry(&self, model: ModelId) -> Rc<Entry> {
        Rc::clone(self.state.borrow().roll.entry(model))
    }

    fn shown(&self, model: ModelId) -> plimsoll_scheduler::State {
        self.notes.with(model, |note| {
            note.state.unwrap_or(plimsoll_scheduler::State::Unloaded)
        })
    }

    fn model_log(&self, model: ModelId) -> Log {
        let make = || {
            Log::feeding(
                &self.entry(model).name,
                MODEL_LOG,
                &self.log,
                self.terms.log_file.clone(),
            )
        };
        self.notes.log(model, make)
    }
}

/// Sends the scheduler its ticks: one sleep, moved whenever it wants to be woken at another time.
async fn tick(owner: Rc<Owner>) {
    let mut wake = owner.wake.subscribe();
    loop {
        let moment = *wake.borrow_and_update();
        let left = moment.since(owner.now());
        let changed = wake.changed();
        if moment == Moment::NEVER {
            let _ = changed.await;
        } else if tokio::time::timeout(left, changed).await.is_err() {
            owner.wake.send_replace(Moment::NEVER);
            owner.submit(Event::Tick);
        }
    }
}

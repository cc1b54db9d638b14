//! Finds out before a load (by a survey) whether a model can load at all, and how much memory it needs.
//!
//! The need follows from flags and file headers, unless the user declared it. A model of unknown need gets a
//! card to itself.

mod asking;
pub(super) mod engine_cards;
pub(super) mod host_cache;
mod local_files;
pub mod named;
mod overlong;
mod part;
mod planned;
mod profile;
mod questions;
mod remote;

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::{Bytes, Card, DeclaredSize, DividedSize, MemoryModel, NamedDemand, Reason, UnknownSize};
use plimsoll_config::{ConfiguredModel, TooLarge};
use plimsoll_engine::program::{EngineOrigin, EngineProgram, identify};
use plimsoll_flags::{ModelParams, Options, ProgramKind};
use plimsoll_plan::Models;
use plimsoll_planner::{EngineBuild, EngineKind};
use plimsoll_probe::headers::read_model;
use plimsoll_process::find_program;
use plimsoll_scheduler::place::Ledger;
use plimsoll_scheduler::{CardLimit, ModelId, ModelState, SchedulerEvent};
use tokio::sync::mpsc;

pub use self::asking::{ExactAnswers, Patience};
use self::named::OnNamed;
pub(super) use self::overlong::overlong;
use self::part::PartOfCards;
use self::planned::PlannedModel;
pub(super) use self::profile::profile;
use self::questions::{Asking, ModelQuestions};
use super::forecast::served;
use super::launch::{command_line, engine_command, single_program, unstartable, unstartable_because};
use super::load_inputs::LoadInputs;
use super::needs::{KnownNeeds, MeasuredNeeds};
use super::{Runtime, RuntimeSettings};
use plimsoll_route::ModelService;
use plimsoll_task::spawn_blocking;

/// Answers the scheduler's Survey. Files and programs are read on another thread.
pub(super) async fn survey(runtime: Rc<Runtime>, model: ModelId) {
    let entry = ConfiguredModel::clone(&runtime.state.entry(model));
    let (name, surveyor) = (entry.name.clone(), runtime.readings.surveyor(Patience::Known));
    // A header may lie on a network file system that takes seconds.
    let looked = spawn_blocking(move || {
        let program = surveyor.program(&entry);
        let inputs = LoadInputs::of(&entry, program.as_ref().ok().map(|program| &*program.path));
        (Some(inputs), program.and_then(|program| surveyor.look(&entry, &program)))
    });
    let (inputs, result) = looked.await.unwrap_or_else(|error| (None, Err(unstartable(&name, &error))));
    let statuses = &runtime.state.statuses;
    let result = match statuses.lasting_failure(model, inputs) {
        Some(reason) => Err(reason),
        None => result,
    };
    if let Ok(demand) = &result {
        for extension in &runtime.extensions {
            extension.surveyed(model, demand);
        }
        statuses.with(model, |status| status.demand = Some(Arc::clone(demand)));
        runtime.reports.operator_log.lowered(model, demand.lowered_context());
    }
    let result = result.map(|demand| demand.need());
    runtime.submit(SchedulerEvent::Surveyed { model, result });
}

/// Reports the models whose engines have answered, with their needs; a model that waits for room is surveyed
/// again.
pub(super) async fn hear(runtime: Rc<Runtime>, mut news: mpsc::UnboundedReceiver<String>) {
    while let Some(name) = news.recv().await {
        let Some(model) = runtime.resolve(&name) else { continue };
        if runtime.state.statuses.shown(model) == ModelState::Queued {
            survey(Rc::clone(&runtime), model).await;
        }
        Rc::clone(&runtime).foresee(vec![model]).await;
    }
}

/// What surveys go by, besides the files of the models. It can be sent to a thread that reads those.
#[derive(Debug)]
pub struct Surveyor {
    /// The program of models that give only flags, if the user chose one.
    pub(super) engine: Option<Vec<String>>,
    pub(super) limits: Vec<CardLimit>,
    /// Variables that engines inherit from the daemon.
    inherited: Vec<(OsString, OsString)>,
    /// Access to the answers of engines; `None` where they are not asked.
    asking: Option<Asking>,
    known: Arc<KnownNeeds>,
}

impl Surveyor {
    /// An engine with a user of its own is not asked: it would run with the daemon's rights.
    pub fn new(
        settings: &RuntimeSettings,
        answers: &ExactAnswers,
        needs: &MeasuredNeeds,
        patience: Patience,
    ) -> Self {
        let (answers, inherited) = (answers.clone(), settings.inherited.clone());
        Self {
            engine: settings.engine.clone(),
            limits: settings.scheduler.cards.clone(),
            inherited: settings.inherited.clone(),
            asking: settings.engine_user.is_none().then_some(Asking { answers, inherited, patience }),
            known: needs.known(),
        }
    }

    /// The cards, each with the memory that it would have for models if it were empty.
    pub(super) fn cards(&self) -> Vec<Card> {
        served(&Ledger::new(self.limits.clone()))
    }

    pub(super) fn program(&self, entry: &ConfiguredModel) -> Result<FoundProgram, Reason> {
        FoundProgram::of(entry, self.engine.as_deref())
    }

    /// Surveys a model with this program for empty cards. A measured need is taken in place of an unknown
    /// one.
    pub(super) fn look(
        &self,
        entry: &ConfiguredModel,
        program: &FoundProgram,
    ) -> Result<Arc<dyn MemoryModel>, Reason> {
        let demand = look_with(entry, program, (&self.cards(), &self.inherited), self.asking.as_ref())?;
        Ok(self.known.instead(entry, demand))
    }
}

/// The program of a model, as it would be started.
#[derive(Debug, Default)]
pub(super) struct FoundProgram {
    /// Result of [`engine_command`].
    engine: Vec<String>,
    /// The first word of the command line.
    word: String,
    pub(super) path: PathBuf,
}

impl FoundProgram {
    pub(super) fn of(entry: &ConfiguredModel, configured: Option<&[String]>) -> Result<Self, Reason> {
        let fail = |error: &dyn std::error::Error| unstartable(&entry.name, error);
        let engine = engine_command(entry, configured).map_err(|error| fail(&error))?;
        // The port does not matter here; only the program is looked up.
        let line = command_line(entry, &engine, 0, None);
        let word = line.into_iter().next().unwrap_or_default();
        let path = find_program(word.as_ref(), None, std::env::var_os("PATH").as_deref());
        Ok(Self { path: path.map_err(|error| fail(&error))?, engine, word })
    }
}

/// Surveys a model with this program; with none, a plan is that of the newest build that the formulas cover.
fn look_with(
    entry: &ConfiguredModel,
    program: &FoundProgram,
    (cards, inherited): (&[Card], &[(OsString, OsString)]),
    asking: Option<&Asking>,
) -> Result<Arc<dyn MemoryModel>, Reason> {
    let backends = engine_cards::backends(entry, Some(&program.path), inherited, cards);
    let excluded = engine_cards::excluded(entry, &backends, cards);
    let excluded = excluded.map_err(|cause| unstartable_because(&entry.name, cause))?;
    let usable: Vec<Card> = cards.iter().filter(|card| !excluded.contains(&card.id)).cloned().collect();
    let (named, demand) = look_on(entry, program, &usable, asking)?;
    Ok(OnNamed::around(NamedDemand { excluded, ..named }, demand))
}

/// The same among the cards that the engine can use.
fn look_on(
    entry: &ConfiguredModel,
    FoundProgram { engine, word, path }: &FoundProgram,
    cards: &[Card],
    asking: Option<&Asking>,
) -> Result<(NamedDemand, Arc<dyn MemoryModel>), Reason> {
    let fail = |error: &dyn std::error::Error| unstartable(&entry.name, error);
    let Some(options) = entry.launch.options() else {
        let demand: Arc<dyn MemoryModel> = match (entry.memory, entry.part()) {
            (Some(bytes), part) => match PartOfCards::beyond(entry.part_or_usual(), bytes, cards) {
                Some(part) => Arc::new(part),
                None => declared(bytes, part.is_some_and(|part| part.cards > 1)),
            },
            (None, Some(part)) => Arc::new(PartOfCards { part, declared: None }),
            // On another machine; this one's memory is the user's to say.
            (None, None) if entry.is_foreign() => Arc::new(DeclaredSize(Bytes::ZERO)),
            (None, None) => Arc::new(UnknownSize),
        };
        return Ok((NamedDemand::default(), demand));
    };
    let flags = named::flags(entry, options);
    let params = flags.and_then(|flags| Ok((flags.params(ProgramKind::LlamaServer)?, flags)));
    Ok(match (entry.memory, params) {
        // A declared need does not depend on flags, so unknown ones do no harm.
        (Some(bytes), Err(_)) => (NamedDemand::default(), Arc::new(DeclaredSize(bytes))),
        (None, Err(error)) => return Err(fail(&error)),
        (memory, Ok((params, flags))) => {
            local_files::check(entry, engine, path, &params).map_err(|error| fail(&error))?;
            let named = named::named(entry, &flags, &params, cards).map_err(|error| fail(&error))?;
            match memory {
                Some(bytes) => {
                    let several = named.cards.len() > 1;
                    (named, declared(bytes, several))
                }
                None => {
                    let single = single_program(entry, engine);
                    let requested = single.and_then(|file| ModelQuestions::new(entry, file, &flags, asking));
                    let demand = planned(entry, flags, params, word, (&named, cards), requested)?;
                    (named, demand)
                }
            }
        }
    })
}

/// A declared size, on one card or on those that the program names itself.
fn declared(bytes: Bytes, several: bool) -> Arc<dyn MemoryModel> {
    if several { Arc::new(DividedSize(bytes)) } else { Arc::new(DeclaredSize(bytes)) }
}

/// Plans a model; one on a server whose header cannot be fetched is of unknown need until it has been
/// measured.
fn planned(
    entry: &ConfiguredModel,
    flags: Options,
    params: ModelParams,
    program: &str,
    (named, machine): (&NamedDemand, &[Card]),
    questions: Option<ModelQuestions>,
) -> Result<Arc<dyn MemoryModel>, Reason> {
    let identified = engine_of(program);
    let engine = identified.unwrap_or(EngineBuild::LLAMA_CPP);
    let dialect = engine.kind.dialect();
    let read =
        |path: &str| read_model(path.as_ref(), dialect).map_err(|error| unstartable(&entry.name, &error));
    let found = remote::models(entry, &flags, &params, dialect);
    let Some(model) = params.model.as_deref().map(read).transpose()?.or(found.main) else {
        return Ok(Arc::new(UnknownSize));
    };
    // An engine that is asked would download a model that it lacks, and others than llama.cpp log other
    // lines.
    let is_here = params.remote_sources().iter().all(|source| source.is_none());
    let is_llama = identified.is_some_and(|engine| engine.kind == EngineKind::LlamaCpp);
    let questions = questions.filter(|_| is_here && is_llama);
    let host = host_cache::host(machine);
    let models = Models {
        main: model,
        draft: params.draft_model.as_deref().map(read).transpose()?.or(found.draft),
        projector: params.projector.as_deref().map(read).transpose()?.or(found.projector),
    };
    let planned = PlannedModel {
        host: host.map(|host| host.id.clone()),
        prompt_cache: host.map(|host| plimsoll_plan::prompt_cache(&flags, host)),
        estimate: plimsoll_exact::estimate(models, engine, ProgramKind::LlamaServer),
        flags,
        machine: machine.to_vec(),
        too_large: entry.too_large,
        spill: entry.spill,
        lowered: None,
        questions,
    };
    if entry.spill.is_some() {
        planned.check_spill(entry, named).map_err(|cause| unstartable_because(&entry.name, cause))?;
    }
    Ok(Arc::new(match entry.too_large {
        TooLarge::LowerContext => planned.with_context_that_fits(entry, named, params.fit_context),
        TooLarge::Refuse | TooLarge::LimitDepth => planned,
    }))
}

/// Engine for the plan; `None` for one that does not identify itself, which is planned as the newest build
/// that the formulas cover.
fn engine_of(program: &str) -> Option<EngineBuild> {
    let program = EngineProgram { path: program.into(), origin: EngineOrigin::Configured };
    identify(&program).ok().map(|identity| identity.engine)
}

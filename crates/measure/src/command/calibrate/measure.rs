//! Measures the memory of an engine on one card, after the load and after a prompt.
//!
//! The CUDA context's memory is the driver's figure for the process minus the memory that the engine
//! requested.

mod look;
mod wait;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes as Body;
use http::Method;
use plimsoll_base::{Bytes, Card, indented};
use plimsoll_cards::Sampler;
use plimsoll_engine::program::EngineProgram;
use plimsoll_engine::{
    Child, ChildEvent, ChildSpec, EngineAddress, Readiness, StopWay, Visible, VisibleCards,
    child_environment, free_port,
};
use plimsoll_log::Log;
use plimsoll_planner::EngineBuild;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::guard::{PAGES, Preload, preload};
use plimsoll_process::confinement::Confinement;
use plimsoll_process::{Environment, Launcher};
use plimsoll_verb::report::ErrorReport;
use plimsoll_wire::options::GuardOptions;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use self::look::CalibrationLook;
use self::wait::{ended, ready};
use super::subject;
use crate::load::{Client, LoadFailure, Target};

// The first prompt loads kernels from disk, which takes seconds on a machine with cold caches.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
// After this the launcher sends SIGKILL; an idle llama-server ends sooner.
const END_WITHIN: Duration = Duration::from_secs(5);
// Enough for the start-up lines that an error quotes; the log lives in memory.
const LOG: Bytes = Bytes::mib(1);
const NO_FOLDER: &str = "cannot make a folder for the test model and guard's shared-memory files";
/// Ports that are tried for one card.
const TRIES: u32 = 5;
/// Words of the prompt: more columns than the kernels accept that llama.cpp prefers over cuBLAS for small
/// matrices, and few enough for any context.
const WORDS: usize = 200;
// More than one, so that the decode graph of a single token runs as well as the prompt's.
const ANSWER_TOKENS: u32 = 8;

// Guard (the preloaded library) measures a context only on a card with a budget, so the budget is the whole
// card.
/// Reason why a card could not be measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
    #[error("{0}")]
    Rig(ErrorReport),
    #[error(
        "the engine ended before it was ready; its last lines were:{}\nhint: run the engine by hand; the \
        cause may be a build without CUDA or a card without free memory",
        indented(.0)
    )]
    Ended(String),
    #[error(
        "another process took the engine's port in every attempt\nhint: try again when the machine is less \
        busy"
    )]
    PortTaken,
    #[error("the engine was not ready within {seconds} s; its last lines were:{}", indented(.last))]
    Late { seconds: u64, last: String },
    #[error(
        "the engine allocated no memory on the card\nhint: calibration needs an engine built with CUDA; \
        name another engine with --engine"
    )]
    NotOnCard,
    #[error(
        "the driver does not list the engine's process, as happens in a container with a separate PID \
        namespace\nhint: start the container with --pid=host, or pass --alone if nothing else uses the card"
    )]
    Nameless,
    #[error("the driver does not report the card's free memory\nhint: omit --alone")]
    FreeUnknown,
    #[error(
        "the driver reports {used} for the engine, but guard counted {requested} of allocations, which is \
        more\nhint: try again when nothing else uses the card"
    )]
    Less { used: Bytes, requested: Bytes },
}

/// Failures that stop every measurement.
impl From<ErrorReport> for MeasureError {
    fn from(error: ErrorReport) -> Self {
        Self::Rig(error)
    }
}

/// The measured sizes of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) context: Bytes,
    pub(super) opened: Option<Bytes>,
    pub(super) cublas: Option<Bytes>,
}

/// Engine, guard, sampler and folder shared by all measurements.
#[derive(Debug)]
pub(super) struct MeasuringSetup {
    program: EngineProgram,
    engine: EngineBuild,
    guard: PathBuf,
    sampler: Sampler,
    launcher: Launcher,
    folder: OwnedFolder,
    model: PathBuf,
    alone: bool,
}

/// A running engine on one card.
struct CalibrationRun<'a> {
    rig: &'a MeasuringSetup,
    card: &'a Card,
    pages: PathBuf,
    child: Child,
    port: u16,
    /// Free memory of the card before the engine started.
    free: Option<Bytes>,
}

impl MeasuringSetup {
    pub(super) fn new(
        program: EngineProgram,
        engine: EngineBuild,
        guard: PathBuf,
        sampler: Sampler,
        alone: bool,
    ) -> Result<Self, ErrorReport> {
        let folder = OwnedFolder::create(PAGES).map_err(ErrorReport::of(NO_FOLDER))?;
        let model = folder.path().join("model.gguf");
        subject::write(&model)?;
        Ok(Self { program, engine, guard, sampler, launcher: Launcher::start()?, folder, model, alone })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program.path
    }

    /// Measures the size of a context of the engine on this card, and frees the card again. Retries where
    /// another process took the port in the meantime.
    pub(super) async fn measure(&self, card: &Card) -> Result<Measured, MeasureError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.measure_once(card).await {
                Err(MeasureError::PortTaken) if tries < TRIES => {}
                other => return other,
            }
        }
    }

    async fn measure_once(&self, card: &Card) -> Result<Measured, MeasureError> {
        // Read before the engine starts: `--alone` subtracts the later free memory from this value.
        let free = self.sampler.read().await.free_on(&card.id);
        let (run, mut events) = self.start(card, free).await?;
        let measured = self.measured(&run, &mut events).await;
        // The engine is stopped on failure too; the next card's reading must not see this one's memory.
        run.child.stop(END_WITHIN);
        ended(&mut events).await;
        measured
    }

    async fn measured(
        &self,
        run: &CalibrationRun<'_>,
        events: &mut Receiver<ChildEvent>,
    ) -> Result<Measured, MeasureError> {
        ready(events, run.child.log()).await?;
        // `/health` turns 200 after the warm-up run, so all graphs of a single token exist by now.
        let loaded = run.look().await?;
        let (context, opened) = (loaded.context()?, loaded.opened());
        if opened.is_none() {
            tracing::warn!(
                "{}: the memory of a new context was not measured, because NVML reported no figure to guard",
                run.card.name
            );
        }
        // A failed prompt loses only the cuBLAS size; the context is measured and worth keeping.
        let cublas = match run.prompt().await {
            Ok(()) => Some(self.cublas(run.card, loaded, run.look().await?)?),
            Err(failure) => {
                tracing::warn!("{}: the memory of cuBLAS was not measured: {failure}", run.card.name);
                None
            }
        };
        Ok(Measured { context, opened, cublas })
    }

    /// Memory that the prompt added permanently, minus the planned size of the run-time pool.
    fn cublas(
        &self,
        card: &Card,
        loaded: CalibrationLook,
        requested: CalibrationLook,
    ) -> Result<Bytes, MeasureError> {
        let pool = subject::pool(&self.model, self.engine, card)?;
        Ok(requested.used.saturating_sub(loaded.used).saturating_sub(pool))
    }

    async fn start<'a>(
        &'a self,
        card: &'a Card,
        free: Option<Bytes>,
    ) -> Result<(CalibrationRun<'a>, Receiver<ChildEvent>), ErrorReport> {
        let port = free_port(&[]).map_err(ErrorReport::of("no port is free on the loopback interface"))?;
        // The port makes the folder unique per attempt, so pages of a failed attempt are not read again.
        let part = format!("{}-{port}", card.id);
        let pages = self.folder.part(&part).map_err(ErrorReport::of(NO_FOLDER))?;
        let mut arguments: Vec<OsString> = subject::flags(&self.model).into_iter().map(Into::into).collect();
        arguments.extend(["--host", "127.0.0.1", "--port", &port.to_string()].map(OsString::from));
        let spec = ChildSpec {
            name: card.name.clone(),
            program: self.program.path.clone(),
            arguments,
            environment: self.environment(card, &pages),
            directory: None,
            address: EngineAddress::Port(port),
            readiness: Readiness::Health { path: "/health".to_owned() },
            stop: StopWay::Terminate,
            confinement: Confinement::default(),
            gives_up: plimsoll_doctor::gives_up,
        };
        let (child, events) = spec.start(&self.launcher, Log::new(&card.name, LOG)).await?;
        let run = CalibrationRun { rig: self, card, pages, child, port, free };
        Ok((run, events))
    }

    /// Environment with one visible card and a guard budget that makes guard measure the context. The user's
    /// `LLAMA_*` defaults are removed, because they are meant for other models.
    fn environment(&self, card: &Card, pages: &Path) -> Environment {
        // llama-server reads its defaults from `LLAMA_ARG_*`, which could change the layers, the context or
        // the model.
        let usual = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("LLAMA_"));
        let visible = Visible::Cards(VisibleCards {
            cuda: card.uuid.iter().cloned().collect(),
            ..VisibleCards::default()
        });
        let mut environment = child_environment(usual, &[], &visible, None, None);
        let mut options = GuardOptions::NONE;
        // A budget makes guard measure the context; a whole card is never refused.
        options.budget = Some(card.total.get());
        let guard = Preload { library: &self.guard, options: &options, pages, trace: None };
        preload(&mut environment, &guard);
        environment
    }
}

impl CalibrationRun<'_> {
    /// A prompt that uses cuBLAS, and a few tokens of an answer.
    async fn prompt(&self) -> Result<(), LoadFailure> {
        let target = Target { host: "127.0.0.1".to_owned(), port: self.port, base: String::new() };
        // Temperature 0 makes the answer, and with it the kernels, the same on every calibration.
        let body =
            json!({"prompt": "load line ".repeat(WORDS / 2), "n_predict": ANSWER_TOKENS, "temperature": 0});
        let mut client = Client::new(&target, None, ANSWER_WITHIN);
        let body = Body::from(body.to_string());
        client.json(Method::POST, "/completion", body).await.map(drop)
    }
}

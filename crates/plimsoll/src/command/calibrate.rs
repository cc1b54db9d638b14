//! `plimsoll calibrate`: measurement of the CUDA context's memory, stored for later plans.
//!
//! It runs a tiny model on one card of each kind, with the engine that `serve` would use. The memory of
//! context, modules and graphs is the driver's figure for the process minus the process's own requests, which
//! guard (the preloaded library) counts. Guard also measures the context when it is opened. The memory that a
//! first prompt adds, minus the run-time pool, is cuBLAS's. Exits 0 if every kind of card was measured, 1 if
//! one was not, 2 if there is nothing to measure.

mod measure;
mod subject;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::Card;
use plimsoll_launch::engine;
use plimsoll_launch::engine::{EngineError, EngineProgram, IdentityError};
use plimsoll_planner::MeasuredContext;
use plimsoll_probe::contexts::ContextsError;
use plimsoll_probe::guard::{Unreachable, unreachable};
use plimsoll_probe::library::FindLibraryError;
use plimsoll_probe::{Machine, Sampler, StartSamplerError, contexts, library};
use serde::Serialize;
use tokio::runtime;
use tokio::task::LocalSet;

use self::measure::{MeasureError, MeasuringSetup, RigError};

use crate::report::ExitStatus;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// llama-server with CUDA to measure with; by default the one that `serve` would use
    #[arg(long, value_name = "PATH")]
    engine: Option<PathBuf>,
    /// File for the table [default: plimsoll/contexts.toml in the user's configuration]
    #[arg(long, value_name = "PATH")]
    write: Option<PathBuf>,
    /// Compare free memory before and after, where the driver names no processes, as in most containers; the
    /// cards must be otherwise unused
    #[arg(long)]
    alone: bool,
    /// Print the measurements as JSON (plimsoll.calibration/1)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "there is no card to measure{}\nhint: run it where the engine will run, with NVIDIA's driver; without it `plan` takes published values", noted(.0)
    )]
    NoCard(Vec<String>),
    #[error(
        "cannot read the driver's version, and nothing is saved without it\nhint: check that `nvidia-smi` works"
    )]
    NoDriver,
    #[error("the driver did not list its cards\nhint: check that `nvidia-smi` works")]
    Silent,
    #[error(
        "no place to keep the table: neither XDG_CONFIG_HOME nor HOME is set\nhint: name a file with --write"
    )]
    NoPlace,
    #[error(transparent)]
    Find(#[from] EngineError),
    #[error(transparent)]
    Identify(#[from] IdentityError),
    #[error("the engine {} cannot be counted: {why}\nhint: name another with --engine", path.display())]
    Reach { path: PathBuf, why: Unreachable },
    #[error(transparent)]
    Library(#[from] FindLibraryError),
    #[error(transparent)]
    Sampler(#[from] StartSamplerError),
    #[error(transparent)]
    Rig(#[from] RigError),
    #[error(transparent)]
    Keep(#[from] ContextsError),
    #[error("cannot start, or write to stdout: {0}")]
    Start(#[from] io::Error),
    #[error("cannot write what was measured as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl ExitStatus for Error {
    fn is_input(&self) -> bool {
        matches!(
            self,
            Self::NoCard(_) | Self::NoPlace | Self::Find(_) | Self::Reach { .. }
        )
    }
}

fn noted(notes: &[String]) -> String {
    notes.iter().map(|note| format!(": {note}")).collect()
}

/// The measurements and failures of one run (`plimsoll.calibration/1`).
#[derive(Debug, Serialize)]
struct Calibration {
    schema: &'static str,
    engine: PathBuf,
    version: String,
    driver: String,
    contexts: Vec<MeasuredContext>,
    failures: Vec<Failed>,
    /// File that holds the table; none if nothing was measured.
    written: Option<PathBuf>,
}

/// A kind of card that could not be measured, with the reason.
#[derive(Debug, Serialize)]
struct Failed {
    card: String,
    why: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let place = arguments
        .write
        .clone()
        .or_else(contexts::place)
        .ok_or(Error::NoPlace)?;
    // Checked before the measurement: a table that cannot be written would be noticed only after a minute per
    // card.
    contexts::check(&place)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut calibration = LocalSet::new().block_on(&runtime, calibrated(arguments))?;
    // A run without any result keeps the old table, whose values may still be right.
    if !calibration.contexts.is_empty() {
        contexts::keep(&place, &calibration.contexts)?;
        calibration.written = Some(place);
    }
    let mut stdout = anstream::stdout().lock();
    match arguments.json {
        true => writeln!(stdout, "{}", serde_json::to_string_pretty(&calibration)?)?,
        false => write!(stdout, "{}", text::text(&calibration))?,
    }
    Ok(ExitCode::from(u8::from(!calibration.failures.is_empty())))
}

async fn calibrated(arguments: &Arguments) -> Result<Calibration, Error> {
    let sampler = Sampler::start()?;
    let machine = sampler.machine().await.ok_or(Error::Silent)?;
    let cards = kinds(&machine);
    if cards.is_empty() {
        return Err(Error::NoCard(machine.notes));
    }
    // The size of a context depends on the driver version, so an entry without one could never be matched.
    let driver = machine.driver.clone().ok_or(Error::NoDriver)?;
    let program = reachable(engine::find(arguments.engine.as_deref())?)?;
    let identity = engine::identify(&program)?;
    let rig = MeasuringSetup::new(
        program,
        identity.engine,
        library::GUARD.find()?,
        sampler,
        arguments.alone,
    )?;
    let mut calibration = Calibration {
        schema: "plimsoll.calibration/1",
        engine: rig.program().to_owned(),
        version: identity.version.clone(),
        driver: driver.clone(),
        contexts: Vec::new(),
        failures: Vec::new(),
        written: None,
    };
    // One card after the other: two engines at once would disturb the free memory that `--alone` compares.
    for card in cards {
        match rig.measure(card).await {
            Ok(measured) => calibration.contexts.push(MeasuredContext {
                card: card.name.clone(),
                driver: driver.clone(),
                engine: identity.engine.kind,
                build: identity.engine.build,
                context: measured.context,
                opened: measured.opened,
                cublas: measured.cublas,
                version: identity.version.clone(),
                measured: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            }),
            // The rig itself is broken (folder, port, launcher), so the other cards would fail in the same
            // way.
            Err(MeasureError::Rig(error)) => return Err(error.into()),
            Err(error) => calibration.failures.push(Failed {
                card: card.name.clone(),
                why: error.to_string(),
            }),
        }
    }
    Ok(calibration)
}

/// The first card of each kind: cards of one name have contexts of one size.
fn kinds(machine: &Machine) -> Vec<&Card> {
    let mut kinds: Vec<&Card> = Vec::new();
    // Without a UUID neither guard's page nor CUDA_VISIBLE_DEVICES can name the card.
    for card in machine.cards.iter().filter(|card| card.uuid.is_some()) {
        if !kinds.iter().any(|known| known.name == card.name) {
            kinds.push(card);
        }
    }
    kinds
}

fn reachable(program: EngineProgram) -> Result<EngineProgram, Error> {
    // A static or set-user-ID program ignores LD_PRELOAD, so guard would count nothing in it.
    match unreachable(&program.path) {
        Some(why) => Err(Error::Reach {
            path: program.path,
            why,
        }),
        None => Ok(program),
    }
}

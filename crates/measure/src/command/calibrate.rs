//! `plimsoll measure calibrate`: measures the CUDA context on each card, and stores it for later plans.
//!
//! A tiny model runs on one card of each kind. Exits 0 if every kind was measured, 1 if one was not, 2 if
//! there is nothing to measure.

mod export;
mod measure;
mod subject;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::Card;
use plimsoll_cards::{Machine, Sampler};
use plimsoll_engine::program;
use plimsoll_engine::program::EngineProgram;
use plimsoll_planner::MeasuredContext;
use plimsoll_probe::guard::unreachable;
use plimsoll_probe::{contexts, library};
use plimsoll_verb::report::{ErrorReport, print_as, status};
use serde::Serialize;
use tokio::task::LocalSet;

use self::measure::{MeasureError, MeasuringSetup};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// llama-server with CUDA to measure with; by default the one that `plimsoll serve` would use
    #[arg(long, value_name = "PATH")]
    engine: Option<PathBuf>,
    /// File for the table [default: plimsoll/contexts.toml in the user's configuration]
    #[arg(long, value_name = "PATH")]
    write: Option<PathBuf>,
    /// Compare the card's free memory before and after the engine starts. For machines on which the driver
    /// lists no processes, such as most containers; no other program may use the cards
    #[arg(long)]
    alone: bool,
    /// Measure nothing: write what is known of this machine's cards to FILE, to hand in, and print the same
    /// text; no UUID, address, path or process is in it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["engine", "write", "alone", "json"])]
    export: Option<PathBuf>,
    /// Print the measurements as JSON (plimsoll.calibration/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
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
    /// File that holds the table; `None` if nothing was measured.
    written: Option<PathBuf>,
}

/// A kind of card that could not be measured, with the reason.
#[derive(Debug, Serialize)]
struct Failed {
    card: String,
    why: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    if let Some(path) = &arguments.export {
        return export::run(path);
    }
    let place = arguments.write.clone().or_else(contexts::place).ok_or_else(|| {
        ErrorReport::input(ErrorReport::new(
            "there is no place to store the measurements: neither XDG_CONFIG_HOME nor HOME is set\nhint: \
            name a file with --write",
        ))
    })?;
    // Checked before the measurement: a table that cannot be written would be noticed only after a minute per
    // card.
    contexts::check(&place)?;
    let runtime = plimsoll_verb::runtime()?;
    let mut calibration = LocalSet::new().block_on(&runtime, calibrated(arguments))?;
    // A run without any result keeps the old table, whose values may still be right.
    if !calibration.contexts.is_empty() {
        contexts::keep(&place, &calibration.contexts)?;
        calibration.written = Some(place);
    }
    print_as(arguments.json.as_deref(), &calibration, || text::text(&calibration))?;
    Ok(status(calibration.failures.is_empty()))
}

async fn calibrated(arguments: &Arguments) -> Result<Calibration, ErrorReport> {
    let sampler = Sampler::start()?;
    let machine = sampler.machine().await.ok_or_else(|| {
        ErrorReport::new("the driver did not list its cards\nhint: check that `nvidia-smi` works")
    })?;
    let cards = kinds(&machine);
    if cards.is_empty() {
        let notes: String = machine.notes.iter().map(|note| format!(": {note}")).collect();
        return Err(ErrorReport::input(ErrorReport::new(format!(
            "there is no card to measure{notes}\nhint: run `plimsoll measure calibrate` where the engine will run, \
                with NVIDIA's driver; without a measurement, `plan` uses published values"
        ))));
    }
    // The size of a context depends on the driver version, so an entry without one could never be matched.
    let driver = machine.driver.clone().ok_or_else(|| {
        ErrorReport::new(
            "cannot read the driver's version, \
        without which no measurement is saved\nhint: check that `nvidia-smi` works",
        )
    })?;
    let program = reachable(program::find(arguments.engine.as_deref()).map_err(ErrorReport::input)?)?;
    let identity = program::identify(&program)?;
    let rig =
        MeasuringSetup::new(program, identity.engine, library::GUARD.find()?, sampler, arguments.alone)?;
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
                speed: None,
                version: identity.version.clone(),
                measured: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            }),
            // The rig itself is broken (folder, port, launcher), so the other cards would fail in the same
            // way.
            Err(MeasureError::Rig(error)) => return Err(error),
            Err(error) => {
                calibration.failures.push(Failed { card: card.name.clone(), why: error.to_string() })
            }
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

fn reachable(program: EngineProgram) -> Result<EngineProgram, ErrorReport> {
    // A static or set-user-ID program ignores LD_PRELOAD, so guard would count nothing in it.
    match unreachable(&program.path) {
        Some(why) => Err(ErrorReport::input(ErrorReport::new(format!(
            "the memory of engine {} cannot be measured: {why}\nhint: name another engine with --engine",
            program.path.display()
        )))),
        None => Ok(program),
    }
}

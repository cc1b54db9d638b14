//! `plimsoll reclaim`: shows how much memory a unified-memory machine can allocate, and frees more by the
//! least intrusive steps.
//!
//! Exits 0 if there is enough memory (with `--dry-run`: if there would be), 1 if there is not, 2 for bad
//! input.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use plimsoll_base::{Bytes, Order};
use plimsoll_cards::Sysroot;
use plimsoll_config::{Launch, reserve_size};
use plimsoll_flags::ProgramKind;
use plimsoll_host::{AllowanceGate, ReclaimGoal, StepVerdict};
use plimsoll_reclaim::{
    NeighbourSelection, ReclaimOutcome, ReclaimRequest, RootSteps, files_of, reclaim, unit,
};
use plimsoll_serve::Config;

use crate::report::{ErrorReport, print_as, print_data, status};

mod card;
mod json;
mod text;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Memory that must become free, e.g. 5GiB; may be omitted with --dry-run
    #[arg(long, value_name = "SIZE", value_parser = reserve_size, required_unless_present_any = ["print_unit", "dry_run"])]
    need: Option<Bytes>,
    /// Require blocks of at least 2^ORDER pages; 9 is a huge page of 2 MiB with 4 KiB pages
    #[arg(long, value_name = "ORDER")]
    contiguous: Option<usize>,
    /// Reclaim memory on this card (number, UUID or name) instead of the host; only guarded processes can
    /// release any
    #[arg(long, value_name = "CARD", conflicts_with_all = ["contiguous", "files", "config", "gate", "with", "sysroot", "force"])]
    card: Option<String>,
    /// Model file that plimsoll may remove from the page cache before it takes other steps. One file of a
    /// split model is enough; repeatable
    #[arg(long = "file", value_name = "MODEL")]
    files: Vec<PathBuf>,
    /// Configuration of `plimsoll serve`, used instead of --file for all models in it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the steps without taking them
    #[arg(long)]
    dry_run: bool,
    /// Also drop the page cache of the whole system (drop_caches=3), and take each step even if all of them
    /// may not free enough
    #[arg(long)]
    force: bool,
    /// What the GPU driver can allocate: only memory that is free now, or all that the kernel counts as
    /// available. The default depends on this machine's driver
    #[arg(long, value_name = "WHICH", value_parser = gate())]
    gate: Option<AllowanceGate>,
    /// Helper for the steps that need root: sudo without a password, or the systemd unit of --print-unit
    #[arg(long, value_name = "HELPER", value_parser = helper())]
    with: Option<RootSteps>,
    /// Seconds to wait for guarded processes to answer; a process can answer only when it calls the driver
    #[arg(long, value_name = "SECS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    wait: u64,
    /// Examine this folder, a copy of proc/, sys/ and etc/ from another machine, without taking any step
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "config"])]
    sysroot: Option<PathBuf>,
    /// Print as JSON (plimsoll.reclaim/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Print a systemd unit that takes the steps that need root, then exit
    #[arg(long)]
    print_unit: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    // First, because the unit may be printed on a machine that only builds an image.
    if arguments.print_unit {
        print_data(unit().map_err(ErrorReport::input)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    // A discrete card's memory is not the kernel's, so none of the host steps below would help there.
    if let Some(card) = &arguments.card {
        return card::run(arguments, card);
    }
    let tree = Sysroot::of(arguments.sysroot.as_deref()).map_err(ErrorReport::input)?;
    let request = arguments.request().map_err(ErrorReport::input)?;
    let outcome = reclaim(&tree, &request).map_err(ErrorReport::input)?;
    print_as(arguments.json.as_deref(), &json::answer(&request, &outcome), || {
        text::reported(&request, &outcome)
    })?;
    Ok(status(is_met(&request, &outcome)))
}

/// Returns true if the goal is met, or with `--dry-run` would be.
fn is_met(request: &ReclaimRequest, outcome: &ReclaimOutcome) -> bool {
    outcome.is_enough() || request.dry_run && outcome.last.verdict == StepVerdict::Reachable
}

impl Arguments {
    fn request(&self) -> Result<ReclaimRequest, ErrorReport> {
        let mut files: Vec<PathBuf> = self.files.iter().flat_map(|path| files_of(path)).collect();
        if let Some(config) = &self.config {
            files.extend(models_of(config)?);
        }
        // A sharded model names its files several times, and `--file` and `--config` may overlap. Cached
        // pages must not be counted twice.
        files.order();
        files.dedup();
        Ok(ReclaimRequest {
            goal: ReclaimGoal { need: self.need.unwrap_or_default(), order: self.contiguous },
            gate: self.gate,
            files,
            hands: self.hands(),
            whom: NeighbourSelection::Everybody,
            patience: self.patience(),
            force: self.force,
            // Steps on a captured tree would act on this machine, not on the captured one.
            dry_run: self.dry_run || self.sysroot.is_some(),
        })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.wait)
    }

    fn hands(&self) -> RootSteps {
        match &self.with {
            Some(hands) => *hands,
            // Root needs no helper, and sudo or systemd may be missing in a container.
            None if rustix::process::geteuid().is_root() => RootSteps::Own,
            None => RootSteps::None,
        }
    }
}

fn gate() -> impl TypedValueParser<Value = AllowanceGate> {
    PossibleValuesParser::new(["free", "available"]).map(|word| match word.as_str() {
        "free" => AllowanceGate::Free,
        _ => AllowanceGate::Available,
    })
}

fn helper() -> impl TypedValueParser<Value = RootSteps> {
    PossibleValuesParser::new(["sudo", "systemd"]).map(|word| match word.as_str() {
        "sudo" => RootSteps::Sudo,
        _ => RootSteps::Systemd,
    })
}

/// Existing files of all models that a configuration names.
fn models_of(config: &Path) -> Result<Vec<PathBuf>, ErrorReport> {
    let mut files = Vec::new();
    for entry in Config::read(config)?.roster.models {
        let options = match entry.launch {
            Launch::LlamaServer { options, .. } => Some(options),
            // Another engine's command line may be unknown; then its files must be named with `--file`.
            Launch::Command { options, .. } => options,
        };
        let params = options.map(|options| options.params(ProgramKind::LlamaServer)).transpose();
        let params = params.map_err(|error| ErrorReport::new(format!("{}: {error}", entry.name)))?;
        let model = params.and_then(|params| params.model).map(PathBuf::from);
        files.extend(
            model
                .into_iter()
                .flat_map(|path| files_of(&path))
                // A model that is downloaded later must not fail the whole command.
                .filter(|path| path.exists()),
        );
    }
    Ok(files)
}

//! `plimsoll pool advise`: size of an engine's run-time memory pool, its causes, and flags that make it
//! smaller.
//!
//! Exits 0 if the pool is empty or fits its budget, 1 if it does not fit, 2 if no trace can be generated.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use plimsoll_base::Bytes;

use super::run::RunArguments;
use crate::replay::advice::{AdviceQuestion, Pool, advise};
use crate::report::{ErrorReport, print_as, status};
use crate::screen;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunArguments,
    /// Pool of the engine: vmm if the card has virtual memory management and the build uses it, else legacy
    #[arg(long, value_enum, default_value_t = PoolName::Legacy)]
    pool: PoolName,
    /// Memory that is left for the pool
    #[arg(long, value_name = "SIZE")]
    budget: Option<Bytes>,
    /// Print the advice as JSON (plimsoll.pool-advice/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PoolName {
    Legacy,
    Vmm,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let run = &arguments.run;
    let advice = advise(&AdviceQuestion {
        shape: run.model,
        run: run.run(),
        card: run.card,
        kv: run.kv,
        pool: match arguments.pool {
            PoolName::Legacy => Pool::Legacy,
            PoolName::Vmm => Pool::Vmm,
        },
        budget: arguments.budget,
    });
    let advice = advice.map_err(|error| {
        ErrorReport::input(ErrorReport::new(format!("cannot generate the trace: {error}")))
    })?;
    print_as(arguments.json, &advice, || screen::advice(&advice))?;
    // Without a budget `fits` is not known, and advice alone is a success.
    Ok(status(advice.fits != Some(false)))
}

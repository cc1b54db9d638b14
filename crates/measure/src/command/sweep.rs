//! `plimsoll measure sweep`: measures memory and speed of a server at several prompt lengths, and compares
//! them with the plan.
//!
//! Exits 0 if every depth was answered, 1 if one was not, 2 for bad input, 3 if the model was stopped
//! meanwhile.

mod report;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use plimsoll_base::Bytes;
use plimsoll_cards::Sampler;
use plimsoll_planner::{CardPlan, EngineBuild, EngineKind};
use plimsoll_verb::report::{ErrorReport, NO_VERDICT, print_as, status, write_file};
use plimsoll_verb::terminal;
use plimsoll_verb::time;
use tokio::task::LocalSet;

use self::report::{SweepPlan, SweepReport, sweep_head, sweep_row};
use super::PlanOfProcess;
use super::server::{LoadedServer, with_hint};
use crate::load::{Figures, LoadFailure, LoadTarget, Sweep, SweepDepth, sweep, warm_up};

// A bound against typing errors; the server itself refuses depths beyond its context.
const MOST_DEPTH: u64 = 4 << 20;

/// Depths of a sweep for which none are given.
const USUAL: [u64; 4] = [1024, 2048, 4096, 8192];

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: LoadedServer,
    /// Model to ask for; by default the first that the server lists
    #[arg(long)]
    model: Option<String>,
    /// Prompt depths in tokens, e.g. 1k,16k; by default 1k,2k,4k,8k, as far as the context goes
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = depth)]
    depths: Vec<u64>,
    /// Ask for answers of at most this many tokens (`max_tokens`)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    answer: u64,
    /// Time limit for one answer
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    patience: Duration,
    /// Process id of the server, if it is not found by its port
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print the result as JSON (plimsoll.sweep/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Draw memory and speeds over depth into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, plan_of: PlanOfProcess) -> Result<ExitCode, ErrorReport> {
    let runtime = plimsoll_verb::runtime()?;
    let (server, sweep, plan) = LocalSet::new().block_on(&runtime, swept(arguments, plan_of))?;
    let (target, unplanned) = (server.target.to_string(), plan.as_ref().err().cloned());
    let report = SweepReport { target, model: &server.model, planned: plan.ok(), unplanned, sweep: &sweep };
    if let Some(path) = &arguments.svg {
        write_file(path, report.svg())?;
    }
    print_as(arguments.json.as_deref(), &report.json(), || report.summary())?;
    let is_answered = sweep.depths.iter().all(|depth| depth.outcome.is_ok());
    Ok(match report.stopped() {
        Some(_) if is_answered => ExitCode::from(NO_VERDICT),
        _ => status(is_answered),
    })
}

async fn swept(
    arguments: &Arguments,
    plan_of: PlanOfProcess,
) -> Result<(LoadTarget, Sweep, Result<SweepPlan, String>), ErrorReport> {
    let (url, api_key) = arguments.server.server()?;
    let target = url.to_string();
    let failed =
        |failure: LoadFailure| ErrorReport::new(format!("{target} does not answer: {}", with_hint(&failure)));
    let sampler = Sampler::start()?;
    let server = LoadTarget::meet(url, api_key, arguments.model.clone(), arguments.pid);
    let server = server.await.map_err(failed)?;
    let mut figures = Figures::new(sampler).await;
    // The first prompt loads kernels and grows pools; without a warm-up this would look like depth.
    let warm = warm_up(&server, arguments.patience, &mut figures);
    let warm = warm.await.map_err(failed)?;
    // The server may be remote, or another user's: then the sweep has no plan to compare with.
    let plan = match warm.pid {
        Some(_) => planned(&figures, warm.build, plan_of),
        None => Err(format!(
            "no process of {} was found; the server may have unloaded it for another model, or runs on another \
            machine or as another user (--pid names a process)",
            server.model
        )),
    };
    let known = plan.as_ref().ok().copied();
    let notify = |text: &str| {
        // A failed write of the table is reported with the summary.
        let _ = if arguments.json.as_deref() == Some(Path::new("-")) {
            // With `--json` stdout holds one document, so the rows go to stderr as progress.
            terminal::stderr().write_all(text.as_bytes())
        } else {
            terminal::stdout().write_all(text.as_bytes())
        };
    };
    notify(&sweep_head());
    let mut reported = |depth: &SweepDepth| notify(&sweep_row(depth, known));
    let limits = (arguments.answer, arguments.patience);
    let depths = if arguments.depths.is_empty() {
        usual_depths(server.context().await, arguments.answer)
    } else {
        arguments.depths.clone()
    };
    let sweep = sweep(&server, &warm, &depths, limits, &mut figures, &mut reported).await;
    // A process that was stopped before its flags were read has left its place to another one.
    let plan = plan.or_else(|why| planned(&figures, warm.build, plan_of).map_err(|_| why));
    Ok((server, sweep, plan))
}

/// Depths of a sweep for which none are given: those that leave room for the answer within the context, or a
/// half of it.
fn usual_depths(context: Option<u64>, answer: u64) -> Vec<u64> {
    // Words of a prompt are not exactly of the length that was measured.
    let fits = |depth: &u64| context.is_none_or(|context| depth + depth / 8 + answer < context);
    let depths: Vec<u64> = USUAL.into_iter().filter(fits).collect();
    match (context, depths.is_empty()) {
        (Some(context), true) => vec![(context / 4).max(1), (context / 2).max(1)],
        _ => depths,
    }
}

/// Plan from the flags of a llama-server, or the reason why its process cannot be planned.
fn planned(figures: &Figures, build: Option<u32>, plan_of: PlanOfProcess) -> Result<SweepPlan, String> {
    let process = figures.process().ok_or("no process of the server is known")?;
    let (pid, engine) = (process.pid, EngineBuild { kind: EngineKind::LlamaCpp, build });
    let plan = plan_of(pid, engine).map_err(|error| {
        if process.lives() {
            format!("process {pid} cannot be planned: {error}")
        } else {
            format!("process {pid} of the model was stopped before its flags could be read")
        }
    })?;
    let sum = |of: fn(&CardPlan) -> Bytes| plan.cards.iter().map(of).sum();
    Ok(SweepPlan {
        loaded: sum(|card| card.loaded),
        peak: sum(|card| card.peak),
        context: plan.context,
        cache_per_token: plan.growth.bytes_per_token,
        pool_per_token: plan.growth.pool,
        build,
    })
}

/// Reads a depth in tokens, such as `4k`, `4096` or `128k`.
fn depth(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a number of tokens; write one such as 4k or 4096, at most {MOST_DEPTH}");
    let (number, scale) = match text.strip_suffix(['k', 'K']) {
        // Contexts are powers of two in every engine, so `4k` means 4096 tokens.
        Some(number) => (number, 1024),
        None => (text, 1),
    };
    let depth = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    depth.filter(|depth| (1..=MOST_DEPTH).contains(depth)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_depths_leave_room_for_the_answer() {
        assert_eq!(usual_depths(None, 32), USUAL);
        assert_eq!(usual_depths(Some(131_072), 32), USUAL);
        assert_eq!(usual_depths(Some(4096), 32), [1024, 2048]);
        assert_eq!(usual_depths(Some(512), 32), [128, 256]);
        assert_eq!(usual_depths(Some(1), 32), [1, 1]);
    }

    #[test]
    fn depths_are_read_as_people_write_them() {
        assert_eq!([depth("4k"), depth("4096"), depth("1")], [Ok(4096), Ok(4096), Ok(1)]);
        for text in ["", "0", "k", "-1", "1M", "99999k"] {
            assert!(depth(text).is_err(), "{text}");
        }
    }
}

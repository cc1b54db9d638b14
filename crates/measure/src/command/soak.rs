//! `plimsoll measure soak`: loads a server with requests for a long time, to find memory leaks.
//!
//! Exits 0 if no leak was found, 1 if one was found or the load stopped early, 2 for bad input.

mod report;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use plimsoll_base::counted;
use plimsoll_cards::Sampler;
use plimsoll_process::reading::MeasuredProcess;
use plimsoll_verb::report::{ErrorReport, NO_VERDICT, print_as, status, write_file};
use plimsoll_verb::terminal;
use plimsoll_verb::{lasted, time};
use tokio::task::LocalSet;

use self::report::SoakReport;
use super::server::{LoadedServer, with_hint};
use crate::load::{Figures, LoadTarget, Round, SoakLimit, SoakResults, SoakSettings, WordLength, soak};

/// Requests of a soak without `--for` and `--requests`.
const REQUESTS: u64 = 2000;
/// Requests of a round without `--round`.
const ROUND: u64 = 20;
const EVERY_ON_TERMINAL: Duration = Duration::from_secs(1);
/// Interval of progress lines in a log, which may cover eight hours and is read afterwards.
const EVERY_IN_LOG: Duration = Duration::from_secs(30);
// A bound against typing errors, which would otherwise show only as an error of the server.
const MOST_DEPTH: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: LoadedServer,
    /// Duration of the load: 90s, 30m, 8h
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Number of requests; 2000 if --for is not given either
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Model to ask for; by default the first that the server lists
    #[arg(long)]
    model: Option<String>,
    /// Concurrent requests
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Lengths of prompts in tokens; the requests use them in turn
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "32,128,512", value_parser = clap::value_parser!(u64).range(1..=MOST_DEPTH))]
    depths: Vec<u64>,
    /// Ask for answers of at most this many tokens (`max_tokens`)
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    answer: u64,
    /// Requests per round; memory is read between rounds, when no request is in flight [default: 20, or fewer
    /// in a short soak]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    round: Option<u64>,
    /// Begin each prompt with a number that is unique in this run, so that no prompt is answered from a
    /// cache; llama-server's prompt cache then grows to its --cache-ram
    #[arg(long)]
    fresh: bool,
    /// Time limit for one answer
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    patience: Duration,
    /// End the soak when the server has given no answer for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    give_up: Duration,
    /// Ignore growth below this, in bytes per request
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    least: u32,
    /// Process id of the server, if it is not found by its port
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print the result as JSON (plimsoll.soak/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the result as an HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let runtime = plimsoll_verb::runtime()?;
    let mut results = LocalSet::new().block_on(&runtime, occupied(arguments))?;
    results.fresh = arguments.fresh;
    let report = SoakReport::new(&results, f64::from(arguments.least));
    // Files before stdout: a closed stdout must not cost the result of hours.
    if let Some(path) = &arguments.html {
        write_file(path, report.html())?;
    }
    print_as(arguments.json.as_deref(), &report.json(), || report.text())?;
    // A broken-off soak proves nothing, so it fails too.
    let is_bad = report.finds_a_leak() || results.broke_off;
    Ok(match report.without_verdict() {
        Some(_) if !is_bad => ExitCode::from(NO_VERDICT),
        _ => status(!is_bad),
    })
}

async fn occupied(arguments: &Arguments) -> Result<SoakResults, ErrorReport> {
    let (server, figures) = meet(arguments).await?;
    let settings = settings(arguments);
    let mut progress = Progress::new(settings.limit);
    let results = soak(&server, &settings, figures, &mut |results| progress.notify(results)).await?;
    progress.end();
    Ok(results)
}

/// Asks the server for its models, and finds its process.
async fn meet(arguments: &Arguments) -> Result<(LoadTarget, Figures), ErrorReport> {
    let sampler = Sampler::start()?;
    // A wrong process id would show flat memory, which looks like a server without a leak.
    if let Some(pid) = arguments.pid.filter(|pid| MeasuredProcess::find(*pid).is_none()) {
        return Err(ErrorReport::new(format!("there is no process {pid}, or this user may not read it")));
    }
    let (url, api_key) = arguments.server.server()?;
    let named = url.to_string();
    let server = LoadTarget::meet(url, api_key, arguments.model.clone(), arguments.pid).await;
    let failed = |failure| format!("cannot list the models of {named}: {}", with_hint(&failure));
    let server = server.map_err(|failure| ErrorReport::new(failed(failure)))?;
    Ok((server, Figures::new(sampler).await))
}

fn settings(arguments: &Arguments) -> SoakSettings {
    // With a time limit alone, the default number of requests would end the soak early.
    let requests = match arguments.time {
        Some(_) => arguments.requests,
        None => arguments.requests.or(Some(REQUESTS)),
    };
    SoakSettings {
        limit: SoakLimit { time: arguments.time, requests },
        round: Round {
            depths: arguments.depths.clone(),
            answer: arguments.answer,
            requests: arguments.round.unwrap_or(ROUND),
            fresh: arguments.fresh,
            yardstick: WordLength::default(),
        },
        paced: arguments.round.is_none(),
        clients: usize::from(arguments.clients),
        patience: arguments.patience,
        give_up: arguments.give_up,
    }
}

/// Progress on stderr: a line that is rewritten on a terminal, or a line at each interval in a log.
#[derive(Debug)]
struct Progress {
    limit: SoakLimit,
    reported: Option<Instant>,
    on_terminal: bool,
}

impl Progress {
    fn new(limit: SoakLimit) -> Self {
        Self { limit, reported: None, on_terminal: terminal::stderr_is_terminal() }
    }

    fn notify(&mut self, results: &SoakResults) {
        let every = if self.on_terminal { EVERY_ON_TERMINAL } else { EVERY_IN_LOG };
        if self.reported.is_some_and(|reported| reported.elapsed() < every) {
            return;
        }
        self.reported = Some(Instant::now());
        let occupied = results.figures.iter().filter_map(|figure| {
            let last = figure.series.points().last()?;
            Some(format!(", {} {}", figure.name, last.occupied))
        });
        let occupied: String = occupied.collect();
        let of = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        let time =
            of(self.limit.time.map(|time| lasted(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))));
        let requests = match self.limit.requests {
            Some(most) => format!("{} of {}", results.requests, counted(most, "request")),
            None => counted(results.requests, "request"),
        };
        let (lasted, failed) = (lasted(results.occupied_ms), results.failed());
        // A closed stderr is no failure.
        let line = format!("soak: {lasted}{time}, {requests}, {failed} failed{occupied}");
        let _ =
            if self.on_terminal { terminal::progress(&line) } else { writeln!(terminal::stderr(), "{line}") };
    }

    fn end(&self) {
        if self.on_terminal {
            let _ = writeln!(terminal::stderr());
        }
    }
}

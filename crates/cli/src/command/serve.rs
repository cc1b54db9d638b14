//! `plimsoll serve`: parses the daemon's command-line arguments, and prints the `--check` report.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_cards::{Machine, Sampler};
use plimsoll_config::{
    GuardMode, GuardSettings, LogFormat, LogLevel, ReclaimBeforeLoad, ServeSettings, reserve_size, web_origin,
};
use plimsoll_log::{LogOptions, LogOutput};
use plimsoll_nostd::heap;
use plimsoll_plan::HostSize;
use plimsoll_serve::{ConfigCheck, Daemon, DaemonError, Listen, Setup};

mod check;
mod sources;
mod unit;

pub(super) use self::sources::Sources;
use super::card_choice::{self, CardChoice};
use super::rungs::{OomLadder, words};
use crate::report::{ErrorReport, print_as, print_data, status};
use crate::terminal;

const MORE: &str = "\
Examples: plimsoll serve ~/models
          plimsoll serve gemma-3-4b-it-Q4_K_M.gguf
          plimsoll serve -hf ggml-org/gemma-3-4b-it-GGUF:Q4_K_M
          plimsoll serve plimsoll.toml --card name=H200,total=80GiB

The models of a folder get flags that fit the cards. A file that is added later is served too, and a \
    removed one no longer. The log names each file that is not served, with the reason. A section of \
    plimsoll.toml, in the folder or at its usual place, overrides models of the same name or file.

Relative paths in the configuration are relative to the current folder, as with llama-server.

The first line on stdout is the server's address. Log lines go to stderr: one for each request to a model, wait, load and stop. \
Their level is that of --log-level, else of RUST_LOG, else of `log-level` under [serve]. Under systemd, \
lines begin with their priority instead of the time.

A request waits at most `wait` (10 minutes by default) for its model. After that there is no time limit; a client that \
disconnects cancels its request.

SIGHUP reads the configuration again, restarts only the models that changed, and opens the log file again. SIGTERM stops the server once the current answers are finished; a second SIGTERM stops it at once.

Exit status: 0 after a signal, 1 on failure (with --check: a model cannot be loaded, or the pinned ones not together), 2 for bad input (with --check, after the report).";

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Folders of GGUF files, single GGUF files, and at most one configuration: Plimsoll's TOML, a
    /// llama-server preset (.ini) or llama-swap's YAML [default: plimsoll.toml here, in ~/.config/plimsoll or
    /// in /etc/plimsoll, else the models in the caches of Hugging Face, llama.cpp and Ollama]
    #[arg(value_name = "FOLDER|MODEL|CONFIG")]
    sources: Vec<PathBuf>,
    /// Serve a model of Hugging Face's hub, which its engine downloads (-hf)
    #[arg(long, value_name = "USER/REPO[:QUANT]")]
    hf_repo: Option<String>,
    /// Print each model's memory and whether it fits, then exit with status 1 if one can never be loaded.
    /// Models that only lack memory now are marked
    #[arg(long)]
    check: bool,
    /// With --check: print the answer as JSON (plimsoll.serve-check/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", requires = "check")]
    json: Option<PathBuf>,
    /// Address to listen on: 127.0.0.1:8080, localhost:8080, 8080, or :8080 for all network interfaces;
    /// several between commas [default: 127.0.0.1:8080]
    #[arg(long, alias = "port", value_name = "ADDRESS", value_delimiter = ',', value_parser = plimsoll_config::listen_address)]
    listen: Vec<SocketAddr>,
    /// Listen without API keys on an address that other machines can reach
    #[arg(long)]
    open: bool,
    /// Memory for models: cards (2x3060, or the number, UUID or PCI address of a card here), a part of a card
    /// (name=H200,total=80GiB), or a part of host memory (kind=host,total=16GiB); repeatable
    #[arg(long = "card", value_name = "SPEC")]
    cards: Vec<CardChoice>,
    /// With --card: host memory of the machine that it describes, e.g. 64GiB
    #[arg(long, value_name = "SIZE", requires = "cards")]
    host: Option<HostSize>,
    /// Memory to leave free on each card, e.g. 512MiB
    #[arg(long, value_name = "SIZE", value_parser = reserve_size)]
    reserve: Option<Bytes>,
    /// Maximum number of models loaded at a time, however much memory is
    /// free [default: 0, memory alone limits them]
    #[arg(long, value_name = "COUNT")]
    models_max: Option<usize>,
    /// Disk space for prompt caches, e.g. 8GiB: a llama-server's slots are saved before its model is
    /// unloaded, and restored after the next load [default: 0, nothing is saved]
    #[arg(long, value_name = "SIZE", value_parser = reserve_size)]
    warm: Option<Bytes>,
    /// Path of the llama-server for models that have `flags` but no `cmd`
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<PathBuf>,
    /// Append the log and the output of the engines to this file; SIGHUP opens it again, for logrotate
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Log level: warn, info (requests, loads) or debug [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = words::<LogLevel>(&["warn", "info", "debug"]))]
    log_level: Option<LogLevel>,
    /// The same as --log-level debug
    #[arg(short, conflicts_with = "log_level")]
    verbose: bool,
    /// Format of the log: text, or json for one object a line [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = words::<LogFormat>(&["text", "json"]))]
    log_format: Option<LogFormat>,
    /// Guard mode for engines on CUDA cards, unless the model's section sets one: observe counts memory,
    /// budget also refuses allocations beyond the plan [default: observe]
    #[arg(long, value_name = "MODE", value_parser = words::<GuardMode>(&["off", "observe", "budget"]))]
    guard: Option<GuardMode>,
    /// Milliseconds to wait for programs under guard (`plimsoll run`) to release cached memory before
    /// evicting or refusing a model; 0 disables [default: 500]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    ask: Option<u64>,
    /// If the GPU shares host memory, free memory before a load. user takes only steps that need no root;
    /// sudo and systemd take all, as plimsoll reclaim --with does [default: off]
    #[arg(long, value_name = "HELPER", value_parser = words::<ReclaimBeforeLoad>(&["off", "user", "sudo", "systemd"]))]
    reclaim_before_load: Option<ReclaimBeforeLoad>,
    /// Web origin, besides the server's own page, whose pages may call this server. localhost allows every
    /// port of this machine, * allows all origins. The origin's host is also accepted in the Host header
    #[arg(long = "allow-origin", value_name = "ORIGIN", value_parser = web_origin)]
    origins: Vec<String>,
    /// Serve as a host of a fleet whose store is this etcd, e.g. etcd://10.0.0.1,10.0.0.2,10.0.0.3
    #[arg(long, value_name = "STORE")]
    fleet: Option<String>,
    /// Print a systemd unit that runs this program as a service of the machine, then exit
    #[arg(long, conflicts_with = "check")]
    print_unit: bool,
    /// With --print-unit: a service of your own (systemctl --user)
    #[arg(long, requires = "print_unit")]
    user: bool,
    #[command(flatten)]
    rungs: OomLadder,
}

impl Arguments {
    pub(super) fn log(&self) -> LogOptions {
        let level = self.log_level.or(self.verbose.then_some(LogLevel::Debug));
        LogOptions { level, format: self.log_format, is_server: !self.check, ..LogOptions::default() }
    }

    /// The settings of this command line, whose `--card` options stand for `cards`.
    fn settings(self, cards: Vec<CardSpec>) -> ServeSettings {
        let LogOptions { level, format, .. } = self.log();
        for doubt in cards.iter().flat_map(|spec| &spec.doubts) {
            tracing::warn!("{doubt}");
        }
        ServeSettings {
            listen: self.listen,
            open: self.open,
            cards: cards
                .into_iter()
                .flat_map(|spec| spec.cards)
                .chain(self.host.map(|HostSize(total)| Card::of_host(total, total)))
                .collect(),
            reserve: self.reserve,
            models_max: self.models_max,
            warm: self.warm,
            engine: self.engine.map(|path| vec![path.to_string_lossy().into_owned()]),
            log_file: self.log_file,
            log_level: level,
            log_format: format,
            guard: GuardSettings { mode: self.guard, ..self.rungs.params() },
            ask: self.ask.map(Duration::from_millis),
            reclaim_before_load: self.reclaim_before_load,
            allow_origins: self.origins,
            fleet: self.fleet,
            ..ServeSettings::default()
        }
    }
}

const OPTIONS_OF_A_UNIT: &str = "`--print-unit` prints a unit that starts `plimsoll serve CONFIG` alone\nhint: write the other options \
    under [serve] in the configuration; each has a key there";

/// This machine, looked at by a helper process: the daemon itself loads no library of a driver.
fn looked_at() -> Result<Machine, ErrorReport> {
    let runtime = super::runtime()?;
    let machine = runtime.block_on(async { Ok::<_, ErrorReport>(Sampler::start()?.machine().await) })?;
    machine.ok_or_else(|| ErrorReport::new("the helper process that lists the cards has ended"))
}

pub(crate) fn run(arguments: Arguments, log: LogOutput) -> Result<ExitCode, ErrorReport> {
    let check = arguments.check;
    if arguments.print_unit {
        let (file, of_user) = (arguments.sources.first().cloned(), arguments.user);
        let of_log = arguments.log_level.is_some() || arguments.verbose || arguments.log_format.is_some();
        // A unit that left them out would start another server than the one that was tried.
        let names_cards = !arguments.cards.is_empty();
        if of_log || names_cards || arguments.settings(Vec::new()) != ServeSettings::default() {
            return Err(ErrorReport::input(ErrorReport::new(OPTIONS_OF_A_UNIT)));
        }
        print_data(unit::unit(file.as_deref(), of_user).map_err(ErrorReport::input)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Sources { config, places } = Sources::of(&arguments.sources, arguments.hf_repo.clone())?;
    if places.is_some() && !check && !config.exists() {
        // Nothing but the command line can name another engine.
        plimsoll_engine::program::find(arguments.engine.as_deref())?;
    }
    let json = arguments.json.clone();
    let warnings = log.clone();
    let cards = card_choice::described(&arguments.cards, looked_at).map_err(ErrorReport::input)?;
    let foreign = foreign_file(&config);
    let setup = Setup { config, places, serve: arguments.settings(cards), log };
    if check {
        return on_one_thread(async {
            let check = ConfigCheck::of(setup).await.map_err(of_daemon)?;
            // Before the report: another thread writes them.
            warnings.finish();
            print_as(json.as_deref(), &check::as_json(&check), || check::in_words(&check) + &foreign)?;
            let Some(mistakes) = &check.mistakes else { return Ok(status(check::is_good(&check))) };
            // After the report, which has the figures of the good models. A closed stderr changes nothing.
            let _ = writeln!(terminal::stderr(), "plimsoll: {mistakes}");
            Ok(ExitCode::from(2))
        });
    }
    fix_allocator_thresholds();
    on_one_thread(async {
        let daemon = Daemon::start(setup).await.map_err(of_daemon)?;
        announce(daemon.address);
        daemon.run().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// What to read besides of a file that was written for another server.
fn foreign_file(config: &std::path::Path) -> String {
    let is_own = config.extension().is_none_or(|ending| ending.eq_ignore_ascii_case("toml"));
    match is_own || !config.is_file() {
        true => String::new(),
        false => format!("`plimsoll import {}` lists what behaves otherwise here\n", config.display()),
    }
}

/// A failure of the daemon; the configuration and an address that anyone reaches are input.
pub(super) fn of_daemon(error: DaemonError) -> ErrorReport {
    let is_input = matches!(
        error,
        DaemonError::Config(_)
            | DaemonError::NoModel(_)
            | DaemonError::FindModel(_)
            | DaemonError::Listen(Listen::Exposed(_))
    ) || matches!(&error, DaemonError::Fleet(error) if error.is_input());
    ErrorReport::from(error).with_status(if is_input { 2 } else { 1 })
}

/// Fixes the thresholds of glibc's allocator, unless the user has set some.
///
/// DECISION: by default the thresholds follow the largest block freed so far, up to 32 MiB, and memory of
/// prompts is kept (seen: 1 GiB after 1 GiB of prompts). A threshold below the blocks of request bodies (128
/// KiB) makes each of them a mapping, whose page faults doubled the CPU time of a prompt of 2 MB. So blocks
/// come from the heap, and the listener gives the heap's free pages back.
fn fix_allocator_thresholds() {
    let is_set = |name| std::env::var_os(name).is_some();
    if !is_set("MALLOC_MMAP_THRESHOLD_") && !is_set("MALLOC_TRIM_THRESHOLD_") {
        heap::fix_thresholds(1 << 20, 16 << 20);
    }
}

/// Runs the daemon's one thread.
pub(super) fn on_one_thread<T>(work: impl Future<Output = Result<T, ErrorReport>>) -> Result<T, ErrorReport> {
    let mut done = None;
    plimsoll_serve::on_one_thread(Box::pin(async { done = Some(work.await) }))
        .map_err(ErrorReport::of("cannot start the server's event loop"))?;
    done.unwrap_or_else(|| {
        Err(ErrorReport::new(
            "the server's event loop ended before its work, which is a bug in plimsoll; please report it",
        ))
    })
}

/// Prints the address on stdout, where scripts that asked for port 0 read it.
pub(super) fn announce(address: SocketAddr) {
    let mut stdout = terminal::stdout();
    // A closed stdout must not end the server.
    let _ = writeln!(stdout, "http://{address}").and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    /// Each option of `serve`, with a value, and the lines of a configuration that say the same.
    const KEYS: &[(&str, &str)] = &[
        ("--listen=localhost:8081", "[serve]\nlisten = 'localhost:8081'"),
        ("--open", "[serve]\nopen = true"),
        ("--card=name=H200,total=80GiB", "[serve]\ncards = ['name=H200,total=80GiB']"),
        ("--card=2x3060", "[serve]\ncards = ['2x3060']"),
        ("--reserve=512MiB", "[serve]\nreserve = '512MiB'"),
        ("--models-max=2", "[serve]\nmodels-max = 2"),
        ("--warm=8GiB", "[serve]\nwarm = '8GiB'"),
        ("--fleet=etcd://a", "[fleet]\nstore = 'etcd://a'"),
        ("--engine=/opt/llama-server", "[engine]\ncommand = '/opt/llama-server'"),
        ("--log-file=engines.log", "[serve]\nlog-file = 'engines.log'"),
        ("--log-level=warn", "[serve]\nlog-level = 'warn'"),
        ("-v", "[serve]\nlog-level = 'debug'"),
        ("--log-format=json", "[serve]\nlog-format = 'json'"),
        ("--guard=budget", "[serve.guard]\nmode = 'budget'"),
        ("--ask=1500", "[serve]\nask = '1500ms'"),
        ("--reclaim-before-load=user", "[serve]\nreclaim-before-load = 'user'"),
        ("--allow-origin=https://a.example", "[serve]\nallow-origins = ['https://a.example']"),
        ("--reuse", "[serve.guard]\nreuse = true"),
        ("--chunk=2MiB", "[serve.guard]\nchunk = '2MiB'"),
        ("--reclaim", "[serve.guard]\nreclaim = true"),
        ("--wait=5", "[serve.guard]\nwait = '5s'"),
        ("--spill=1GiB", "[serve.guard]\nspill = '1GiB'"),
        ("--need=3GiB", "[serve.guard]\nneed = '3GiB'"),
        ("--keep=4MiB", "[serve.guard]\nkeep = '4MiB'"),
        ("--on-oom=managed", "[serve.guard]\non-oom = 'managed'"),
        ("--pool=ours", "[serve.guard]\npool = 'ours'"),
        ("--hide-vmm", "[serve.guard]\nhide-vmm = true"),
    ];

    /// Options that no configuration can hold, and why.
    const WITHOUT_KEY: &[(&str, &str)] = &[
        ("check", "a run that serves nothing"),
        ("host", "kind=host among the cards"),
        ("hf-repo", "a model, as a section with `flags` is"),
        ("json", "belongs to --check"),
        ("print-unit", "a run that serves nothing"),
        ("user", "belongs to --print-unit"),
    ];

    fn options() -> clap::Command {
        Arguments::augment_args(clap::Command::new("serve"))
    }

    /// The settings of a command line.
    fn line(option: &str) -> ServeSettings {
        // --need and --keep require --spill, which a comparison of theirs leaves out again.
        let spill = ["--need", "--keep"].iter().any(|needs| option.starts_with(needs));
        let words = ["serve", "plimsoll.toml", option].into_iter().chain(spill.then_some("--spill=1GiB"));
        let matches = options().try_get_matches_from(words).unwrap();
        let arguments = Arguments::from_arg_matches(&matches).unwrap();
        let cards =
            card_choice::described(&arguments.cards, || panic!("no card is of this machine")).unwrap();
        let mut settings = arguments.settings(cards);
        settings.guard.spill = settings.guard.spill.filter(|_| !spill);
        settings
    }

    #[test]
    fn every_option_has_a_key_that_says_the_same() {
        for (option, text) in KEYS {
            let file = plimsoll_config::parse("plimsoll.toml", text, &|_| None).unwrap().serve;
            assert_eq!(line(option), file, "{option}");
            assert_ne!(file, ServeSettings::default(), "{option}");
        }
        for argument in options().get_arguments().filter(|it| !it.is_positional()) {
            let short = || format!("-{}", argument.get_short().unwrap());
            let name = argument.get_long().map_or_else(short, |long| format!("--{long}"));
            let is_key = KEYS.iter().any(|(option, _)| option.split('=').next() == Some(&name));
            let is_left_out = WITHOUT_KEY.iter().any(|(option, _)| *option == name.trim_start_matches('-'));
            assert!(is_key != is_left_out, "{name} has no key in the configuration, and no reason for that");
        }
    }

    #[test]
    fn a_value_that_means_nothing_is_refused_on_the_command_line_too() {
        for (option, reported) in [
            ("--reserve=512", "did you mean 512MiB?"),
            ("--reserve=", "is not a size"),
            ("--allow-origin=a.example", "is not the origin of a web page"),
            ("--allow-origin=", "is not the origin of a web page"),
        ] {
            let error = options().try_get_matches_from(["serve", "plimsoll.toml", option]).unwrap_err();
            assert!(error.to_string().contains(reported), "{error}");
        }
    }
}

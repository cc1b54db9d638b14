//! `plimsoll plan`: shows the memory of a model on each card, and whether it fits.
//!
//! Exits 0 if the model fits, 1 if it does not, 2 for bad input. The plan is on stdout, everything else on
//! stderr.

#[cfg(unix)]
pub(crate) mod check;
mod exact;
pub(crate) mod fit;
#[cfg(unix)]
mod many;
mod models;
mod paste;
mod quants;
mod remote;
mod requested;
#[cfg(unix)]
mod served;
mod spelling;
mod vllm;
#[cfg(windows)]
mod windows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_config::reserve_size;
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_plan::{HostSize, Question, Room};
use plimsoll_planner::{EngineBuild, Plan};

use self::exact::Estimated;
use self::remote::RemoteFiles;
#[cfg(unix)]
pub(super) use self::served::served;
pub(crate) use self::spelling::{meant, spelled};
#[cfg(windows)]
pub(super) use self::windows::served;
#[cfg(windows)]
use self::windows::{check, many};
use super::card_choice::{self, CardChoice};
use crate::report::{ErrorReport, NO_VERDICT, print_as, status, write_file};
use crate::screen;

const MORE: &str = "\
Examples:
  plimsoll plan model.gguf --card 3090 -c 65536
  plimsoll plan --card 2x3060 -- llama-server -m model.gguf -c 65536 -ctk q8_0 -ctv q8_0
  plimsoll plan -hf ggml-org/gemma-3-4b-it-GGUF --quants --card 3060
  plimsoll plan --fit ctx --card name=RTX3090,total=24GiB,free=23GiB,cc=8.6 -- -m model.gguf
  plimsoll plan ~/models --card 2x3090 --host 64GiB --toml > plimsoll.toml
  plimsoll plan --card H100 -- vllm serve USER/REPO --max-model-len 32768
  plimsoll plan --card 3090 -- vllm serve USER/REPO + llama-server -m model.gguf -c 8192

`+` between two command lines plans both engines on one card: the order of their starts, and the \
`--gpu-memory-utilization` of vLLM.

Exit status: 0 if the model fits, 1 if it does not, 2 for bad input.";

/// More tokens than any context has.
const LONGEST_PROMPT: i64 = 1 << 24;

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Model to plan: a GGUF file, its http or https address, or for vLLM a folder of safetensors. With
    /// several files or a folder of them, the plan shows which fit at the same time, and which must be
    /// unloaded for the others
    #[arg(value_name = "MODEL", conflicts_with = "named")]
    model: Vec<String>,
    /// Model to plan, as llama-server takes it
    #[arg(short = 'm', long = "model", value_name = "MODEL", id = "named")]
    named: Option<String>,
    /// Model on Hugging Face's hub (-hf). Its header is fetched, unless it has been downloaded
    #[arg(long, value_name = "USER/REPO[:QUANT]", conflicts_with_all = ["model", "named"])]
    hf_repo: Option<String>,
    /// File of that repository, instead of a quantisation (-hff)
    #[arg(long, value_name = "FILE", requires = "hf_repo")]
    hf_file: Option<String>,
    /// List the quantisations of the repository with the memory of each on these cards, the best that fits
    /// first
    #[arg(long, conflicts_with_all = ["fit", "svg", "html", "check", "exact"])]
    quants: bool,
    /// Fetch at most this much of a file for its header
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    header_limit: Bytes,
    /// Print the plan as JSON (plimsoll.plan/1, of several models plimsoll.plan-many/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Print a configuration for `serve` of the models that fit, with flags that were chosen for them, or
    /// write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    toml: Option<PathBuf>,
    /// Draw the plan into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the plan as an HTML page with a slider for the context
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Search for the largest value that fits: ctx (context), ub (micro-batch), np (slots), kv (cache type),
    /// split (over cards), ngl (layers on cards), moe (experts on cards), several with commas, or all. Prints
    /// flags to paste on stdout, and the reasons on stderr
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "all", value_parser = fit::directions)]
    fit: Option<fit::FitDirections>,
    /// Compare the plan with the memory of a running engine: a process id, or the address of a llama-server
    /// or plimsoll serve on this machine
    #[arg(long, value_name = "PID|URL", conflicts_with_all = ["fit", "svg", "html"])]
    check: Option<String>,
    /// With --check: largest difference that is accepted, e.g. 48MiB
    #[arg(long, value_name = "SIZE", requires = "check")]
    margin: Option<Bytes>,
    /// Card to plan for: a product name such as 3090, 2x3060 or "RX 7900 XTX", or a description such as
    /// name=H200,total=143771MiB,free=140000MiB,cc=9.0, or kind=host,total=16GiB for host memory, or the
    /// number, UUID or PCI address of a card of this machine; repeatable. By default the cards of this
    /// machine
    #[arg(long = "card", alias = "gpu", value_name = "SPEC")]
    cards: Vec<CardChoice>,
    /// Host memory of the machine in the plan, e.g. 32GiB. By default this machine's, if the plan is for this
    /// machine's cards
    #[arg(long, value_name = "SIZE", conflicts_with = "check")]
    host: Option<HostSize>,
    /// Plan for a program under `plimsoll run --budget SIZE`: the budget is each card's capacity, counted as
    /// guard counts
    #[arg(long, value_name = "SIZE", value_parser = reserve_size, conflicts_with = "check")]
    budget: Option<Bytes>,
    /// Predict the speed once this many tokens of the context are in use, instead of all of them
    #[arg(long, value_name = "TOKENS", conflicts_with_all = ["fit", "check", "quants"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=LONGEST_PROMPT))]
    depth: Option<u32>,
    /// Engine, with its build if known: llama.cpp, llama.cpp@10605, ik_llama.cpp. By default llama.cpp, or
    /// the engine that --exact asks
    #[arg(long = "build", alias = "engine", value_name = "ENGINE[@BUILD]")]
    engine: Option<EngineBuild>,
    /// Program of the engine that will run: llama-server, llama-fit-params, llama-cli, library. By default
    /// the program named before the flags, or llama-server
    #[arg(long)]
    program: Option<ProgramKind>,
    /// Take the sizes from a llama-server, which needs no GPU for that: from ENGINE, else the one that
    /// `serve` would start; with --check, the running one. Without this option, a llama-server with a GPU
    /// backend is asked if one is installed
    #[arg(long, value_name = "ENGINE", num_args = 0..=1, require_equals = true)]
    exact: Option<Option<PathBuf>>,
    /// Plan by Plimsoll's formulas alone, and ask no engine
    #[arg(long, conflicts_with = "exact")]
    formulas: bool,
    /// With --exact: let the engine compute a prompt of this many tokens, to get its temporary memory too
    #[arg(long, value_name = "TOKENS", requires = "exact", conflicts_with_all = ["fit", "check"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=LONGEST_PROMPT))]
    prompt: Option<u32>,
    /// With --exact: neither read nor write the cache of the engine's answers
    #[arg(long, requires = "exact")]
    no_cache: bool,
    /// Engine flags, with or without the engine's name before them. Put `--` before the name, and before
    /// flags that `plan` has too
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

/// Plans. Every failure is a fault of the input, since a plan depends on nothing else.
pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode, ErrorReport> {
    if let Some(engines) = vllm::asked(&arguments) {
        return vllm::run(&arguments, &engines).map_err(ErrorReport::input);
    }
    if let Some(why) = requested::other_program(&arguments.flags) {
        return Err(ErrorReport::input(ErrorReport::new(why)));
    }
    let is_of_many = arguments.is_of_many();
    let sources = if is_of_many { Vec::new() } else { arguments.sources() };
    let (flags, program) = requested::flags(&sources, &arguments.flags);
    (arguments.flags, arguments.program) = (flags, arguments.program.or(program));
    let plan = if is_of_many { many::run } else { planned };
    plan(&arguments).map_err(|report| match report.status() {
        // An engine runs, and nothing of it was measured.
        NO_VERDICT => report,
        _ => ErrorReport::input(report),
    })
}

fn planned(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    if let Some(target) = &arguments.check {
        return check::run(arguments, target);
    }
    let given = Options::from_argv(&arguments.flags)?;
    let mut room = requested::room(arguments, &given)?;
    // Before `--fit` and the plan, so that both search within the budget.
    room.cards = arguments.occupied(room.cards);
    if arguments.quants {
        return quants::run(arguments, &given, &room.cards);
    }
    let remote = RemoteFiles::fetch(arguments, &given)?;
    let options = remote.local(&given)?;
    if let Some(directions) = &arguments.fit {
        return fit::run(arguments, directions, (&given, &options), &room);
    }
    let question = arguments.question(options, room);
    let (options, cards) = (&question.options, &question.room.cards);
    let estimated = Estimated::of_plan(arguments, options, cards)?;
    let mut plan = estimated.plan(arguments, options, cards)?;
    question.complete(estimated.formulas(), &mut plan)?;
    // Files before stdout: a plan is printed only if everything that was asked for has been written.
    if let Some(path) = &arguments.svg {
        write_file(path, plimsoll_site::svg(&plan))?;
    }
    if let Some(path) = &arguments.html {
        write_file(path, plimsoll_site::report(&plan, &estimated.course(options, cards, &plan)?))?;
    }
    // On stderr before the plan, because a closed stdout must not hide how often the engine ran.
    estimated.print_runs()?;
    remote.notify()?;
    print_as(arguments.json.as_deref(), &remote.with(&plan)?, || {
        screen::plan(&plan, screen::Paper::of_stdout())
    })?;
    Ok(status(plan.fits))
}

impl Arguments {
    /// Returns true for a plan of models that are placed beside each other.
    fn is_of_many(&self) -> bool {
        let is_folder = |model: &String| std::path::Path::new(model).is_dir();
        self.model.len() > 1 || self.toml.is_some() || self.model.iter().any(is_folder)
    }

    /// Returns the model's source as flags of llama-server.
    fn sources(&self) -> Vec<String> {
        let is_address = |model: &&String| model.starts_with("http://") || model.starts_with("https://");
        let model = self.model.first().or(self.named.as_ref());
        let sources = [
            ("--model-url", model.filter(is_address)),
            ("-m", model.filter(|model| !is_address(model))),
            ("--hf-repo", self.hf_repo.as_ref()),
            ("--hf-file", self.hf_file.as_ref()),
        ];
        let given = sources.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?.clone()]));
        given.flatten().collect()
    }

    fn engine(&self) -> EngineBuild {
        self.engine.unwrap_or(EngineBuild::LLAMA_CPP)
    }

    fn program(&self) -> ProgramKind {
        self.program.unwrap_or_default()
    }

    /// Returns true if the installed engine may be asked: only a llama-server, and only if no build is named.
    fn may_ask(&self) -> bool {
        !self.formulas && self.engine.is_none() && self.program() == ProgramKind::LlamaServer
    }

    fn question(&self, options: Options, room: Room) -> Question {
        Question { options, engine: self.engine(), program: self.program(), room, depth: self.depth }
    }

    /// Returns the cards as a program within a budget sees them.
    fn occupied(&self, cards: Vec<Card>) -> Vec<Card> {
        match self.budget {
            Some(budget) => cards.into_iter().map(|card| card.guarded(budget)).collect(),
            None => cards,
        }
    }

    /// Returns what each `--card` stands for.
    fn specs(&self) -> Result<Vec<CardSpec>, ErrorReport> {
        card_choice::described(&self.cards, || Ok(plimsoll_cards::look()))
    }

    /// Returns the described cards, or else those that `others` returns.
    fn described_or(&self, others: impl FnOnce() -> Vec<Card>) -> Result<Vec<Card>, ErrorReport> {
        let cards =
            if self.cards.is_empty() { others() } else { Room::described(&self.specs()?, None).cards };
        if cards.is_empty() { Err(no_card()) } else { Ok(cards) }
    }
}

/// Plans by the formulas the memory of an engine with these flags on these cards.
pub(super) fn by_words(
    words: &[String],
    engine: EngineBuild,
    program: ProgramKind,
    cards: &[Card],
) -> Result<Plan, ErrorReport> {
    by_formulas(&Options::from_argv(words)?, engine, program, cards)
}

/// The same for flags that have been read.
pub(super) fn by_formulas(
    options: &Options,
    engine: EngineBuild,
    program: ProgramKind,
    cards: &[Card],
) -> Result<Plan, ErrorReport> {
    Ok(models::estimate(&options.params(program)?, engine, program)?.plan(options, cards)?)
}

fn no_card() -> ErrorReport {
    ErrorReport::new(
        "no GPU was found on this machine, and the host's memory cannot be read\nhint: describe a card with \
            --card",
    )
}

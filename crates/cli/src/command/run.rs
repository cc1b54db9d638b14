//! `plimsoll run`: runs an unmodified program under guard, the preloaded library that limits its GPU memory.
//!
//! The command ends with the program's exit code or signal. Failures of Plimsoll itself have the exit codes
//! of `env`: 125, 126 and 127.

mod cards;
mod flags;
mod need;
mod slots;
mod summary;

use std::ffi::OsString;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use plimsoll_base::{BusRate, Bytes, Card, CardNames};
use plimsoll_cards::{KernelCard, Machine, Sampler};
use plimsoll_config::{GuardSettings, GuardedCard, reserve_size};
use plimsoll_engine::{VisibleCards, show_to_others};
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::guard::{DepthReporter, PAGES, Preload, preload, unreachable};
use plimsoll_probe::{bus, library};
use plimsoll_process::Environment;
use plimsoll_verb::child::{self, ChildEnd, own_failure, program};
use plimsoll_wire::env as names;
use plimsoll_wire::options::{Contexts, GuardOptions, Uuid};
use tokio::time::timeout;

use self::cards::{Chosen, RequestedCard};
use self::need::Need;
use self::slots::SlotsClient;
use self::summary::{RunSummary, say};
use super::rungs::OomLadder;
use crate::report::{ErrorReport, write_file};

const NO_FOLDER: &str = "cannot make a folder for guard's shared-memory files in /dev/shm, XDG_RUNTIME_DIR or the temporary \
    folder";
/// Longest wait for the names of the cards, for the summary.
const NAMES_WITHIN: Duration = Duration::from_secs(1);

const MORE: &str = "\
Example: plimsoll run --card 0=8GiB --spill 2GiB -- llama-server -m model.gguf

Without options, the program's memory is counted and no limit is enforced; one line for each card is printed at the end.

Exit status: the exit status of the program (a signal that ends the program also ends plimsoll); 125 if plimsoll itself fails, 126 if the program \
cannot be executed, 127 if it does not exist. The terminal sends SIGINT and SIGQUIT to the program; plimsoll does not repeat them.";

// With `--card` the program sees only the given cards. `--strict-cards` and `--report-cards` leave the others
// visible, because a context on a hidden card could not be observed.
#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Card that the program may see, by number, UUID, PCI address (0000:03:00.0) or name, with its budget
    /// after `=`; repeatable
    #[arg(long = "card", value_name = "CARD[=SIZE]")]
    cards: Vec<RequestedCard>,
    /// Budget on each card for which --card gives none, e.g. 4GiB; the program and all processes that it
    /// starts share it
    #[arg(long, value_name = "SIZE", value_parser = reserve_size)]
    budget: Option<Bytes>,
    /// Leave the other cards visible, and refuse CUDA contexts on them
    #[arg(long, requires = "cards")]
    strict_cards: bool,
    /// Leave the other cards visible, and report CUDA contexts on them
    #[arg(long, requires = "cards", conflicts_with = "strict_cards")]
    report_cards: bool,
    /// Write a trace of each process's allocations to FILE.PID
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the summary as JSON (plimsoll.run/1)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    rungs: OomLadder,
    /// Program to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    ran(arguments).map_err(own_failure)
}

fn ran(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let runtime = super::runtime()?;
    let (summary, end) = runtime.block_on(guarded(arguments))?;
    // Before the report: a report that cannot be written must not cost the user the summary.
    summary.print();
    if let Some(path) = &arguments.report {
        let text = summary.json().to_string() + "\n";
        write_file(path, text)?;
    }
    Ok(end.repeat())
}

/// Runs the program to its end.
async fn guarded(arguments: &Arguments) -> Result<(RunSummary<'_>, ChildEnd), ErrorReport> {
    // The likely failures come first, before a folder is made and a program started.
    let library = library::GUARD.find()?;
    let (program, rest) = program(&arguments.command)?;
    let folder = OwnedFolder::create(PAGES).map_err(ErrorReport::of(NO_FOLDER))?;
    let plans = arguments.rungs.params().is_to_be_planned();
    // NVML is asked while the program starts. Only named cards, or a plan, have to wait for its answer.
    let sampler = Sampler::start()?;
    let machine = if arguments.cards.is_empty() && !plans { None } else { sampler.machine().await };
    let present = machine.as_ref().map_or_else(Vec::new, Machine::gpus);
    let names = machine.as_ref().map_or_else(Vec::new, Machine::names);
    let chosen = cards::choose(&arguments.cards, &names)?;
    unlimited(arguments, &chosen, &names, &present).for_each(|note| say(&note));
    // The trace's path is resolved here, because guard opens it from inside the program.
    let trace = arguments.trace.as_deref().map(whole).transpose()?;
    let needs = if plans {
        needs(&program, rest, arguments, &chosen, planned_on(&machine, &present, &chosen))
    } else {
        Vec::new()
    };
    let mut environment: Environment = std::env::vars_os().collect();
    preload(
        &mut environment,
        &Preload {
            library: &library,
            options: &options(arguments, &chosen, &needs),
            pages: folder.path(),
            trace: trace.as_deref(),
        },
    );
    let kernel_cards = machine.as_ref().map_or(&[][..], |machine| &machine.kernel_cards);
    show_cards(&mut environment, arguments, &chosen, kernel_cards);
    // The environment is inherited, so a static launcher still passes guard on to its dynamic children.
    if let Some(why) = unreachable(&program) {
        say(&format!(
            "note: the program {} is not guarded: {why}; the programs that it starts are guarded",
            program.display()
        ));
    }
    let look = known(machine, &sampler);
    let follow = child::follow(&program, (&arguments.command[0], rest), &environment, folder.path(), |_| {});
    let reports = report_depths(reporter(&needs, rest), folder.path());
    tokio::pin!(look, follow, reports);
    let mut machine = None;
    let (end, record) = loop {
        tokio::select! {
            ended = &mut follow => break ended?,
            // The guard of this branch keeps a finished future from being polled again, which would panic.
            seen = &mut look, if machine.is_none() => machine = Some(seen),
            () = &mut reports => {}
        }
    };
    // The summary names cards, so it is worth a short wait if the program used any.
    if machine.is_none() && !record.cards().is_empty() {
        machine = timeout(NAMES_WITHIN, look).await.ok();
    }
    let summary = RunSummary {
        command: &arguments.command,
        cards: machine.flatten().as_ref().map_or_else(Vec::new, Machine::names),
        record,
        trace,
        end,
        unplanned: plans && needs.is_empty(),
    };
    Ok((summary, end))
}

/// The reporter of the depths of a planned server whose weights can be exchanged, and the client that asks
/// the server.
fn reporter(needs: &[Need], rest: &[OsString]) -> Option<(DepthReporter, SlotsClient)> {
    let layout = needs.iter().find_map(|(_, need)| need.exchanged_cache())?;
    Some((DepthReporter::new(layout)?, SlotsClient::new(&flags::flags(rest).ok()?)?))
}

/// Reports depths as long as it is polled.
async fn report_depths(reporter: Option<(DepthReporter, SlotsClient)>, pages: &Path) {
    match reporter {
        Some((reporter, mut client)) => {
            reporter.report(pages, async || client.slots().await, keep_first).await
        }
        None => pending().await,
    }
}

/// Keeps the rate of the bus for later plans, if it is the first of this machine.
fn keep_first(rate: BusRate) {
    if bus::measured().is_none() {
        // A home folder that cannot be written is no failure of the program.
        let _ = bus::keep(rate);
    }
}

/// Returns the machine, for the names of its cards.
async fn known(machine: Option<Machine>, sampler: &Sampler) -> Option<Machine> {
    match machine {
        Some(machine) => Some(machine),
        None => sampler.machine().await,
    }
}

/// Plans what a llama.cpp program will allocate on the cards that it sees; a failure is printed.
fn needs(
    program: &Path,
    rest: &[OsString],
    arguments: &Arguments,
    chosen: &[Chosen],
    machine: &[Card],
) -> Vec<Need> {
    let seen = cards::seen(chosen, machine, arguments.budget);
    match need::planned(program, rest, &seen, !chosen.is_empty()) {
        Some(Ok(needs)) => needs,
        Some(Err(error)) => {
            say(&format!(
                "note: the memory of {} cannot be planned ({error}), so its last allocations will overflow into host \
                    memory, not its first",
                program.display()
            ));
            Vec::new()
        }
        None => Vec::new(),
    }
}

fn options(arguments: &Arguments, chosen: &[Chosen], needs: &[Need]) -> GuardOptions {
    let params = GuardSettings {
        budget: arguments.budget,
        contexts: match (arguments.strict_cards, arguments.report_cards) {
            (true, _) => Some(Contexts::Refuse),
            (_, true) => Some(Contexts::Report),
            _ => None,
        },
        ..arguments.rungs.params()
    };
    let named = |uuid: &str, budget: Option<Bytes>| {
        let need = needs.iter().find(|(other, _)| other == uuid).map(|(_, need)| need);
        Some(GuardedCard {
            uuid: Uuid::read(uuid)?,
            budget,
            need: need.map(|need| need.bytes),
            caches: need.map_or_else(Vec::new, |need| need.caches.clone()),
            weights: need.and_then(|need| need.weights),
        })
    };
    let cards: Vec<GuardedCard> = if chosen.is_empty() {
        // Without `--card` every planned card is named only to tell guard its need.
        needs.iter().filter_map(|(uuid, _)| named(uuid, None)).collect()
    } else {
        chosen.iter().filter_map(|card| named(&card.uuid, card.budget)).collect()
    };
    let mut options = params.options(&cards);
    options.hide_others = hides_others(arguments) && !chosen.is_empty();
    options
}

/// True if the program sees no cards but the named ones.
fn hides_others(arguments: &Arguments) -> bool {
    !arguments.strict_cards && !arguments.report_cards
}

/// The cards of a plan: the chosen ones, else NVIDIA's, beside which an integrated GPU drives the display.
fn planned_on<'a>(machine: &'a Option<Machine>, present: &'a [Card], chosen: &[Chosen]) -> &'a [Card] {
    let of_library = machine.as_ref().map_or(&[][..], |machine| &machine.cards);
    if chosen.is_empty() && !of_library.is_empty() { of_library } else { present }
}

/// Notes on chosen cards of unknown memory that no size limits: their own memory cannot stand for it.
fn unlimited(
    arguments: &Arguments,
    chosen: &[Chosen],
    names: &[CardNames],
    present: &[Card],
) -> impl Iterator<Item = String> {
    let has_no_limit = |card: &&Chosen| card.budget.is_none() && arguments.budget.is_none();
    let is_known =
        |uuid: &str| present.iter().any(|card| card.names().of_guard().is_some_and(|other| other == uuid));
    let unknown = chosen.iter().filter(has_no_limit).filter(move |card| !is_known(&card.uuid));
    unknown.filter_map(|card| {
        let (number, card) = cards::named(names, &card.uuid)?;
        let name = &card.name;
        Some(format!(
            "note: the free memory of the {name} is unknown, so only a size limits the program: --card {number}=SIZE"
        ))
    })
}

fn show_cards(
    environment: &mut Environment,
    arguments: &Arguments,
    chosen: &[Chosen],
    kernel_cards: &[KernelCard],
) {
    if chosen.is_empty() {
        return;
    }
    // CUDA's default order is fastest first; the numbers that the user typed are in PCI bus order.
    environment.set(names::CUDA_DEVICE_ORDER, "PCI_BUS_ID");
    if hides_others(arguments) {
        // UUIDs mean the same in every order, and also where the program changes CUDA_DEVICE_ORDER itself.
        let mut visible = VisibleCards::default();
        for card in chosen {
            let is_same = |other: &&KernelCard| other.names().of_guard().as_ref() == Some(&card.uuid);
            match kernel_cards.iter().find(is_same) {
                Some(kernel) => {
                    visible.rocr.extend(kernel.rocr_name());
                    visible.level_zero.extend(kernel.level_zero);
                }
                None => visible.cuda.push(card.uuid.clone()),
            }
        }
        environment.set(names::CUDA_VISIBLE_DEVICES, visible.cuda.join(","));
        show_to_others(environment, &visible);
    }
}

/// Makes a path absolute, because the program may change its folder before it writes.
fn whole(path: &Path) -> Result<PathBuf, ErrorReport> {
    std::path::absolute(path)
        .map_err(|error| ErrorReport::new(format!("`{}` is not a valid path: {error}", path.display())))
}

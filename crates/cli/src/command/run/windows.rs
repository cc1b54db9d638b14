//! `plimsoll run` on Windows: runs an unmodified program under guard, which is loaded into it.
//!
//! The command ends with the program's exit code. Failures of Plimsoll itself have the exit codes of `env`:
//! 125, 126 and 127.

#[path = "windows/arena.rs"]
mod arena;
mod cards;
mod flags;
mod summary;
#[path = "windows/way.rs"]
mod way;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use plimsoll_base::Bytes;
use plimsoll_config::reserve_size;
use plimsoll_planner::EngineBuild;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::guard::PAGES;
use plimsoll_probe::library;
use plimsoll_verb::child::{self, own_failure, program};
use plimsoll_wire::env as names;
use plimsoll_wire::options::{CardRule, GuardOptions, Uuid};

use self::cards::{Chosen, RequestedCard};
use self::summary::{RunSummary, say};
use self::way::Way;
use crate::command::plan;
use crate::report::{ErrorReport, write_file};

const MORE: &str = "\
Example: plimsoll run --card 0=11GiB --pool ours -- llama-server.exe -m model.gguf

Without options, the program's memory is counted and no limit is enforced; one line for each card is printed at the end.

Exit status: the exit status of the program; 125 if plimsoll itself fails, 126 if the program cannot be executed, 127 if it does not exist.";

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Card that the program may see, by number, UUID or name, with its budget after `=`; repeatable
    #[arg(long = "card", value_name = "CARD[=SIZE]")]
    cards: Vec<RequestedCard>,
    /// Budget on each card for which --card gives none, e.g. 4GiB; the program and all processes that it
    /// starts share it
    #[arg(long, value_name = "SIZE", value_parser = reserve_size)]
    budget: Option<Bytes>,
    /// Write the summary as JSON (plimsoll.run/1)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Free the idle memory of guard's own pools, then retry
    #[arg(long, help_heading = "When an allocation does not fit")]
    reuse: bool,
    /// Wait up to this many seconds for memory to become free
    #[arg(long, value_name = "SECONDS", help_heading = "When an allocation does not fit")]
    wait: Option<u32>,
    /// Replacement for ggml's legacy pool: guard's own, one allocation of the planned size, or none
    #[arg(long, value_name = "POOL", help_heading = "Pools")]
    pool: Option<Pool>,
    /// With --pool plan: engine of the program, with its build if known: llama.cpp, llama.cpp@8390
    #[arg(long, value_name = "ENGINE[@BUILD]", help_heading = "Pools")]
    build: Option<EngineBuild>,
    /// Report to the program that the cards have no virtual memory management, so that ggml uses its legacy
    /// pool
    #[arg(long, help_heading = "Pools")]
    hide_vmm: bool,
    /// Program to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pool {
    Ours,
    Plan,
    Leave,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    ran(arguments).map_err(own_failure)
}

fn ran(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    // The likely failures come first, before a folder is made and a program started.
    let library = plain(library::GUARD.find()?);
    let (program, rest) = program(&arguments.command)?;
    let machine = plimsoll_cards::look();
    let chosen = cards::choose(&arguments.cards, &machine.names())?;
    let arena = match arguments.pool {
        Some(Pool::Plan) => {
            let seen = cards::seen(&chosen, &machine.cards, arguments.budget);
            let engine = arguments.build.unwrap_or(EngineBuild::LLAMA_CPP);
            Some(arena::planned(&program, rest, &seen, engine)?)
        }
        _ => None,
    };
    let folder = OwnedFolder::create(PAGES)
        .map_err(ErrorReport::of("cannot make a folder for guard's figures in the temporary folder"))?;
    let mut command = Command::new(&program);
    command.args(rest);
    command.env(names::GUARD, options(arguments, &chosen, arena).to_string());
    command.env(names::GUARD_PAGES, folder.path());
    show_cards(&mut command, &chosen);
    let libraries: &[&Path] = match way::of(&program) {
        Way::Backend => {
            command.env(names::GGML_BACKEND_PATH, &library);
            &[]
        }
        Way::Injected => &[&library],
    };
    let (end, record, without_job) = child::follow(&mut command, libraries, folder.path())?;
    if let Some(error) = without_job {
        say(&format!("note: the program would outlive plimsoll, because it got no job: {error}"));
    }
    let cards = machine.names();
    let summary =
        RunSummary { command: &arguments.command, cards, record, trace: None, end, unplanned: false };
    // Before the report: a report that cannot be written must not cost the user the summary.
    summary.print();
    if let Some(path) = &arguments.report {
        write_file(path, summary.json().to_string() + "\n")?;
    }
    Ok(end.repeat())
}

/// A path without the prefix of the file system's own form (`\\?\`), which not every program expects.
fn plain(path: PathBuf) -> PathBuf {
    let text = path.to_str().and_then(|path| path.strip_prefix(r"\\?\"));
    // Behind it, a drive can be left alone, and a server cannot.
    text.filter(|text| text.as_bytes().get(1) == Some(&b':')).map(PathBuf::from).unwrap_or(path)
}

fn options(arguments: &Arguments, chosen: &[Chosen], arena: Option<Bytes>) -> GuardOptions {
    let mut options = GuardOptions::NONE;
    options.budget = arguments.budget.map(Bytes::get);
    options.reuse = arguments.reuse;
    options.wait = arguments.wait.unwrap_or_default();
    options.pool = matches!(arguments.pool, Some(Pool::Ours | Pool::Plan));
    options.arena = arena.map(Bytes::get);
    options.hide_vmm = arguments.hide_vmm;
    for card in chosen {
        if let Some(Uuid(uuid)) = Uuid::read(&card.uuid) {
            // More cards than a page has room for are not guarded, and guard says so.
            let _ = options.add(CardRule { uuid, budget: card.budget.map(Bytes::get), need: None });
        }
    }
    options
}

fn show_cards(command: &mut Command, chosen: &[Chosen]) {
    if chosen.is_empty() {
        return;
    }
    // CUDA's default order is fastest first; the numbers that the user typed are in PCI bus order.
    command.env(names::CUDA_DEVICE_ORDER, "PCI_BUS_ID");
    let uuids: Vec<&str> = chosen.iter().map(|card| card.uuid.as_str()).collect();
    command.env(names::CUDA_VISIBLE_DEVICES, uuids.join(","));
}

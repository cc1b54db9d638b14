//! `plimsoll pool replay`: replay of one allocation trace under several allocator policies.
//!
//! Exits 0 if every policy completes, 1 if one does not, 2 if the trace cannot be read.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::Bytes;
use plimsoll_pool::replay::PolicyKind;
use plimsoll_pool::trace::{RecordedRequest, Trace};

use crate::replay::Replay;
use crate::report::{ErrorReport, print_as, status};
use crate::screen;

// A trace is parsed in memory; 1 GiB of RMM's log is about 20 million requests.
const LARGEST_FILE: u64 = 1 << 30;
const USUAL: [PolicyKind; 5] = [
    PolicyKind::Plimsoll,
    PolicyKind::PlimsollSlots,
    PolicyKind::GgmlLegacy,
    PolicyKind::GgmlLegacyFlush,
    PolicyKind::GgmlVmm,
];

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Trace: a log of RAPIDS RMM (Thread,Time,Action,Pointer,Size,Stream) or of `plimsoll run --trace`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Policies, separated by commas: plimsoll, plimsoll-slots, ggml-legacy, ggml-legacy-flush,
    /// ggml-legacy-double, ggml-vmm
    #[arg(long = "policy", value_name = "P,...", value_delimiter = ',')]
    policies: Vec<PolicyKind>,
    /// Memory of the simulated card; unlimited by default
    #[arg(long, value_name = "SIZE")]
    budget: Option<Bytes>,
    /// Print the result as JSON (plimsoll.replay/1)
    #[arg(long)]
    json: bool,
    /// Card to replay if the trace contains several; by default the card with most requests
    #[arg(long, value_name = "N", requires = "pool")]
    card: Option<u8>,
    /// Pool to replay if the trace contains several; 0 selects the requests to the driver
    #[arg(long, value_name = "N", requires = "card")]
    pool: Option<u8>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let trace = read(arguments).map_err(ErrorReport::input)?;
    let policies = match arguments.policies.as_slice() {
        [] => &USUAL,
        chosen => chosen,
    };
    let replay = Replay::of(&trace, policies, arguments.budget);
    print_as(arguments.json, &replay, || screen::replay(&replay))?;
    Ok(status(replay.completed()))
}

fn read(arguments: &Arguments) -> Result<Trace, ErrorReport> {
    let path = &arguments.file;
    let file = bytes_of(path)?;
    // A record begins with a magic number, so the format is known from the content and not from the name.
    if Trace::is_record(&file) {
        let asked = arguments.card.zip(arguments.pool);
        let asked = asked.map(|(card, pool)| RecordedRequest { card, pool });
        return Trace::from_record(&file, asked)
            .map_err(|error| ErrorReport::new(format!("`{}`: {error}", path.display())));
    }
    Trace::from_csv(&file).map_err(|error| ErrorReport::new(format!("`{}`: {error}", path.display())))
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, ErrorReport> {
    let failed = |error| ErrorReport::of_file("cannot read", path)(error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file
        // One byte more than allowed tells a file that is too large from one that just fits. A pipe has no
        // size to ask for, so the size of the file is not used.
        .take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match u64::try_from(read) {
        Ok(..=LARGEST_FILE) => Ok(bytes),
        _ => Err(ErrorReport::new(format!(
            "`{}` is larger than 1 GiB\nhint: record a shorter run, or cut the file at the end of a line",
            path.display()
        ))),
    }
}

//! `pool-replay`: replays one allocation trace (a program's requests to its allocator) under several
//! allocator policies. It needs no GPU.
//!
//! Exits 0 if every policy completes, 1 if one does not, 2 if the trace cannot be read.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Parser;
use plimsoll_base::Bytes;

use crate::replay::PolicyKind;
use crate::trace::{RecordedRequest, Trace};
use report::Replay;

mod report;
mod table;

// A trace is parsed in memory; 1 GiB of RMM's log is about 20 million requests.
const LARGEST_FILE: u64 = 1 << 30;
const UNREADABLE: u8 = 2;
const USUAL: [PolicyKind; 5] = [
    PolicyKind::Plimsoll,
    PolicyKind::PlimsollSlots,
    PolicyKind::GgmlLegacy,
    PolicyKind::GgmlLegacyFlush,
    PolicyKind::GgmlVmm,
];

/// Replay a trace with several allocator policies, and print how much memory each reserves and the smallest
/// budget with which it completes
#[derive(Debug, Parser)]
struct Arguments {
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

/// Runs the program with these words, the first of which is its name; the result is its exit status.
pub fn run(words: impl IntoIterator<Item = OsString>, out: &mut impl Write, error: &mut impl Write) -> u8 {
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        // Help is no failure, and goes to stdout.
        Err(usage) if !usage.use_stderr() => return u8::from(write!(out, "{usage}").is_err()),
        Err(usage) => {
            let _ = write!(error, "{usage}");
            return UNREADABLE;
        }
    };
    let trace = match read(&arguments) {
        Ok(trace) => trace,
        Err(why) => {
            // A closed stderr is no failure.
            let _ = writeln!(error, "pool-replay: `{}`: {why}", arguments.file.display());
            return UNREADABLE;
        }
    };
    let policies = match arguments.policies.as_slice() {
        [] => &USUAL,
        chosen => chosen,
    };
    let replay = Replay::of(&trace, policies, arguments.budget);
    let text = if arguments.json {
        serde_json::to_string_pretty(&replay).unwrap_or_default() + "\n"
    } else {
        table::replay(&replay)
    };
    let is_printed = out.write_all(text.as_bytes()).is_ok();
    u8::from(!is_printed || !replay.completed())
}

fn read(arguments: &Arguments) -> Result<Trace, Box<dyn Error>> {
    let file = bytes_of(&arguments.file)?;
    // A record begins with a magic number, so the format is known from the content and not from the name.
    if Trace::is_record(&file) {
        let requested = arguments.card.zip(arguments.pool);
        let requested = requested.map(|(card, pool)| RecordedRequest { card, pool });
        return Ok(Trace::from_record(&file, requested)?);
    }
    Ok(Trace::from_csv(&file)?)
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that is too large from one that just fits. A pipe has no size
    // to ask for, so the size of the file is not used.
    let read = File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    match u64::try_from(read) {
        Ok(..=LARGEST_FILE) => Ok(bytes),
        _ => Err("larger than 1 GiB; record a shorter run, or cut the file at the end of a line".into()),
    }
}

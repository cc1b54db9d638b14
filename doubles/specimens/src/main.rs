//! Program `specimen`: writes synthetic models for tests and benchmarks.
//!
//! The large shapes are a header followed by a hole. A model of a terabyte then takes a few megabytes of
//! disk, and still every engine loads it and every planner plans it. The tiny shapes have weights that any
//! llama.cpp serves in milliseconds. `--dense` writes data instead of holes, for engines that read it.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use plimsoll_specimens::{Changes, SHAPES, specimens, write};

/// The names of a set have five digits; a thousand files are more than any published model has.
const MOST_SHARDS: i64 = 999;

/// Write a synthetic model
#[derive(Debug, Parser)]
#[command(name = "specimen", after_help = shapes_help())]
struct Arguments {
    /// Model to imitate; the shapes are listed below
    #[arg(value_parser = PossibleValuesParser::new(listed().map(|(name, _)| name)), hide_possible_values = true)]
    shape: String,
    /// The file to write; with --shards the names are made from it
    out: PathBuf,
    /// Write a set of N files
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MOST_SHARDS))]
    shards: u16,
    /// Give the model N layers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    layers: Option<u32>,
    /// Give each layer that has experts N of them, and no fewer than are used at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    experts: Option<u32>,
    /// State a training context of N tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Give the vocabulary N tokens; the tiny shapes have no fewer than their words need
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    vocab: Option<u32>,
    /// Draw the weights from another seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write all data, random where F32, F16, Q8_0 or Q4_0, instead of leaving holes
    #[arg(long)]
    dense: bool,
}

fn shapes_help() -> String {
    let line = |(name, description): (&str, &str)| format!("  {name:<16} {description}");
    let lines: Vec<String> = listed().map(line).collect();
    format!("Shapes:\n{}", lines.join("\n"))
}

fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHAPES.iter().copied().chain(specimens())
}

fn main() -> ExitCode {
    let Arguments { shape, out, shards, layers, experts, context, vocab, seed, dense } = Arguments::parse();
    let changes = Changes { shards, layers, experts, context, vocabulary: vocab, seed, dense };
    match write(&shape, &out, &changes) {
        Ok(files) => {
            let mut stdout = anstream::stdout();
            let mut lines = files.iter().map(|file| writeln!(stdout, "{file}"));
            // A reader that closed the pipe has what it wanted; the files are written either way.
            let _ = lines.try_for_each(|line| line);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(anstream::stderr(), "specimen: {error}");
            ExitCode::FAILURE
        }
    }
}

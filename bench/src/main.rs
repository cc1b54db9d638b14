//! Benchmarks of `plimsoll serve` against its engine alone and against nginx.
//!
//! The method is that of paired rounds: in each round every target gets one request, in random order, and what is
//! reported is the difference from the direct path in the same round. On a small shared machine that cancels most
//! of what the neighbours do. CPU per request is reported beside every latency, because it is the steadier number.
//!
//! Everything is on loopback and bounded in count and time.

#![forbid(unsafe_code)]

mod client;
mod cpu;
mod crowd;
mod measure;
mod numbers;
mod options;
mod process;
mod proxies;
mod report;
mod requests;
mod run;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let options::Command::Serve(options) = options::Options::parse().command;
    match run::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "bench: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

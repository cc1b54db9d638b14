//! Benchmarks `plimsoll serve` against its engine alone and against nginx, and measures the time to compute a
//! plan.
//!
//! The method is paired rounds. In each round every target gets one request, in random order. The result is
//! the difference from a direct request in the same round. On a small shared machine this cancels most of the
//! influence of other processes. CPU time per request is reported next to every latency, because it varies
//! less.
//!
//! Everything runs on loopback and is bounded in count and time.

#![forbid(unsafe_code)]

mod client;
mod cpu;
mod crowd;
mod hop;
mod measure;
mod numbers;
mod options;
mod plans;
mod process;
mod proxies;
mod report;
mod requests;
mod run;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match options::Options::parse().command {
        options::Command::Serve(options) => run::run(&options).map_err(|error| error.to_string()),
        options::Command::Hop(options) => hop::run(&options).map_err(|error| error.to_string()),
        options::Command::Plan(options) => plans::run(&options).map_err(|error| error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "bench: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

//! Benchmarks: `serve` against its engine alone and against nginx, and what a plan costs.
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

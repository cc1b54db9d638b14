//! Command-line options of the benchmarks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of plimsoll")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What the router costs: latency, CPU, memory, throughput, streams, swaps, start-up
    Serve(Serve),
    /// What a hop from host to host of a fleet costs: latency, CPU, streams
    Hop(Hop),
    /// What a plan by formulas costs: the whole process, and the planning alone
    Plan(Plan),
}

#[derive(Debug, Args)]
pub(crate) struct Hop {
    /// The plimsoll program
    #[arg(long)]
    pub(crate) plimsoll: PathBuf,
    /// The fake engine
    #[arg(long)]
    pub(crate) engine: PathBuf,
    /// The etcd program
    #[arg(long, default_value = "etcd")]
    pub(crate) etcd: PathBuf,
    /// Rounds of the small paired request; larger ones get fewer
    #[arg(long, default_value_t = 2000)]
    pub(crate) rounds: u32,
    /// Repetitions of the streams
    #[arg(long, default_value_t = 5)]
    pub(crate) repeats: u32,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// The plimsoll program; repeatable, to compare builds in turns
    #[arg(long, required = true)]
    pub(crate) plimsoll: Vec<PathBuf>,
    /// Runs of each program for each model
    #[arg(long, default_value_t = 40)]
    pub(crate) runs: usize,
    /// What to plan, of the shapes of `specimen`, each with the number of its cards where that is not 1
    #[arg(long, value_delimiter = ',', default_value = PLANNED)]
    pub(crate) shapes: Vec<String>,
}

const PLANNED: &str =
    "llama-70b,q30,oss,qwen3-next,qwen35-9b,mamba2,gemma3-4b,nemotron-h-30b,kimi-k2,kimi-k2*8";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The fake engine
    #[arg(long)]
    pub(crate) engine: PathBuf,
    /// The plimsoll program; without it only the other targets are measured
    #[arg(long)]
    pub(crate) plimsoll: Option<PathBuf>,
    /// An older plimsoll program, to compare with in the same run
    #[arg(long, requires = "plimsoll")]
    pub(crate) before: Option<PathBuf>,
    /// The nginx program, or "none"
    #[arg(long, default_value = "none")]
    pub(crate) nginx: PathBuf,
    /// Another proxy that already runs in front of an engine with a model "alpha"
    #[arg(long = "target", value_name = "NAME=ADDRESS[,PID]")]
    pub(crate) others: Vec<Other>,
    /// Parts to run; all when absent
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Rounds of the small paired request; larger ones get fewer
    #[arg(long, default_value_t = 2000)]
    pub(crate) rounds: u32,
    /// Length of one throughput slice
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = milliseconds)]
    pub(crate) slice_ms: Duration,
    /// Interleaved repetitions of throughput and streams
    #[arg(long, default_value_t = 3)]
    pub(crate) repeats: u32,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    Paired,
    Throughput,
    Streams,
    Swap,
    Startup,
}

/// A proxy that somebody else started.
#[derive(Debug, Clone)]
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) pid: Option<u32>,
}

impl Serve {
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

impl FromStr for Other {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, place) = text.split_once('=').ok_or("expected NAME=ADDRESS[,PID]")?;
        let (address, pid) = match place.split_once(',') {
            Some((address, pid)) => (address, Some(pid.parse().map_err(|_| "the PID is not a number")?)),
            None => (place, None),
        };
        let address: SocketAddr = address.parse().map_err(|_| "the address is not IP:PORT")?;
        if !address.ip().is_loopback() {
            return Err("only loopback addresses are measured".to_owned());
        }
        Ok(Self { name: name.to_owned(), address, pid })
    }
}

fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn another_target_is_on_loopback_only() {
        let other: Other = "swap=127.0.0.1:81,7".parse().unwrap();
        assert_eq!((other.name.as_str(), other.address.port(), other.pid), ("swap", 81, Some(7)));
        assert!("swap=10.0.0.1:81".parse::<Other>().is_err());
    }
}

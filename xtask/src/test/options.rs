//! Parses the command line of `cargo xtask test`.

use clap::builder::PossibleValuesParser;

use super::steps::{LONG_STEPS, STEPS};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Run what takes longer than CI may: the tests whose names start with `long_`
    #[arg(long)]
    pub(super) long: bool,
    /// Steps to run, all of them by default
    #[arg(value_name = "STEP", value_parser = PossibleValuesParser::new(names()))]
    pub(super) only: Vec<String>,
}

/// Names of the steps of both modes.
fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = STEPS.iter().chain(LONG_STEPS).map(|step| step.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

//! `cargo xtask test`: runs all checks of CI, the quickest to fail first, and prints their counts at the end.
//!
//! Tests run under `cargo nextest`, one process for each test. The profile `ci` of `.config/nextest.toml`
//! explains its groups. Doc tests, which nextest does not run, run under `cargo test --doc`.
//!
//! Some steps install tools (nextest, the CPU engine, the OpenAI client) by name from registries. So a fresh
//! machine with Rust, Python and a C compiler is enough.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

mod artefacts;
mod doctests;
mod junit;
mod linted;
mod loom;
mod nextest;
mod options;
mod steps;
mod times;

pub(crate) use doctests::counted;
pub(crate) use options::Options;
pub(crate) use steps::Outcome;
use steps::Step;
use times::Times;

/// Runs the steps that `options` name, or all of them.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let steps: Vec<&Step> = steps::of(options);
    if steps.is_empty() {
        eprintln!("xtask: none of these is a step {} --long", if options.long { "with" } else { "without" });
        return ExitCode::from(2);
    }
    let mut total = Outcome::default();
    let mut times = Times::default();
    let mut failed = Vec::new();
    for step in steps {
        eprintln!("── {} ──", step.name);
        let (start, processor) = (Instant::now(), times::processor());
        let outcome = step.run(root);
        let (elapsed, processor) = (start.elapsed(), times::processor().saturating_sub(processor));
        times.add(step.name, elapsed, processor);
        let word = if outcome.succeeded { "ok" } else { "FAILED" };
        eprintln!("── {}: {word}, {elapsed:.0?} ──", step.name);
        if !outcome.succeeded {
            failed.push(step.name);
        }
        total.add(outcome);
    }
    eprint!("{}", times.text(&mut total.tests));
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
    }
    // CI reads this line, so nothing else may stand on it.
    println!("{} passed, {} failed", total.passed, total.failed.max(failed.len()));
    ExitCode::from(u8::from(!failed.is_empty()))
}

//! Diagnoses refused GPU allocations, and inference engines that died.
//!
//! Format readers (`formats/`) turn log lines into [`Facts`], and rules name causes. A text classifier gives
//! a second opinion on problem reports. [`diagnose`] combines both.
//!
//! DECISION: rules exist only for text that programs print in a fixed format. Word lists for prose failed on
//! new reports (`bench/RESULTS.md`), so prose is left to the classifier.
//!
//! DECISION: each verdict shows its evidence, its confidence and its alternatives.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod candidate;
mod cause;
mod classifier;
mod diagnosis;
mod ensemble;
mod facts;
mod formats;
mod healthy;
mod last_lines;
mod line;
mod log_prefix;
mod pattern;
mod program;
mod reader;
mod refused;
mod remedy;
mod rules;
mod sign;
mod sizes;
mod source_line;
mod verdict;

pub use candidate::DiagnosisCandidate;
pub use cause::{Cause, SubCause};
pub use diagnosis::{Diagnosis, diagnose};
pub use facts::{Facts, LineOrigin, LineSource, Quote};
pub use last_lines::{LastLinesFinding, read_last_lines};
pub use plimsoll_base::Exit;
pub use reader::LogReader;
pub use refused::RefusedAllocation;
pub use sign::{CauseSign, gives_up};
pub use verdict::{EngineDeath, EngineVerdict, judge};

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_doctor;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;

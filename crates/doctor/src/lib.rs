//! Diagnosis of refused GPU allocations and of inference engines that died.
//!
//! It has three stages. Format readers (`formats/`) turn the log lines of programs into [`Facts`]. Rules
//! compare the numbers in the facts and name causes. A text classifier gives a second opinion on reports
//! written by people. [`diagnose`] combines the results.
//!
//! DECISION: there are rules only for text that programs print in a fixed format. To support such a line, add
//! it to a table of `formats/`, with the log or source that shows it. Numbers belong in [`Facts`], and
//! conclusions from numbers in `rules/`. There are no rules for prose; the classifier learns prose from
//! labelled reports (`bench/likeness/train.py`). Word lists for prose were tried and did not work on new
//! reports (`bench/RESULTS.md`).
//!
//! DECISION: an uncertain result is shown as uncertain. Each verdict has its evidence lines, its confidence
//! and its alternatives. Without evidence, only the exit status and the last log lines are shown.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod cause;
mod classifier;
mod diagnosis;
mod ensemble;
mod facts;
mod formats;
mod last_lines;
mod line;
mod pattern;
mod reader;
mod refused;
mod remedy;
mod rules;
mod sign;
mod sizes;
mod verdict;

pub use cause::{Cause, SubCause};
pub use diagnosis::{Diagnosis, DiagnosisCandidate, SCHEMA, diagnose};
pub use facts::{Facts, LineSource, Quote};
pub use last_lines::{LastLinesFinding, read_last_lines};
pub use reader::LogReader;
pub use refused::RefusedAllocation;
pub use sign::{CauseSign, gives_up};
pub use verdict::{EngineDeath, EngineVerdict, Exit, judge};

//! Diagnosis of refused GPU allocations and dead inference engines.
//!
//! Three stages, one direction: [`formats`](self) turn lines that programs print into [`Facts`]; rules do
//! arithmetic over the facts; a text classifier gives a second opinion on reports in people's words.
//! [`diagnose`] adds them up.
//!
//! DECISION: only printed formats have rules. A line that a program prints belongs into a table of
//! `formats/`, with the log or the source that shows it. A number belongs into [`Facts`], a conclusion from
//! numbers into `rules/`. Prose belongs to nobody's rule: the classifier learns it from labelled reports
//! (`bench/likeness/train.py`). Word lists for prose were tried and did not carry over to new reports
//! (`bench/RESULTS.md`).
//!
//! DECISION: a guess is shown as a guess. Each verdict has its lines, its confidence and its alternatives;
//! without evidence the answer is the exit status and the last lines.
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

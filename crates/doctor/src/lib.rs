//! Why memory was refused, or why an engine died: words and numbers, judged.
//!
//! Decision: never dress a guess. A cause is named where a line, a number or a refusal on guard's page says so; they stand as
//! evidence in the reason tree, with a confidence and what else it may be. Where these say little, a report is compared with others by its words,
//! and the verdict says so and is never sure. Where nothing matches, the plain status and the last lines are the answer. Reading is apart from judging: a [`Reader`] turns logs, circumstances and the machine's state
//! into typed [`Evidence`], rules speak for causes, [`diagnose`] adds them up.
#![forbid(unsafe_code)]

mod cause;
mod diagnosis;
mod evidence;
mod last_lines;
mod likeness;
mod line;
mod opinions;
mod read;
mod refused;
mod remedy;
mod rule;
mod saying;
mod sign;
mod sizes;
mod verdict;

pub use cause::{Cause, SubCause};
pub use diagnosis::{Candidate, Diagnosis, SCHEMA, diagnose};
pub use evidence::{Evidence, Quote, Source};
pub use last_lines::{Finding, read_last_lines};
pub use read::Reader;
pub use refused::Refused;
pub use sign::{Sign, gives_up};
pub use verdict::{Death, Exit, Verdict, judge};

//! Why an engine died: its wait status and its own last words, judged.
//!
//! Decision: never guess. A cause is named only where a line of the engine, the kernel's counter or a refusal on guard's page
//! says so; they stand as evidence in the reason tree. Where nothing matches, the plain status and the last lines are
//! the answer.

mod last_lines;
mod refused;
mod sign;
mod verdict;

pub use last_lines::{Finding, read_last_lines};
pub use refused::Refused;
pub use sign::{Sign, gives_up};
pub use verdict::{Death, Exit, Verdict, judge};

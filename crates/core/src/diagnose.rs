//! Why an engine died: its wait status and its own last words, judged.
//!
//! Decision: never guess. A cause is named only where a line of the engine, or the kernel's counter, says so; the
//! lines stand as evidence in the reason tree. Where nothing matches, the plain status and the last lines are
//! the answer.

mod last_lines;
mod sign;
mod verdict;

pub use last_lines::{Finding, read_last_lines};
pub use sign::{Sign, gives_up};
pub use verdict::{Death, Exit, Verdict, judge};

//! The engine's own numbers in place of ours.
//!
//! An engine that runs under the phantom backend writes into its log what each of its buffers takes. Here that log
//! is read ([`Transcript`]), put in place of the formulas ([`exact`]), and searched for the largest context that fits
//! ([`Search`]). What the engine does not count, run-time pool and driver context, stays as the default plan has it,
//! each with its own source. A log is hostile input: at most so many buffers and so long a line, and what is not
//! understood is counted and said, never guessed.

mod line;
mod merge;
mod refusal;
mod search;
mod transcript;

pub use line::{BufferKind, Place};
pub use merge::{exact, fits};
pub use refusal::{Refusal, RefusalKind};
pub use search::Search;
pub use transcript::{Buffer, Transcript};

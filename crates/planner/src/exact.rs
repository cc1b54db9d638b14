//! The engine's own numbers in place of ours.
//!
//! An engine that runs under the phantom backend writes into its log what each of its buffers takes. Here that log
//! is read ([`Transcript`]) and put in place of the formulas ([`exact()`], [`priced`]), so that [`fit`](super::fit) finds what
//! fits in the engine's own numbers. What the engine does not count, run-time pool and driver context, stays as the default plan has it,
//! each with its own source. A log is hostile input: at most so many buffers and so long a line, and what is not
//! understood is counted and said, never guessed.

mod line;
mod merge;
mod refusal;
mod transcript;

pub use line::{BufferKind, Place};
pub use merge::{exact, priced};
pub use refusal::{Refusal, RefusalKind};
pub use transcript::{Buffer, Transcript};

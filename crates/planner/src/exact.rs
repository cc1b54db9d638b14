//! Plans with the engine's own numbers.
//!
//! An engine whose backend runs without a card logs the size of each of its buffers. This module reads that log
//! ([`Transcript`]) and replaces the formulas with it ([`exact()`], [`priced`]), so that [`fit`](super::fit) searches in the
//! engine's own numbers. The engine does not count run-time pool and driver context; they stay as in the default plan,
//! each with its own source. A log is hostile input: buffers and lines are bounded, and an unknown buffer is counted and
//! reported, never guessed.

mod line;
mod merge;
mod refusal;
mod transcript;

pub use line::{BufferKind, BufferPlace, CardInterface};
pub use merge::{exact, priced};
pub use refusal::{EngineRefusal, EngineRefusalKind};
pub use transcript::{EngineBuffer, Transcript};

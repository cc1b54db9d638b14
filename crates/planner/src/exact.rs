//! Plans from the buffer sizes that the engine itself reports (`plan --exact`).
//!
//! An engine that runs under the phantom (a ggml backend without a GPU) logs the size of each of its buffers.
//! This module reads that log ([`Transcript`]) and uses its sizes instead of the formulas ([`exact()`],
//! [`priced`]). So searches by [`fit`](super::fit) use the engine's own sizes as well. The engine does not
//! count run-time pool and driver context; these terms stay as in the default plan, each with its own source.
//! A log is hostile input: buffers and lines are bounded, and an unknown buffer is counted and reported,
//! never guessed.

mod line;
mod merge;
mod refusal;
mod transcript;

pub use line::{BufferKind, BufferPlace};
pub use merge::{exact, priced};
pub use refusal::{EngineRefusal, EngineRefusalKind};
pub use transcript::{EngineBuffer, Transcript};

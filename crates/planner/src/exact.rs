//! Plans with the engine's own sizes instead of computed ones (`plan --exact`).
//!
//! An engine whose backend runs without a card logs the size of each of its buffers. This module reads
//! that log ([`Transcript`]) and replaces the computed sizes ([`exact()`], [`priced`]). So
//! [`fit`](super::fit) searches with the engine's own sizes. The log does not include the run-time pool and
//! the driver context. These two terms stay as in the default plan, each with its own source. A log is
//! hostile input: buffers and lines are bounded, and an unknown buffer is counted and reported, never
//! guessed.

mod line;
mod merge;
mod refusal;
mod transcript;

pub use line::{BufferKind, BufferPlace, CardInterface};
pub use merge::{exact, priced};
pub use refusal::{EngineRefusal, EngineRefusalKind};
pub use transcript::{EngineBuffer, Transcript};

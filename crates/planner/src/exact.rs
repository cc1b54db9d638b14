//! Plans with the engine's own sizes instead of computed ones (`plan --exact`).
//!
//! The sizes are read from the log of an engine whose backend runs without a card ([`Transcript`],
//! [`exact()`], [`priced`]). The log lacks the run-time pool and the driver context, which stay as computed.
//! An unknown buffer is reported, never guessed.

mod line;
mod merge;
mod refusal;
mod transcript;

pub use line::{BufferKind, BufferPlace, CardInterface};
pub use merge::{exact, priced};
pub use refusal::{EngineRefusal, EngineRefusalKind};
pub use transcript::{EngineBuffer, Transcript};

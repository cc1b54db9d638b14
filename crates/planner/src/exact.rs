//! Plans with the engine's own sizes instead of computed ones (`plan --exact`).
//!
//! The sizes come from the log of an engine that runs without a card. The run-time pool and the driver
//! context are not in the log, so they stay as computed.

mod line;
mod merge;
mod refusal;
mod stand_in;
mod transcript;

pub use line::{BufferKind, BufferPlace, CardInterface};
pub use merge::{exact, priced};
pub use refusal::{EngineRefusal, EngineRefusalKind};
pub use stand_in::GrownMemory;
pub use transcript::{EngineBuffer, Transcript};

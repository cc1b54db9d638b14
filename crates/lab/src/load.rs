//! Load tests of OpenAI-compatible servers, and their effect on the server's memory.
//!
//! DECISION: load comes in rounds. A round repeats the requests of the round before, at several depths.
//! Memory is measured between rounds, with no request in flight. Measurements are therefore comparable:
//! neither a half-finished request nor a deeper prompt can look like growth, and prompt caches are full after
//! the first rounds. The verdict is computed by `plimsoll_telemetry::trend`.
//!
//! Everything is bounded: requests in number and time, answers in bytes, a round in its requests, a state in
//! its points.

mod answer;
mod beside;
mod client;
mod figures;
mod last_words;
mod program;
mod prompt;
mod refused;
mod rounds;
mod server;
mod soak;
mod state;
mod sweep;
mod target;

pub use self::answer::LoadFailure;
pub use self::beside::{Beside, BesideError, OrderResult, Served};
pub use self::client::Client;
pub use self::figures::{Figures, is_own};
pub use self::program::Ending;
pub use self::prompt::WordLength;
pub use self::rounds::{Round, failed_so};
pub use self::server::LoadTarget;
pub use self::soak::{SoakError, SoakLimit, SoakSettings, soak, stopped};
pub use self::state::{CardStats, RouterState, SoakVerdict, StateError, thousands};
pub use self::sweep::{Sweep, SweepDepth, slope, sweep, warm_up};
pub use self::target::Target;

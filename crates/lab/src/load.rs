//! Load tests of OpenAI-compatible servers, and their effect on the server's memory.
//!
//! DECISION: the load consists of rounds. Each round repeats the requests of the previous one, at several
//! prompt depths. Memory is measured between rounds, with no request in flight. So measurements are
//! comparable: neither an unfinished request nor a deeper prompt can look like growth, and prompt caches are
//! full after the first rounds. `plimsoll_telemetry::trend` computes the verdict.
//!
//! All quantities are bounded: the number and time of requests, the bytes of answers, the requests of a
//! round, and the measurements that are saved.

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

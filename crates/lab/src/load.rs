//! Load on an OpenAI-compatible server, and what it does to the server's memory.
//!
//! DECISION: load comes in rounds. A round is the same requests as the one before, of several depths; between
//! rounds nothing is in flight, and then the memory is looked at. So looks are alike: neither a request half
//! done nor a deeper prompt than last time is taken for growth, and what a server caches of prompts is full
//! after the first rounds. What is judged is `plimsoll_telemetry::trend`'s to say.
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

pub use self::answer::Failure;
pub use self::beside::{Beside, BesideError, Encounter, Served};
pub use self::client::Client;
pub use self::figures::{Figures, is_own};
pub use self::program::Ending;
pub use self::prompt::Yardstick;
pub use self::rounds::{Round, failed_so};
pub use self::server::Server;
pub use self::soak::{Limit, Settings, SoakError, soak, stopped};
pub use self::state::{CardStats, Judged, State, StateError, thousands};
pub use self::sweep::{Depth, Sweep, slope, sweep, warm_up};
pub use self::target::Target;

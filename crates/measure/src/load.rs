//! Runs load tests on OpenAI-compatible servers, and measures the server's memory between rounds of requests.

mod answer;
mod client;
mod figures;
mod prompt;
mod refused;
mod results;
// DECISION: each round repeats the requests of the previous one, and memory is measured between rounds. So
// neither an unfinished request nor a deeper prompt can look like growth. `crate::trend`
// computes the verdict.
mod rounds;
mod server;
mod soak;
mod sweep;
mod target;

pub use self::answer::LoadFailure;
pub use self::client::Client;
pub use self::figures::{Figures, is_own};
pub use self::prompt::WordLength;
pub use self::results::{SoakResults, SoakVerdict, thousands};
pub use self::rounds::{Round, failed_so};
pub use self::server::LoadTarget;
pub use self::soak::{SoakError, SoakLimit, SoakSettings, soak};
pub use self::sweep::{Sweep, SweepDepth, slope, sweep, warm_up};
pub use self::target::Target;

//! Builds the `serve` daemon, which starts engines for models and proxies HTTP requests to them.
//!
//! [`Daemon`] combines the driver of the scheduler (`runtime`), its extensions (`handlers`), the host's
//! membership in a fleet (`member`) and the HTTP server (`route`).
#![forbid(unsafe_code)]

mod daemon;
mod handlers;

pub use daemon::{ConfigCheck, Daemon, DaemonError, DaemonHandle, Setup};
pub use plimsoll_member::FleetError;
pub use plimsoll_route::{Listen, openapi};
pub use plimsoll_runtime::{
    Beside, CandidateModel, CandidateVerdict, Config, ConfigureError, Forecast, LoadedTogether,
    ReadConfigError, StandingConflicts, TogetherForecast, UnknownCard, post_mortem, together, widest,
};
pub use plimsoll_task::{DaemonFuture, on_one_thread};

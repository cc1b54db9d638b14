//! The `serve` daemon: it starts engines for models and proxies HTTP requests to them.
//!
//! [`Daemon`] combines the driver of the scheduler (`runtime`), its extensions (`handlers`) and the HTTP
//! server (`route`). The only interface between driver and HTTP server is `route::model_service`.
#![forbid(unsafe_code)]

mod config_error;
mod config_file;
mod daemon;
mod fleet;
mod handlers;
mod key_file;
mod runtime;

pub use config_error::ReadConfigError;
pub use config_file::Config;
pub use daemon::{ConfigCheck, Daemon, DaemonError, DaemonHandle, Setup};
pub use fleet::FleetError;
pub use plimsoll_route::Listen;
pub use plimsoll_task::{DaemonFuture, on_one_thread};
pub use runtime::{ConfigureError, Forecast, StandingConflicts, UnknownCard, widest};

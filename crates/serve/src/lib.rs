//! The `serve` daemon: it drives the scheduler, starts engines, and proxies HTTP requests to them.
//!
//! [`Daemon`] combines the scheduler's driver (`runtime`), its extensions (`handlers`) and the HTTP server
//! (`route`). The only interface between driver and HTTP server is `route::model_service`.
#![forbid(unsafe_code)]

mod config_file;
mod daemon;
mod handlers;
mod route;
mod runtime;

pub use config_file::{Config, ReadConfigError};
pub use daemon::{ConfigCheck, Daemon, DaemonError, DaemonHandle, Setup};
pub use route::Listen;
pub use runtime::{ConfigureError, Forecast, UnknownCard, widest};

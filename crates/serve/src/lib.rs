//! The `serve` daemon: the scheduler's driver, the HTTP proxy and its API.
//!
//! [`Daemon`] composes the driver (`runtime`), its extensions (`handlers`) and the proxy (`route`). Driver
//! and proxy meet in `route::service` only.
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

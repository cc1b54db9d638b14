//! The `serve` daemon: the scheduler's driver, the HTTP proxy and its API.
//!
//! One way in: [`Daemon`]. It composes the driver (`owner`) and the proxy (`route`), which meet in `route::harbor` only.
#![forbid(unsafe_code)]

mod config_file;
mod daemon;
mod owner;
mod route;

pub use config_file::{Config, ReadConfigError};
pub use daemon::{Check, Daemon, DaemonError, DaemonHandle, Setup};
pub use owner::{ConfigureError, Forecast, UnknownCard, widest};
pub use route::Listen;

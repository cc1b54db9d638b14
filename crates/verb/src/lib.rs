//! Code that all subcommands share: output, errors with exit statuses, durations, and a supervised program.
#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod child;
#[cfg(windows)]
#[path = "child/windows.rs"]
pub mod child;
mod duration;
mod own_failure;
pub mod report;
pub mod terminal;

use tokio::runtime::Runtime;

pub use self::duration::{lasted, time};
use self::report::ErrorReport;

/// Hint for a key that a server refuses.
pub const KEY_HINT: &str = "\nhint: pass a key with --api-key, or in the variable PLIMSOLL_API_KEY";

/// The run-time of a verb that is a client or waits for a program.
pub fn runtime() -> Result<Runtime, ErrorReport> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(ErrorReport::of("cannot start the event loop of plimsoll"))
}

//! Starts, confines, observes and ends processes of the operating system.
#![forbid(unsafe_code)]

/// Path of this program, for starting it again. The link is resolved at each start, so an upgrade that
/// replaces the file does no harm.
#[cfg(unix)]
pub const PLIMSOLL: &str = "/proc/self/exe";

#[cfg(unix)]
mod cgroup;
#[cfg(unix)]
pub mod confinement;
#[cfg(unix)]
pub mod descendants;
mod environment;
#[cfg(unix)]
mod handle;
#[cfg(unix)]
mod kernel_text;
#[cfg(unix)]
mod lines;
#[cfg(unix)]
mod linux;
#[cfg(unix)]
mod oom;
pub mod own_command;
#[cfg(unix)]
pub mod port_holder;
#[cfg(unix)]
pub mod port_owner;
#[cfg(unix)]
pub mod reading;
#[cfg(unix)]
mod resident;
mod run;
#[cfg(unix)]
mod spawn;
#[cfg(test)]
#[cfg(unix)]
mod tests;
#[cfg(unix)]
mod warden;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use linux as system;
#[cfg(windows)]
use windows as system;

pub use environment::Environment;
#[cfg(unix)]
pub use handle::ProcessHandle;
#[cfg(unix)]
pub use lines::Lines;
#[cfg(unix)]
pub use oom::kernel_oom_kills;
#[cfg(unix)]
pub use resident::{resident, resident_less_cache};
pub use run::{ProgramEnded, run};
#[cfg(unix)]
pub use spawn::{LaunchError, Launcher, ProcessSpec, find_program};

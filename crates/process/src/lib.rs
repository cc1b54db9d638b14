//! Starts, confines, observes and ends processes of the operating system.
#![forbid(unsafe_code)]

/// Path of this program, for starting it again. The link is resolved at each start, so an upgrade that
/// replaces the file does no harm.
pub const PLIMSOLL: &str = "/proc/self/exe";

mod cgroup;
pub mod confinement;
pub mod descendants;
mod environment;
mod handle;
mod kernel_text;
mod lines;
mod oom;
pub mod own_command;
pub mod port_holder;
pub mod port_owner;
pub mod reading;
mod resident;
mod run;
mod spawn;
#[cfg(test)]
mod tests;
mod warden;

pub use environment::Environment;
pub use handle::ProcessHandle;
pub use lines::Lines;
pub use oom::kernel_oom_kills;
pub use resident::{resident, resident_less_cache};
pub use run::{ProgramEnded, run};
pub use spawn::{LaunchError, Launcher, ProcessSpec, find_program};

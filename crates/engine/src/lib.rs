//! Start and end of engine processes, each in its own process group and with access to its own cards only.
#![forbid(unsafe_code)]

mod address;
mod argv;
mod child;
mod control;
mod end;
mod environment;
mod hang_check;
mod health;
mod isolation;
mod post_mortem;
mod process;
pub mod program;
mod work;
// One thread, the launcher, is the parent of every child, because a parent-death signal is sent when the
// forking *thread* ends. A child is reaped after all processes of its group were killed, so its PID cannot be
// reused before.
mod spawn;
#[cfg(test)]
mod tests;

pub use address::{EngineAddress, free_port};
pub use argv::random_key;
pub use child::{Child, ChildEnded, ChildEvent};
pub use end::EndCause;
pub use environment::{Environment, child_environment, inherited};
pub use isolation::{Visible, renumber};
pub use post_mortem::post_mortem;
pub use spawn::{ChildSpec, LaunchError, Launcher, Readiness, StopWay, find_program};
pub use work::EngineWork;

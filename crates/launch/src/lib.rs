//! Start and end of engine processes, each in its own process group and with access to its own cards only.
#![forbid(unsafe_code)]

/// Path of this program, for starting it again. The link is resolved at each start, so an upgrade that
/// replaces the file does no harm.
pub const PLIMSOLL: &str = "/proc/self/exe";

mod address;
mod argv;
mod child;
mod confinement;
mod control;
mod descendants;
mod end;
pub mod engine;
mod engine_cgroup;
mod engine_work;
mod environment;
mod hang_check;
mod health;
mod http_client;
mod isolation;
mod kernel_text;
mod lines;
mod own_command;
mod port_holder;
mod port_owner;
mod post_mortem;
mod process;
// One thread, the launcher, is the parent of every child, because a parent-death signal is sent when the
// forking *thread* ends. A child is reaped after all processes of its group were killed, so its PID cannot be
// reused before.
mod spawn;
#[cfg(test)]
mod tests;
mod warden;

pub use address::{EngineAddress, EngineIo, EngineStream, free_port};
pub use argv::random_key;
pub use child::{Child, ChildEnded, ChildEvent};
pub use confinement::{
    Confinement, EngineUser, EngineUserError, UserNumbers, become_user, enter_private_tmp, forbid_core_dumps,
    forbid_new_privileges,
};
pub use descendants::{CHILD_MARK, sweep};
pub use end::EndCause;
pub use engine_work::EngineWork;
pub use environment::{Environment, child_environment, inherited};
pub use http_client::{HttpClient, HttpClientError, collect_body};
pub use isolation::{Visible, renumber};
pub use own_command::own_command;
pub use port_holder::{PortHolder, port_holder};
pub use port_owner::{ListenerOwner, PortOwner, listener_on, listens_on};
pub use post_mortem::post_mortem;
pub use spawn::{ChildSpec, LaunchError, Launcher, Readiness, StopWay, find_program};

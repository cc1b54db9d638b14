//! Starts and ends engines, each in a process group of its own that sees its own cards only.
//!
//! One thread, the launcher, is the parent of every child for as long as the daemon lives, because a
//! parent-death signal fires when the forking *thread* ends. Everything else about a child (its lines, its
//! readiness, its end) belongs to one task on the daemon's single-threaded runtime, so there are no locks.
//!
//! A child is reaped only after its whole group was swept: while the leader is still a zombie its number
//! cannot be taken by a stranger.
#![forbid(unsafe_code)]

/// This very program, to be started again. The link is resolved at that moment, so an upgrade that replaces
/// the file does no harm.
pub const PLIMSOLL: &str = "/proc/self/exe";

mod argv;
mod child;
mod control;
mod descendants;
mod end;
pub mod engine;
mod environment;
mod health;
mod http_client;
mod isolation;
mod lines;
mod log_file;
mod log_ring;
mod port;
mod port_owner;
mod post_mortem;
mod process;
mod spawn;
mod stderr_queue;
mod warden;

pub use argv::random_key;
pub use child::{Child, ChildEnded, ChildEvent};
pub use descendants::{CHILD_MARK, sweep};
pub use end::EndCause;
pub use environment::{Environment, child_environment};
pub use http_client::{HttpClient, HttpClientError, collect_body};
pub use isolation::{Visible, renumber};
pub use log_file::LogFile;
pub use log_ring::{Log, LogLine, LogSource};
pub use port::free_port;
pub use port_owner::{ListenerOwner, PortOwner, listener_on};
pub use post_mortem::post_mortem;
pub use spawn::{ChildSpec, LaunchError, Launcher, Readiness, StopWay, find_program};
pub use stderr_queue::{FlushStderr, StderrQueue};
